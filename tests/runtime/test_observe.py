"""Observe mode: phases are measured and written down, and nothing else changes."""

import asyncio
from pathlib import Path

import msgspec
import pytest

import weaverl as weave
from weaverl.domain.cluster import PoolKind
from weaverl.domain.jobs import PhaseKind
from weaverl.runtime import session
from weaverl.runtime.observe import ObservedPhase

ROLLOUT, TRAINING = PhaseKind.ROLLOUT, PhaseKind.TRAINING


@pytest.fixture
def directory(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.setattr(session._session, "job", None)
    for variable, value in {
        "WEAVERL_MODE": "observe",
        "WEAVERL_OBSERVE_DIR": str(tmp_path / "seen"),
        "WEAVERL_JOB": "math",
        "WEAVERL_ROLE": "training",
        "RANK": "3",
    }.items():
        monkeypatch.setenv(variable, value)
    return tmp_path / "seen"


def written(directory: Path) -> list[ObservedPhase]:
    lines = [line for path in directory.iterdir() for line in path.read_bytes().splitlines()]
    return [msgspec.json.decode(line, type=ObservedPhase) for line in lines]


def test_phases_are_written_a_line_each_as_they_end(directory):
    @weave.phase("rollout")
    def rollout():
        weave.runtime_hook(done=3, total=4, tokens=30)
        return 7

    @weave.phase("training")
    async def train():
        await asyncio.sleep(0.002)

    assert rollout() == 7
    assert [phase.phase for phase in written(directory)] == [ROLLOUT]
    asyncio.run(train())
    rollout()
    first, training, second = written(directory)
    assert (first.job, first.role, first.rank, first.samples, first.tokens) == ("math", "training", 3, 3, 30)
    assert (first.iteration, training.iteration, second.iteration) == (0, 0, 1)
    assert training.body_us >= 2000
    assert first.started_at <= training.started_at <= second.started_at


def test_a_phase_that_raises_is_written_too(directory):
    with pytest.raises(ZeroDivisionError), weave.init().open_phase(ROLLOUT, PoolKind.ROLLOUT):
        raise ZeroDivisionError
    assert len(written(directory)) == 1


def test_state_stays_where_it_is_and_no_permit_is_asked(directory):
    job = weave.init()
    assert job.load(list, "ab") == ["a", "b"]
    job.keep([1])
    job.check()
    assert not job.is_woven and job.role == "training"


def test_a_job_may_have_any_name(directory, monkeypatch):
    monkeypatch.setenv("WEAVERL_JOB", "team/math")
    with weave.init().open_phase(TRAINING, PoolKind.TRAINING):
        pass
    assert written(directory)[0].job == "team/math"


def test_a_full_disk_ends_the_observation_and_not_the_job(directory, caplog):
    job = weave.init()
    with Path("/dev/full").open("ab", buffering=0) as full:
        job._conductor._observer._file = full
        for _ in range(2):
            with job.open_phase(ROLLOUT, PoolKind.ROLLOUT):
                pass
    assert caplog.text.count("so phases are no longer observed: No space left on device") == 1
