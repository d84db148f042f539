"""A process in its job: state loaded and kept, one phase at a time whatever threads and tasks do."""

import asyncio
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import msgspec
import pytest
from in_process import MIB, InProcessCluster, Worker, spec_of

from weaverl.domain.cluster import PoolKind, Slot
from weaverl.domain.commands import GrantPermit, VacateSlot
from weaverl.domain.events import PermitRequested, PhaseEnded, PhaseMeasured, SlotVacated
from weaverl.domain.jobs import PhaseKind
from weaverl.errors import DeviceMemoryError, HostMemoryError, NestedPhaseError, PhaseError
from weaverl.runtime import session
from weaverl.runtime.device_memory import DeviceMemory
from weaverl.runtime.session import Job
from weaverl.runtime.unwoven import PlainCalls

torch = pytest.importorskip("torch")
from weaverl.runtime.meeting import Meeting  # noqa: E402

LOADING, ROLLOUT, TRAINING = PhaseKind.LOADING, PhaseKind.ROLLOUT, PhaseKind.TRAINING
R0, T0 = Slot("r0", 0), Slot("t0", 0)
STATE_BYTES = 600 * 1024
"""Of one job, on slots of 1 MiB: two do not fit."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[InProcessCluster]:
    made = InProcessCluster(tmp_path)
    yield made
    made.close()


def tensor(nbytes: int = STATE_BYTES) -> torch.Tensor:
    return torch.arange(nbytes // 4, dtype=torch.float32)


def is_away(state: torch.Tensor) -> bool:
    return state.untyped_storage().nbytes() == 0


def rollout_of(job: Job):
    return job.open_phase(ROLLOUT, PoolKind.ROLLOUT)


def training_of(job: Job):
    return job.open_phase(TRAINING, PoolKind.TRAINING)


def held_bytes(cluster: InProcessCluster, slot: Slot) -> int:
    return DeviceMemory(cluster.ledger, {}).held_bytes(slot)


def test_state_is_loaded_under_a_permit_and_charged_to_its_slot(cluster):
    cluster.submit(spec_of("a"))
    job = cluster.rank("a", "training")
    held = []

    def build(nbytes: int, *, scale: float) -> torch.Tensor:
        held.append(cluster.grants())
        return tensor(nbytes) * scale

    state = job.load(build, STATE_BYTES, scale=2.0)
    assert held == [[("a", LOADING, 0)]]
    assert state[1] == 2.0
    assert held_bytes(cluster, T0) == STATE_BYTES


def test_state_moves_between_two_jobs_on_a_device_that_holds_only_one_of_them(cluster):
    cluster.submit(spec_of("a"), spec_of("b"))
    start = threading.Barrier(2)

    def iterations(name: str) -> torch.Tensor:
        job = cluster.rank(name, "rollout")
        state = job.load(tensor)
        start.wait(5)
        for _ in range(3):
            with rollout_of(job):
                assert not is_away(state)
                state += 1
        with rollout_of(job):
            last = state.clone()
        cluster.end(name)
        return last

    workers = [Worker(lambda name=name: iterations(name)) for name in "ab"]
    for worker in workers:
        assert torch.equal(worker.result(), tensor() + 3)
    assert DeviceMemory(cluster.ledger, {}).peak_bytes(R0) == STATE_BYTES
    restored = {event.report.restored_bytes for event in cluster.told(PhaseEnded) if event.phase is ROLLOUT}
    assert restored <= {0, STATE_BYTES} and STATE_BYTES in restored


def test_state_lingers_outside_of_phases_and_leaves_when_another_job_wants_the_slot(cluster):
    cluster.submit(spec_of("a"), spec_of("b"))
    first, second = cluster.rank("a", "rollout"), cluster.rank("b", "rollout")
    state = first.load(tensor)
    with rollout_of(first):
        pass
    assert not is_away(state) and held_bytes(cluster, R0) == STATE_BYTES
    with rollout_of(second):
        assert is_away(state) and held_bytes(cluster, R0) == 0
    demand, answer = cluster.commands(VacateSlot)[0], cluster.told(SlotVacated)[0]
    assert demand.token == answer.token == cluster.commands(GrantPermit)[1].token
    assert answer.report.saved_bytes == STATE_BYTES


def test_state_does_not_leave_while_its_phase_runs(cluster):
    cluster.submit(spec_of("a"), spec_of("b"))
    first, second = cluster.rank("a", "rollout"), cluster.rank("b", "rollout")
    state = first.load(tensor)

    def other() -> bool:
        with rollout_of(second):
            return is_away(state)

    with rollout_of(first):
        waiting = Worker(other)
        cluster.until(lambda: any(event.job == "b" for event in cluster.told(PermitRequested)))
        assert not cluster.commands(VacateSlot)
        assert not is_away(state) and waiting.is_alive()
    assert waiting.result() is True


def test_state_kept_without_load_is_parked_off_the_device_until_the_next_phase(cluster):
    cluster.submit(spec_of("a"))
    job = cluster.rank("a", "rollout")
    state = tensor()
    job.keep(state)
    assert is_away(state) and held_bytes(cluster, R0) == 0
    with rollout_of(job):
        assert torch.equal(state, tensor())
        assert held_bytes(cluster, R0) == STATE_BYTES
        job.keep(more := tensor(4096))
        assert not is_away(more) and held_bytes(cluster, R0) == STATE_BYTES + 4096


def test_state_that_outgrew_its_slot_is_saved_and_the_permit_goes_back(cluster):
    cluster.submit(spec_of("a"), spec_of("b"))
    job, other = cluster.rank("a", "rollout"), cluster.rank("b", "rollout")
    state = {"model": job.load(tensor)}
    job.keep(state)
    with pytest.raises(DeviceMemoryError, match=r"needs 0\.6 MiB on r0:0, 0\.4 MiB free"), rollout_of(job):
        state["moments"] = tensor()
    assert is_away(state["model"]) and held_bytes(cluster, R0) == 0
    last = cluster.told(PhaseEnded)[-1]
    assert (last.vacated, last.failed) == (True, True)
    with rollout_of(other):
        pass


def test_a_permit_whose_state_does_not_come_goes_back(cluster):
    cluster.submit(spec_of("a"))
    job = cluster.rank("a", "rollout")
    state = tensor()
    job.keep(state)
    somebody = DeviceMemory(cluster.ledger, {"r0": MIB})
    somebody.reserve(R0, STATE_BYTES, "somebody")
    with pytest.raises(DeviceMemoryError), rollout_of(job):
        raise AssertionError("the body must not run")
    assert [(event.vacated, event.failed) for event in cluster.told(PhaseEnded)] == [(True, True)]
    somebody.release(R0, STATE_BYTES, "somebody")
    with rollout_of(job):
        assert torch.equal(state, tensor())


def test_state_that_cannot_be_saved_stays_on_its_slot_which_goes_to_nobody(cluster):
    cluster.submit(spec_of("a"), spec_of("b"))
    job, other = cluster.rank("a", "rollout"), cluster.rank("b", "rollout")
    state = job.load(tensor)
    with rollout_of(other):
        pass
    with pytest.raises(HostMemoryError), rollout_of(job):
        job._conductor.residency._host_limit_bytes = 16
    last = cluster.told(PhaseEnded)[-1]
    assert (last.rank.job, last.vacated, last.failed) == ("a", False, True)
    Worker(lambda: rollout_of(other).__enter__())
    cluster.until(lambda: job._conductor._client._failure is not None)
    with pytest.raises(HostMemoryError), rollout_of(job):
        pass
    assert not is_away(state) and cluster.grants()[-1] == ("a", ROLLOUT, 0)


def test_load_inside_a_phase_of_its_pool_runs_under_that_permit(cluster):
    cluster.submit(spec_of("a"))
    job = cluster.rank("a", "rollout")
    with rollout_of(job):
        state = job.load(tensor)
        assert held_bytes(cluster, R0) == STATE_BYTES
    assert cluster.grants() == [("a", ROLLOUT, 0)] and not is_away(state)


def test_a_phase_inside_load_does_not_wait_for_a_second_permit(cluster):
    cluster.submit(spec_of("a", local=True))
    job = cluster.rank("a")

    def build() -> torch.Tensor:
        with rollout_of(job), pytest.raises(NestedPhaseError), training_of(job):
            pass
        return tensor()

    job.load(build)
    assert cluster.grants() == [("a", LOADING, 0)]


def test_a_phase_of_the_other_pool_is_refused_in_a_role_without_slots_there(cluster):
    cluster.submit(spec_of("a"))
    job = cluster.rank("a", "training")
    with pytest.raises(PhaseError, match="a rollout phase was called in the training role"), rollout_of(job):
        pass
    with training_of(job):
        pass


def test_weights_asked_for_before_any_state_find_it_later_while_it_is_away(cluster):
    cluster.submit(spec_of("a", local=True))
    job = cluster.rank("a")
    assert job.weights.version == 0
    source, target = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    expected = source.weight.detach().to(torch.bfloat16).float().clone()
    job.keep((source, target))
    with rollout_of(job):
        pass
    with training_of(job):
        pass
    assert job.weights.push(source).version == 1
    job.weights.pull(target)
    with rollout_of(job):
        assert torch.equal(target.weight, expected)
    assert [event.iteration for event in cluster.told(PhaseMeasured)] == [0]


def test_a_sync_before_the_first_training_is_of_the_cold_start_and_of_no_iteration(cluster):
    cluster.submit(spec_of("a", local=True))
    job = cluster.rank("a")
    job.resume_from(7)
    source, target = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    job.keep((source, target))
    for open_phase in (None, rollout_of, training_of):
        with open_phase(job) if open_phase else nullcontext():
            pass
        job.weights.push(source)
        job.weights.pull(target)
    assert [event.iteration for event in cluster.told(PhaseMeasured)] == [7]


def test_iterations_go_on_where_a_checkpoint_left_off(cluster):
    cluster.submit(spec_of("a", local=True))
    job = cluster.rank("a")
    job.resume_from(7)
    with rollout_of(job):
        pass
    with training_of(job):
        pass
    with rollout_of(job):
        pass
    assert cluster.grants() == [("a", ROLLOUT, 7), ("a", TRAINING, 7), ("a", ROLLOUT, 8)]


@pytest.mark.parametrize("open_other", [rollout_of, training_of])
def test_a_phase_in_a_second_thread_is_refused_while_one_is_open(cluster, open_other):
    cluster.submit(spec_of("a", local=True))
    job = cluster.rank("a")
    with rollout_of(job):
        other = Worker(lambda: open_other(job).__enter__())
        with pytest.raises(PhaseError, match="while rollout 0 is open in another thread or task"):
            other.result()
    with open_other(job):
        pass
    assert len(cluster.grants()) == 2


def test_threads_may_take_turns(cluster):
    cluster.submit(spec_of("a", local=True))
    job = cluster.rank("a")
    state = tensor()
    job.keep(state)

    def train() -> None:
        with training_of(job):
            state.add_(1)

    for _ in range(3):
        with rollout_of(job):
            state.add_(1)
        Worker(train).result()
    with rollout_of(job):
        assert torch.equal(state, tensor() + 6)


def test_the_event_loop_goes_on_while_a_coroutine_waits_for_its_permit(cluster):
    cluster.submit(spec_of("a"), spec_of("b"))
    job, other = cluster.rank("a", "rollout"), cluster.rank("b", "rollout")

    async def main() -> list[str]:
        story: list[str] = []

        async def rollout() -> None:
            async with job.open_phase_off_loop(ROLLOUT, PoolKind.ROLLOUT):
                story.append("rollout")

        with rollout_of(other):
            task = asyncio.create_task(rollout())
            while not any(event.job == "a" for event in cluster.told(PermitRequested)):
                await asyncio.sleep(0.001)
            story.append("the loop goes on")
        await task
        return story

    assert asyncio.run(asyncio.wait_for(main(), 10)) == ["the loop goes on", "rollout"]


def test_two_coroutines_of_one_process_are_not_in_phases_at_once(cluster):
    cluster.submit(spec_of("a", local=True))
    job = cluster.rank("a")

    async def run(kind: PhaseKind, pool: PoolKind) -> str:
        async with job.open_phase_off_loop(kind, pool):
            await asyncio.sleep(0.01)
            return str(kind)

    async def main() -> list[object]:
        both = (run(ROLLOUT, PoolKind.ROLLOUT), run(TRAINING, PoolKind.TRAINING))
        return await asyncio.gather(*both, return_exceptions=True)

    done, refused = asyncio.run(main())
    assert done == "rollout"
    assert isinstance(refused, PhaseError) and "is open in another thread or task" in str(refused)


def test_a_task_that_outlives_the_phase_it_was_made_in_needs_a_permit_of_its_own(cluster):
    cluster.submit(spec_of("a", local=True))
    job = cluster.rank("a")

    async def train() -> None:
        async with job.open_phase_off_loop(TRAINING, PoolKind.TRAINING):
            pass

    async def main() -> None:
        async with job.open_phase_off_loop(ROLLOUT, PoolKind.ROLLOUT):
            later = asyncio.create_task(_after(gate := asyncio.Event(), train))
        gate.set()
        await later

    asyncio.run(main())
    assert cluster.grants() == [("a", ROLLOUT, 0), ("a", TRAINING, 0)]


async def _after(gate: asyncio.Event, work) -> None:
    await gate.wait()
    await work()


def test_a_coroutine_cancelled_while_it_waits_leaves_no_permit_behind(cluster):
    cluster.submit(spec_of("a"), spec_of("b"))
    job, other = cluster.rank("a", "rollout"), cluster.rank("b", "rollout")

    async def rollout() -> None:
        async with job.open_phase_off_loop(ROLLOUT, PoolKind.ROLLOUT):
            raise AssertionError("the body must not run")

    async def main() -> None:
        with rollout_of(other):
            task = asyncio.create_task(rollout())
            while not any(event.job == "a" for event in cluster.told(PermitRequested)):
                await asyncio.sleep(0.001)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    with rollout_of(other):
        pass
    with rollout_of(job):
        pass
    ended = [(event.rank.job, event.iteration, event.failed) for event in cluster.told(PhaseEnded)]
    assert sorted(ended) == [("a", 0, True), ("a", 1, False), ("b", 0, False), ("b", 1, False)]


def test_alone_a_job_is_every_role_and_has_nobody_to_meet():
    job = Job(None, PlainCalls())
    assert job.is_role("driver") and job.is_role("rollout") and not job.is_woven
    assert job.load(dict, [("a", 1)]) == {"a": 1}
    with pytest.raises(PhaseError, match="alone there is nobody to meet"):
        _ = job.meeting


def test_what_fails_woven_fails_alone_too():
    job = Job(None, PlainCalls())
    with rollout_of(job):
        with pytest.raises(NestedPhaseError), training_of(job):
            pass
        with pytest.raises(PhaseError):
            Worker(lambda: training_of(job).__enter__()).result()


def test_a_child_of_a_rank_does_not_write_in_its_name(cluster, monkeypatch):
    cluster.submit(spec_of("a"))
    job = cluster.rank("a", "rollout")
    monkeypatch.setenv("WEAVERL_JOINED", f"{os.getppid()} a/1/training/0")
    session._refuse_child(job._environment)
    monkeypatch.setenv("WEAVERL_JOINED", f"{os.getppid()} a/1/rollout/0")
    with pytest.raises(PhaseError, match=f"was started by process {os.getppid()}, which is a/rollout-0 already"):
        session._refuse_child(job._environment)
    job._conductor._pid = os.getppid()
    with pytest.raises(PhaseError, match="in a fork of a/rollout-0"), rollout_of(job):
        pass


def test_ranks_of_all_roles_are_numbered_in_the_order_of_the_job_file(cluster):
    cluster.submit(spec_of("a"))
    driver, training = cluster.rank("a", "driver"), cluster.rank("a", "training")
    assert (driver.meeting.rank, training.meeting.rank, training.meeting.world_size) == (0, 2, 3)
    assert driver.meeting.rank_of("rollout") == 1
    with pytest.raises(PhaseError, match="the job has no role 'judge': it has driver, rollout, training"):
        driver.meeting.rank_of("judge")


def test_a_driver_has_no_part_in_the_weight_sync(cluster):
    cluster.submit(spec_of("a"))
    driver = cluster.rank("a", "driver")
    with pytest.raises(PhaseError, match="a/driver-0 has no part in the weight sync"):
        _ = driver.weights


def test_ranks_meet_on_the_socket_that_their_agent_bound(cluster):
    cluster.submit(spec_of("a"))
    environments = [cluster.rank("a", role)._environment for role in ("driver", "rollout")]
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        place = listener.getsockname()
        serves = msgspec.structs.replace(environments[0], master=place, master_fd=os.dup(listener.fileno()))
        joins = msgspec.structs.replace(environments[1], master=place)
        server = Meeting(serves)
        server.store.set("key", "value")
        assert Meeting(joins).store.get("key") == b"value"
