"""The decorator: what it wraps stays what it was, and runs as one phase."""

import asyncio
import functools
import inspect
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from in_process import InProcessCluster, spec_of

import weaverl as weave
from weaverl.domain.events import PermitRequested, PhaseEnded
from weaverl.domain.jobs import PhaseKind
from weaverl.errors import NestedPhaseError, PhaseError
from weaverl.runtime import session
from weaverl.runtime.session import Job
from weaverl.runtime.unwoven import PlainCalls

ROLLOUT, TRAINING = PhaseKind.ROLLOUT, PhaseKind.TRAINING


@pytest.fixture
def alone(monkeypatch) -> Job:
    """This process, without a controller."""
    monkeypatch.setattr(session._session, "job", Job(None, PlainCalls()))
    return session._session.job


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch) -> Iterator[InProcessCluster]:
    """This process as the one rank of a local job."""
    made = InProcessCluster(tmp_path)
    made.submit(spec_of("a", local=True))
    monkeypatch.setattr(session._session, "job", made.rank("a"))
    yield made
    made.close()


def ended(cluster: InProcessCluster) -> list[tuple[PhaseKind, int, bool]]:
    return [(event.phase, event.iteration, event.failed) for event in cluster.told(PhaseEnded)]


def test_a_phase_keeps_name_docstring_signature_and_result(alone):
    @weave.phase("rollout")
    def rollout(prompts: list[str], *, limit: int = 3) -> int:
        """Sample."""
        return len(prompts) + limit

    assert (rollout.__name__, rollout.__doc__) == ("rollout", "Sample.")
    assert str(inspect.signature(rollout)) == "(prompts: list[str], *, limit: int = 3) -> int"
    assert rollout(["a", "b"]) == 5
    assert rollout(prompts=["a"], limit=1) == 2


def test_methods_class_methods_and_static_methods_are_phases_wherever_the_decorator_stands(cluster):
    class Trainer:
        rate = 2

        @weave.phase("training")
        def method(self, value):
            return self.rate * value

        @classmethod
        @weave.phase("training")
        def of_class(cls, value=5):
            return cls.rate * value

        @weave.phase("training")
        @staticmethod
        def static(value):
            return value

        @weave.phase("training")
        @classmethod
        def of_class_below(cls, value):
            return cls.rate * value

    assert Trainer().method(3) == 6
    assert (Trainer.of_class(), Trainer.static(7), Trainer.of_class_below(8)) == (10, 7, 16)
    assert ended(cluster) == [(TRAINING, iteration, False) for iteration in range(4)]


def test_partials_and_objects_that_can_be_called_are_phases(cluster):
    class Sampler:
        def __call__(self, value):
            return value + 1

    assert weave.phase("rollout")(functools.partial(max, 3))(5) == 5
    assert weave.phase("rollout")(Sampler())(5) == 6
    assert ended(cluster) == [(ROLLOUT, 0, False), (ROLLOUT, 1, False)]


def test_a_coroutine_is_a_phase_and_stays_a_coroutine_function(cluster):
    @weave.phase("rollout")
    async def rollout(value: int) -> int:
        await asyncio.sleep(0)
        return value

    assert inspect.iscoroutinefunction(rollout)
    assert asyncio.run(rollout(4)) == 4
    assert ended(cluster) == [(ROLLOUT, 0, False)]


def test_generators_are_refused(alone):
    def stream():
        yield 1

    async def async_stream():
        yield 1

    class Streamer:
        def __call__(self):
            yield 1

    for generator in (stream, async_stream, Streamer()):
        with pytest.raises(PhaseError, match="is a generator, which ends when its reader wants"):
            weave.phase("rollout")(generator)


def test_what_has_yet_to_run_when_the_phase_is_over_is_refused(alone):
    async def sample() -> int:
        return 1

    hidden = weave.phase("rollout")(lambda: sample())
    with pytest.raises(PhaseError, match="returned a coroutine, which runs after the phase"):
        hidden()
    with pytest.raises(PhaseError, match="returned a generator"):
        weave.phase("rollout")(lambda: (item for item in "ab"))()


def test_an_unknown_kind_is_refused():
    with pytest.raises(PhaseError, match="phase kind is 'reward': it must be 'rollout' or 'training'"):
        weave.phase("reward")


def test_a_phase_that_raises_gives_its_permit_back_and_passes_the_error_on(cluster):
    @weave.phase("training")
    def train():
        raise KeyError("loss")

    @weave.phase("rollout")
    async def rollout():
        raise KeyError("engine")

    with pytest.raises(KeyError, match="loss"):
        train()
    with pytest.raises(KeyError, match="engine"):
        asyncio.run(rollout())
    assert ended(cluster) == [(TRAINING, 0, True), (ROLLOUT, 0, True)]


def test_a_phase_inside_one_of_the_same_pool_is_a_plain_call(cluster):
    @weave.phase("rollout")
    def inner():
        return 1

    @weave.phase("rollout")
    def outer():
        return inner() + inner()

    @weave.phase("rollout")
    async def outer_coroutine():
        return outer() + await asyncio.to_thread(inner)

    assert outer() == 2
    assert asyncio.run(outer_coroutine()) == 3
    assert ended(cluster) == [(ROLLOUT, 0, False), (ROLLOUT, 1, False)]


def test_a_phase_inside_one_of_the_other_pool_is_refused_and_the_outer_permit_survives(cluster):
    @weave.phase("training")
    def train():
        return 1

    @weave.phase("rollout")
    def rollout():
        with pytest.raises(NestedPhaseError, match="a training phase was called inside a phase of the rollout pool"):
            train()
        assert not cluster.told(PhaseEnded)
        return 2

    assert rollout() == 2
    assert train() == 1
    assert ended(cluster) == [(ROLLOUT, 0, False), (TRAINING, 0, False)]
    assert len(cluster.told(PermitRequested)) == 2


def test_the_hook_totals_reach_the_report(cluster):
    @weave.phase("rollout")
    def rollout():
        for done in (1, 2, 3):
            weave.runtime_hook(done=done, total=4, tokens=10 * done)

    @weave.phase("rollout")
    async def rollout_with_callbacks():
        loop = asyncio.get_running_loop()  # an executor's thread inherits no context
        await loop.run_in_executor(None, lambda: weave.runtime_hook(done=8, total=8, tokens=80))

    weave.runtime_hook(done=99, total=99, tokens=99)
    rollout()
    asyncio.run(rollout_with_callbacks())
    reports = [event.report for event in cluster.told(PhaseEnded)]
    assert [(report.samples, report.tokens) for report in reports] == [(3, 30), (8, 80)]


def test_the_hook_does_nothing_in_a_process_that_is_in_no_job(monkeypatch):
    monkeypatch.setattr(session._session, "job", None)
    weave.runtime_hook(done=1, total=1)
    assert session._session.job is None


def test_without_a_controller_a_phase_costs_microseconds(alone):
    @weave.phase("rollout")
    def rollout():
        return None

    fastest = min(_seconds(rollout, 1000) for _ in range(5)) / 1000
    assert fastest < 50e-6


def _seconds(call, times: int) -> float:
    started = time.perf_counter()
    for _ in range(times):
        call()
    return time.perf_counter() - started
