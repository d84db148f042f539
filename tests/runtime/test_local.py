"""Placement ``local``: one process, whose state follows the permit from the slots of one pool to those of the other."""

import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from in_process import InProcessCluster, Worker, node_of, spec_of

from weaverl.domain.cluster import PoolKind, Slot
from weaverl.domain.commands import GrantPermit
from weaverl.domain.events import PhaseEnded, SlotVacated
from weaverl.domain.jobs import PhaseKind
from weaverl.errors import DeviceMemoryError
from weaverl.runtime.device_memory import DeviceMemory
from weaverl.runtime.session import Job

torch = pytest.importorskip("torch")

R0, T0 = Slot("r0", 0), Slot("t0", 0)
STATE_BYTES = 600 * 1024
"""Of one job, on slots of 1 MiB: two do not fit."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[InProcessCluster]:
    made = InProcessCluster(tmp_path)
    yield made
    made.close()


def tensor() -> torch.Tensor:
    return torch.arange(STATE_BYTES // 4, dtype=torch.float32)


def rollout_of(job: Job):
    return job.open_phase(PhaseKind.ROLLOUT, PoolKind.ROLLOUT)


def training_of(job: Job):
    return job.open_phase(PhaseKind.TRAINING, PoolKind.TRAINING)


def held(cluster: InProcessCluster) -> tuple[int, int]:
    memory = DeviceMemory(cluster.ledger, {})
    return memory.held_bytes(R0), memory.held_bytes(T0)


def test_state_is_charged_to_the_slot_that_it_is_on(cluster):
    cluster.submit(spec_of("a", local=True))
    job = cluster.rank("a")
    state = job.load(tensor)
    for _ in range(2):
        with rollout_of(job):
            assert held(cluster) == (STATE_BYTES, 0)
        assert held(cluster) == (STATE_BYTES, 0)
        with training_of(job):
            assert held(cluster) == (0, STATE_BYTES)
        assert held(cluster) == (0, STATE_BYTES)
    assert torch.equal(state, tensor())


def test_rollout_slots_are_reported_clean_before_training_slots_are_filled(cluster):
    cluster.submit(spec_of("a", local=True))
    job = cluster.rank("a")
    job.load(tensor)
    with rollout_of(job):
        pass
    DeviceMemory(cluster.ledger, {}).reserve(T0, STATE_BYTES, "somebody")
    with pytest.raises(DeviceMemoryError, match="on t0:0"), training_of(job):
        raise AssertionError("the body must not run")
    assert held(cluster) == (0, STATE_BYTES)
    rollout, training = cluster.commands(GrantPermit)[1:]
    cluster.until(lambda: any(ended.token == training.token for ended in cluster.told(PhaseEnded)))
    kinds = [(kind, token) for kind, _, token in cluster.story()]
    assert kinds[-2:] == [(SlotVacated.__name__, rollout.token), (PhaseEnded.__name__, training.token)]
    assert cluster.told(SlotVacated)[0].report.saved_bytes == STATE_BYTES


def test_two_local_jobs_are_woven_on_devices_that_hold_only_one_of_them(cluster):
    cluster.submit(spec_of("a", local=True), spec_of("b", local=True))
    start = threading.Barrier(2)

    def iterations(name: str) -> torch.Tensor:
        job = cluster.rank(name)
        state = job.load(tensor)
        start.wait(5)
        for _ in range(3):
            with rollout_of(job):
                state += 1
            with training_of(job):
                state *= 2
        with rollout_of(job):
            last = state.clone()
        cluster.end(name)
        return last

    expected = (((tensor() + 1) * 2 + 1) * 2 + 1) * 2
    for worker in [Worker(lambda name=name: iterations(name)) for name in "ab"]:
        assert torch.equal(worker.result(), expected)
    memory = DeviceMemory(cluster.ledger, {})
    assert (memory.peak_bytes(R0), memory.peak_bytes(T0)) == (STATE_BYTES, STATE_BYTES)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs, one a pool")
def test_all_threads_follow_the_permit_to_the_cpus_of_its_slots(tmp_path):
    before = os.sched_getaffinity(0)
    first, second, *_ = sorted(before)
    cluster = InProcessCluster(tmp_path, node_of("r0", cpus=(first,)), node_of("t0", cpus=(second,)))
    cluster.submit(spec_of("a", local=True))
    job = cluster.rank("a")
    stop = threading.Event()
    other = threading.Thread(target=stop.wait)
    other.start()
    try:
        for phase, cpu in ((rollout_of, first), (training_of, second), (rollout_of, first)):
            with phase(job):
                assert os.sched_getaffinity(0) == {cpu}
                assert os.sched_getaffinity(other.native_id) == {cpu}
    finally:
        stop.set()
        for thread in Path("/proc/self/task").iterdir():
            with suppress(ProcessLookupError):
                os.sched_setaffinity(int(thread.name), before)
        cluster.close()
