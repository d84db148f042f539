"""weave-paper decides as a brute-force reading of the published algorithm, case by case."""

import msgspec
from builders import GIB, cluster, job, node
from hypothesis import event, given, settings
from hypothesis import strategies as st
from published_algorithm import Published

from weaverl.domain.cluster import PoolKind, SwitchCost
from weaverl.domain.events import AgentReported, ControllerStarted, DeathConfirmed, JobCancelled, JobSubmitted
from weaverl.domain.jobs import HostMemory, JobSpec, JobState, PhaseProfile
from weaverl.scheduling.scheduler import Scheduler

USABLE_GIB = 300
SWITCH = (1, 2)

jobs = st.fixed_dictionaries(
    {
        "rollout": st.integers(4, 40),
        "training": st.integers(2, 20),
        "sync": st.integers(0, 12),
        "other": st.sampled_from([0, 0, 3, 20]),
        "slo": st.sampled_from([1.0, 1.2, 1.5, 2.0, 3.0, 5.0]),
        "nodes": st.fixed_dictionaries(
            {"rollout": st.sampled_from([1, 1, 1, 2, 3]), "training": st.sampled_from([1, 1, 2])}
        ),
        "gib": st.fixed_dictionaries(
            {"rollout": st.sampled_from([20, 60, 160]), "training": st.sampled_from([20, 60, 160])}
        ),
    }
)
cases = st.tuples(
    st.integers(1, 5),
    st.integers(1, 4),
    st.lists(st.tuples(jobs, st.none() | st.integers(0, 4)), min_size=2, max_size=6),
)


def spec_of(name: str, one: dict) -> JobSpec:
    profile = PhaseProfile(
        rollout_max_seconds=one["rollout"],
        rollout_mean_seconds=one["rollout"] / 2,
        training_seconds=one["training"],
        sync_seconds=one["sync"],
        other_seconds=one["other"],
    )
    gpus = (8 * one["nodes"]["rollout"], 8 * one["nodes"]["training"])
    memory = HostMemory(rollout_bytes=one["gib"]["rollout"] * GIB, training_bytes=one["gib"]["training"] * GIB)
    spec = job(name, slo=one["slo"], gpus=gpus, driver=False)
    return msgspec.structs.replace(spec, profile=profile, host_memory=memory)


class Door:
    """A scheduler on nodes of 8 GPUs, spoken to through its one door."""

    def __init__(self, num_rollout: int, num_training: int) -> None:
        numbers = {"r": num_rollout, "t": num_training}
        nodes = [node(f"{pool}{place}", host_gib=USABLE_GIB) for pool in "rt" for place in range(numbers[pool])]
        switch = SwitchCost(rollout_seconds=SWITCH[0], training_seconds=SWITCH[1])
        self.scheduler = Scheduler(cluster(*nodes, switch=switch))
        self.now = 0
        self.send(ControllerStarted(epoch=1))
        for one in nodes:
            self.send(AgentReported(epoch=1, node=one))

    def send(self, event: object) -> None:
        self.now += 1
        self.scheduler.handle(msgspec.structs.replace(event, at=self.now))

    def arrive(self, spec: JobSpec) -> tuple | None:
        """Kind of placement and nodes of each pool; a job that waits is taken back."""
        self.send(JobSubmitted(spec=spec))
        record = self.scheduler.state.jobs[spec.name]
        if record.state is JobState.QUEUED:
            self.send(JobCancelled(job=spec.name))
            return None
        return (record.verdicts[-1].kind, *(record.pin.nodes(pool) for pool in PoolKind))

    def depart(self, name: str) -> None:
        nodes = {one for pool in PoolKind for one in self.scheduler.state.jobs[name].pin.nodes(pool)}
        self.send(JobCancelled(job=name))
        for one in sorted(nodes):
            self.send(DeathConfirmed(job=name, attempt=1, node=one))


@settings(max_examples=100, deadline=None)
@given(cases)
def test_every_decision_is_the_published_one(case: tuple):
    num_rollout, num_training, arrivals = case
    door = Door(num_rollout, num_training)
    names = [[f"{pool}{place}" for place in range(number)] for pool, number in zip("rt", case[:2], strict=True)]
    published = Published(*names, USABLE_GIB, SWITCH)
    running = []
    for place, (one, leaver) in enumerate(arrivals):
        if one["nodes"]["rollout"] > num_rollout or one["nodes"]["training"] > num_training:
            continue
        name = f"j{place}"
        expected = published.arrive({**one, "name": name})
        decided = door.arrive(spec_of(name, one))
        event(expected[0] if expected else "waits")
        if expected is None:
            assert decided is None
        else:
            running.append(name)
            assert (decided[0], set(decided[1]), set(decided[2])) == (expected[0], set(expected[1]), set(expected[2]))
        if leaver is not None and leaver < len(running):
            gone = running.pop(leaver)
            published.depart(gone)
            door.depart(gone)
