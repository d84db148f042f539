"""Judging all groups at once gives the decisions of judging one after the other, and the index follows every fold."""

import msgspec
import numpy as np
from builders import GIB, cluster, node
from hypothesis import given, settings
from hypothesis import strategies as st

from weaverl.domain.cluster import PoolKind, SwitchCost
from weaverl.domain.events import (
    AgentReported,
    ControllerStarted,
    DeathConfirmed,
    JobCancelled,
    JobSubmitted,
    NodeLost,
)
from weaverl.domain.jobs import HostMemory, JobSpec, PhaseProfile, Role
from weaverl.scheduling.admission import first_admitted
from weaverl.scheduling.group_table import MemberRow
from weaverl.scheduling.index import ClusterIndex, index_of
from weaverl.scheduling.policies import weave_paper
from weaverl.scheduling.policies.one_by_one import candidates
from weaverl.scheduling.scheduler import Scheduler
from weaverl.scheduling.state import Changed, ClusterState

seconds = st.integers(1, 60).map(float)
profiles = st.builds(
    PhaseProfile,
    rollout_max_seconds=seconds,
    rollout_mean_seconds=st.just(1.0),
    training_seconds=seconds,
    sync_seconds=st.integers(0, 15).map(float),
    other_seconds=st.integers(0, 5).map(float),
    rollout_switch_seconds=st.none() | st.floats(0, 4),
    training_switch_seconds=st.none() | st.floats(0, 4),
)
whole = st.sampled_from([(8, 8), (8, 8), (8, 8), (16, 8), (8, 16), (16, 16), (24, 8)])
partial = st.sampled_from([(4, 8), (8, 2), (4, 4)])


def specs(gpus: st.SearchStrategy[tuple[int, int]]) -> st.SearchStrategy[JobSpec]:
    memory = st.sampled_from([20, 50, 100, 160])
    return st.builds(
        lambda profile, gpus, memory, slo: JobSpec(
            name="",
            roles=(Role(name="run", command=("true",)),),
            rollout_gpus=gpus[0],
            training_gpus=gpus[1],
            host_memory=HostMemory(rollout_bytes=memory[0] * GIB, training_bytes=memory[1] * GIB),
            slo=slo,
            profile=profile,
        ),
        profiles,
        gpus,
        st.tuples(memory, memory),
        st.sampled_from([1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 6.0]),
    )


arrivals = specs(whole | whole | partial)
"""Mostly whole nodes; the others make their groups odd."""
steps = st.lists(st.tuples(arrivals, st.integers(0, 5), st.booleans()), min_size=1, max_size=12)


class Driver:
    """Sends arrivals and departures through the door, without a cluster behind it."""

    def __init__(self, num_nodes: int) -> None:
        nodes = [node(f"{pool}{place}", host_gib=260) for pool in "rt" for place in range(num_nodes)]
        self.scheduler = Scheduler(cluster(*nodes, switch=SwitchCost(rollout_seconds=1.0, training_seconds=2.0)))
        self.now = 0
        self.send(ControllerStarted(epoch=1))
        for one in nodes:
            self.send(AgentReported(epoch=1, node=one))

    @property
    def state(self) -> ClusterState:
        return self.scheduler.state

    def send(self, event: object) -> None:
        self.now += 1
        self.scheduler.handle(msgspec.structs.replace(event, at=self.now))

    def end(self, name: str) -> None:
        record = self.state.jobs[name]
        if record.pin is None:
            return
        nodes = dict.fromkeys(record.pin.nodes(PoolKind.ROLLOUT) + record.pin.nodes(PoolKind.TRAINING))
        self.send(JobCancelled(job=name))
        for one in nodes:
            self.send(DeathConfirmed(job=name, attempt=1, node=one))


def in_words(decision: object) -> object:
    """A decision as plain data."""
    return msgspec.to_builtins(decision)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 5), steps, arrivals)
def test_all_groups_at_once_are_judged_as_one_after_the_other(num_nodes: int, steps: list, probe: JobSpec):
    driver = Driver(num_nodes)
    for place, (spec, leaver, leaves) in enumerate(steps):
        driver.send(JobSubmitted(spec=msgspec.structs.replace(spec, name=f"j{place}")))
        if leaves and f"j{leaver}" in driver.state.jobs:
            driver.end(f"j{leaver}")
        asked = msgspec.structs.replace(probe, name="probe")
        slow = first_admitted(driver.state, candidates(driver.state, asked), asked)
        assert in_words(weave_paper.choose(driver.state, asked)) == in_words(slow)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 4), steps, st.integers(0, 3))
def test_the_index_that_followed_every_fold_is_the_one_made_anew(num_nodes: int, steps: list, lost: int):
    driver = Driver(num_nodes)
    for place, (spec, leaver, leaves) in enumerate(steps):
        driver.send(JobSubmitted(spec=msgspec.structs.replace(spec, name=f"j{place}")))
        if leaves and f"j{leaver}" in driver.state.jobs:
            driver.end(f"j{leaver}")
        if place == lost:
            driver.send(NodeLost(node="t0"))
        followed, anew = index_of(driver.state), ClusterIndex()
        everything = Changed()
        everything.add_all(driver.state)
        anew.refresh(driver.state, everything)
        assert followed.queue() == anew.queue()
        assert [list(followed.catalog.free(pool)) for pool in PoolKind] == [
            list(anew.catalog.free(pool)) for pool in PoolKind
        ]
        assert {n: followed.resident_bytes(n) for n in driver.state.nodes} == {
            n: anew.resident_bytes(n) for n in driver.state.nodes
        }
        assert rows(followed) == rows(anew)


def rows(index: ClusterIndex) -> dict[str, object]:
    """The table's rows by group, without padding."""
    table = index.table
    found = {}
    for row in np.flatnonzero(table["alive"]):
        size = int(table["num_members"][row])
        found[table.names[row]] = (
            table.closed[row],
            bool(table["odd"][row]),
            [table[name][:size, row].tolist() for name in MemberRow._fields],
            [table[f"{pool}_pair"][:size, :size, row].tolist() for pool in PoolKind],
            [column[column >= 0].tolist() for column in (table[f"{pool}_free_bytes"][:, row] for pool in PoolKind)],
            [int(table[name][row]) for name in ("num_parts", "least_allowed_us", "longest_us", "most_rollout_free")],
        )
    return found
