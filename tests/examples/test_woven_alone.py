"""The woven script by hand, without a controller: a plain run, which observe mode can measure."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import plain  # noqa: E402
import woven  # noqa: E402
from weaverl.cli.observed import observed_profiles, observed_timeline  # noqa: E402
from weaverl.cli.pictures import report  # noqa: E402
from weaverl.domain.jobs import PhaseKind  # noqa: E402
from weaverl.runtime import session  # noqa: E402


@pytest.fixture(autouse=True, scope="module")
def torch_as_before() -> Iterator[None]:
    num_threads = torch.get_num_threads()
    yield
    torch.set_num_threads(num_threads)
    torch.set_flush_denormal(False)


def result_of(script, out: Path, monkeypatch, *, iterations: int, staleness: int = 0) -> dict[str, object]:
    """What a script's ``main`` writes, in this process and as a job of its own."""
    arguments = ["--preset", "tiny", "--seed", "3", "--iterations", str(iterations), "--out", str(out)]
    arguments += ["--staleness", str(staleness)]
    monkeypatch.setattr("sys.argv", [script.__file__, *arguments])
    monkeypatch.setattr(session._session, "job", None)
    script.main()
    written = msgspec.json.decode((out / "result.json").read_bytes())
    return {key: written[key] for key in ("rewards", "losses", "weights_sha256")}


def test_by_hand_the_woven_script_gives_the_bits_of_the_plain_one(tmp_path, monkeypatch):
    expected = result_of(plain, tmp_path / "plain", monkeypatch, iterations=4)
    assert result_of(woven, tmp_path / "woven", monkeypatch, iterations=4) == expected
    assert not session._session.job.is_woven


class CutOffError(Exception):
    """The process ends here."""


@pytest.mark.parametrize("last", [0, 2])
def test_a_step_off_policy_that_goes_on_from_a_checkpoint_it_gives_the_bits_of_the_plain_one(
    last: int, tmp_path, monkeypatch
):
    expected = result_of(plain, tmp_path / "plain", monkeypatch, iterations=5, staleness=1)
    assert expected != result_of(plain, tmp_path / "plain", monkeypatch, iterations=5)
    monkeypatch.setenv("WEAVERL_CHECKPOINT_DIRECTORY", str(tmp_path / "checkpoints"))
    keep = woven.keep

    def cut_off(workers, iteration, history):
        keep(workers, iteration, history)
        if iteration == last:
            raise CutOffError

    with monkeypatch.context() as until, pytest.raises(CutOffError):
        until.setattr(woven, "keep", cut_off)
        result_of(woven, tmp_path / "woven", until, iterations=5, staleness=1)
    assert result_of(woven, tmp_path / "woven", monkeypatch, iterations=5, staleness=1) == expected


def test_observed_it_writes_its_phases_and_they_give_a_page_and_a_profile(tmp_path, monkeypatch, capsys):
    seen = tmp_path / "seen"
    monkeypatch.setenv("WEAVERL_MODE", "observe")
    monkeypatch.setenv("WEAVERL_OBSERVE_DIR", str(seen))
    result_of(woven, tmp_path / "woven", monkeypatch, iterations=3)
    file = observed_timeline(seen)
    ran = [(one.phase, one.iteration) for one in file.timeline.intervals]
    each = (PhaseKind.ROLLOUT, PhaseKind.TRAINING, PhaseKind.SYNC)
    assert ran == [(PhaseKind.LOADING, 0)] * 2 + [(phase, number) for number in range(3) for phase in each]
    tokens = {one.tokens for one in file.timeline.intervals if one.phase is PhaseKind.ROLLOUT}
    assert tokens == {8 * 8 * 8}
    profile = observed_profiles(file)["job"]
    assert 0 < profile.rollout_mean_seconds <= profile.rollout_max_seconds and profile.training_seconds > 0
    report(seen, tmp_path / "page.html")
    assert "# for the job file of job\nprofile:\n  rollout_max: " in capsys.readouterr().out
