"""State that comes to the slots before its job asks, with the real runtime: whose it is, where, and when not."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from in_process import InProcessCluster, Worker, node_of, spec_of

from weaverl.domain.cluster import PoolKind, Slot
from weaverl.domain.commands import GrantPermit, PrepareSlot, VacateSlot
from weaverl.domain.events import (
    PermitRequested,
    PhaseEnded,
    RankId,
    RankRegistered,
    SlotPrepared,
    SlotVacated,
    Token,
)
from weaverl.domain.jobs import DeviceMemory as Needs
from weaverl.domain.jobs import DeviceNeed, PhaseKind
from weaverl.errors import FencedError
from weaverl.runtime.device_memory import DeviceMemory
from weaverl.scheduling.state import Parameters

torch = pytest.importorskip("torch")

T0 = Slot("t0", 0)
STATE_BYTES = 600 * 1024
"""Of one job's training state, on slots of 1 MiB: two do not fit, unless the slot is larger."""
WEAVE = Parameters(policy="weave")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[InProcessCluster]:
    made = InProcessCluster(tmp_path, parameters=WEAVE)
    yield made
    made.close()


def tensor() -> torch.Tensor:
    return torch.arange(STATE_BYTES // 4, dtype=torch.float32)


class Trained:
    """A job of two roles, played by the test; its training state goes where it is told."""

    def __init__(self, cluster: InProcessCluster, name: str) -> None:
        self.driver = cluster.rank(name, "driver")
        self.rollout_job = cluster.rank(name, "rollout")
        self.training_job = cluster.rank(name, "training")
        self.state = self.training_job.load(tensor)

    def rollout(self):
        return self.rollout_job.open_phase(PhaseKind.ROLLOUT, PoolKind.ROLLOUT)

    def training(self):
        return self.training_job.open_phase(PhaseKind.TRAINING, PoolKind.TRAINING)

    def iterate(self) -> None:
        with self.rollout():
            pass
        with self.training():
            self.state += 1


def two(cluster: InProcessCluster, **more: object) -> tuple[Trained, Trained]:
    """Both have had each phase once."""
    specs = [msgspec.structs.replace(spec_of(name), **more) for name in "ab"]
    cluster.submit(*specs)
    jobs = Trained(cluster, "a"), Trained(cluster, "b")
    for job in jobs:
        job.iterate()
    return jobs


def held(cluster: InProcessCluster) -> int:
    return DeviceMemory(cluster.ledger, {}).held_bytes(T0)


def prepared(cluster: InProcessCluster, name: str) -> list[PrepareSlot]:
    """What a job's training role has restored ahead so far."""
    answered = {event.token for event in cluster.told(SlotPrepared)}
    return [
        one
        for one in cluster.commands(PrepareSlot)
        if one.job == name and one.token in answered and one.role == "training"
    ]


def test_state_is_on_the_slots_before_its_job_asks_and_the_phase_restores_nothing(cluster):
    a, _ = two(cluster)
    with a.rollout():
        cluster.until(lambda: bool(prepared(cluster, "a")))
        assert held(cluster) == STATE_BYTES
    with a.training():
        assert torch.equal(a.state, tensor() + 1)
    cluster.until(lambda: len([one for one in cluster.told(PhaseEnded) if one.rank.role == "training"]) >= 5)
    restores = [one for one in cluster.told(SlotPrepared) if one.rank == RankId("a", 1, "training", 0)]
    assert sum(one.report.restored_bytes for one in restores) >= STATE_BYTES
    last = [one for one in cluster.told(PhaseEnded) if one.rank.job == "a" and one.phase is PhaseKind.TRAINING][-1]
    assert last.report.restored_bytes == 0


def test_jobs_that_take_turns_compute_what_they_compute_alone_on_slots_that_hold_only_one(cluster):
    jobs = two(cluster)

    def iterations(job: Trained, name: str) -> torch.Tensor:
        for _ in range(6):
            with job.rollout():
                pass
            with job.training():
                job.state *= 2
                job.state += 1
                last = job.state.clone()
        cluster.end(name)
        return last

    expected = tensor() + 1
    for _ in range(6):
        expected = expected * 2 + 1
    workers = [Worker(lambda job=job, name=name: iterations(job, name)) for job, name in zip(jobs, "ab", strict=True)]
    for worker in workers:
        assert torch.equal(worker.result(), expected)
    assert DeviceMemory(cluster.ledger, {}).peak_bytes(T0) == STATE_BYTES


def test_who_asks_first_gets_the_slots_when_the_state_of_the_other_is_off_them(cluster):
    a, b = two(cluster)
    with a.rollout():
        cluster.until(lambda: bool(prepared(cluster, "a")))
        with b.training():
            assert held(cluster) == STATE_BYTES
            assert torch.equal(b.state, tensor() + 1)
    token = prepared(cluster, "a")[0].token
    kinds = [kind for kind, _, of in cluster.story() if of == token]
    assert kinds == ["SlotPrepared", "VacateSlot", "SlotVacated"]


def with_need(working: int) -> dict[str, object]:
    return {"device_memory": Needs(training=DeviceNeed(state_bytes=STATE_BYTES, working_bytes=working))}


@pytest.mark.parametrize("fits", [True, False])
def test_beside_a_holder_state_is_restored_where_the_device_has_room_for_both(tmp_path: Path, fits: bool):
    room = 3 * STATE_BYTES if fits else 3 * STATE_BYTES - 1
    cluster = InProcessCluster(tmp_path, node_of("r0"), node_of("t0", device_memory_bytes=room), parameters=WEAVE)
    try:
        a, b = two(cluster, **with_need(STATE_BYTES))
        before = len(prepared(cluster, "b"))
        with a.training():
            waiting = Worker(lambda: trained(b))
            if fits:
                cluster.until(lambda: len(prepared(cluster, "b")) > before and held(cluster) == 2 * STATE_BYTES)
            else:
                cluster.until(lambda: any(one.job == "b" for one in _waiting(cluster)))
                assert held(cluster) == STATE_BYTES
        assert torch.equal(waiting.result(), tensor() + 1)
    finally:
        cluster.close()


def trained(job: Trained) -> torch.Tensor:
    with job.training():
        return job.state.clone()


def _waiting(cluster: InProcessCluster) -> list[PermitRequested]:
    granted = {(one.job, one.phase, one.iteration) for one in cluster.commands(GrantPermit)}
    return [one for one in cluster.told(PermitRequested) if (one.job, one.phase, one.iteration) not in granted]


def forged(counter: int) -> PrepareSlot:
    return PrepareSlot(
        job="a", attempt=1, role="training", token=Token(1, counter), pool=PoolKind.TRAINING, slots=(T0,), ranks=1
    )


def answer(cluster: InProcessCluster, command: PrepareSlot) -> str:
    """How a rank answers a command that nobody decided on."""
    cluster.forge(RankId("a", 1, "training", 0), command)
    events = (SlotPrepared, SlotVacated)

    def answers() -> list[str]:
        return [type(one).__name__ for kind in events for one in cluster.told(kind) if one.token == command.token]

    cluster.until(lambda: bool(answers()))
    return answers()[0]


def alone(cluster: InProcessCluster) -> Trained:
    cluster.submit(spec_of("a"))
    job = Trained(cluster, "a")
    job.iterate()
    return job


def test_an_attempt_that_was_given_up_restores_nothing(cluster):
    job = alone(cluster)
    job.training_job.residency.save()
    cluster.revoke("a")
    assert answer(cluster, forged(1_000)) == "SlotVacated"
    assert held(cluster) == 0
    with pytest.raises(FencedError), job.training():
        raise AssertionError("the body must not run")


def test_while_a_phase_runs_and_under_an_older_token_nothing_is_restored(cluster):
    job = alone(cluster)
    with job.training():
        assert answer(cluster, forged(1_000)) == "SlotVacated"
    assert answer(cluster, forged(0)) == "SlotVacated"


def test_state_that_has_no_room_stays_where_it_is_and_the_job_goes_on(cluster):
    job = alone(cluster)
    job.training_job.residency.save()
    memory = DeviceMemory(cluster.ledger, {})
    memory.reserve(T0, STATE_BYTES, "somebody")
    assert answer(cluster, forged(1_000)) == "SlotVacated"
    memory.release(T0, STATE_BYTES, "somebody")
    with job.training():
        assert torch.equal(job.state, tensor() + 1)


def test_a_rank_says_that_it_knows_how(cluster):
    alone(cluster)
    assert all(one.prepares for one in cluster.told(RankRegistered))
    assert not cluster.commands(VacateSlot)
