"""What observe mode wrote becomes a page, a timeline and a profile."""

from pathlib import Path

import msgspec
import pytest

from weaverl.cli.observed import observed_profiles, observed_timeline, profile_block
from weaverl.cli.pictures import report
from weaverl.config.job_file import parse_job
from weaverl.domain.cluster import Slot
from weaverl.domain.jobs import PhaseKind, PhaseProfile
from weaverl.errors import UsageError
from weaverl.reports.html import run_page
from weaverl.runtime.observe import ObservedPhase

ROLLOUT, TRAINING, SYNC, LOADING = PhaseKind.ROLLOUT, PhaseKind.TRAINING, PhaseKind.SYNC, PhaseKind.LOADING
SECOND = 1_000_000


def seen(phase: PhaseKind, iteration: int, start: float, seconds: float, **more) -> ObservedPhase:
    given = {"job": "math", "role": "run", "rank": 0, **more}
    started_at, body_us = round(start * SECOND), round(seconds * SECOND)
    return ObservedPhase(phase=phase, iteration=iteration, started_at=started_at, body_us=body_us, **given)


def iteration(number: int, start: float, rollout: float) -> list[ObservedPhase]:
    """A rollout, half a second of other work, 2 s of training and a quarter of a second of sync."""
    return [
        seen(ROLLOUT, number, start, rollout, tokens=10),
        seen(TRAINING, number, start + rollout + 0.5, 2.0),
        seen(SYNC, number, start + rollout + 2.5, 0.25, moved_bytes=8),
    ]


def write(directory: Path, name: str, *phases: ObservedPhase, tail: bytes = b"") -> None:
    lines = b"".join(msgspec.json.encode(phase) + b"\n" for phase in phases)
    (directory / f"{name}.jsonl").write_bytes(lines + tail)


def three_iterations() -> list[ObservedPhase]:
    loading = seen(LOADING, 0, 0.0, 1.0)
    return [loading, *iteration(0, 1.0, 9.0), *iteration(1, 13.0, 3.0), *iteration(2, 18.75, 5.0)]


def test_the_profile_is_that_of_warm_iterations(tmp_path):
    write(tmp_path, "a", *three_iterations())
    assert observed_profiles(observed_timeline(tmp_path)) == {
        "math": PhaseProfile(
            rollout_max_seconds=5.0,
            rollout_mean_seconds=4.0,
            rollout_cv=0.25,
            training_seconds=2.0,
            sync_seconds=0.25,
            other_seconds=0.5,
        )
    }


def test_a_job_file_takes_the_printed_profile_as_it_is(tmp_path):
    write(tmp_path, "a", *three_iterations())
    profile = observed_profiles(observed_timeline(tmp_path))["math"]
    spec = parse_job(
        "name: math\nslo: 1.5\nplacement: local\ngpus: {rollout: 1, training: 1}\n"
        "host_memory: {rollout: 1Gi, training: 1Gi}\nroles: {run: {command: python run.py}}\n" + profile_block(profile),
        directory=tmp_path,
    )
    assert spec.profile == profile


def test_odd_times_are_printed_to_the_microsecond():
    third = PhaseProfile(rollout_max_seconds=1 / 3, rollout_mean_seconds=1 / 3, training_seconds=1e-5, rollout_cv=1 / 3)
    assert profile_block(third).splitlines()[2:5] == [
        "  rollout_mean: 0.333333s",
        "  rollout_cv: 0.333",
        "  training: 1e-05s",
    ]


def test_a_report_of_a_folder_is_a_page_and_a_profile(tmp_path, capsys):
    write(tmp_path, "a", *three_iterations())
    write(tmp_path, "b", seen(ROLLOUT, 0, 0.0, 1.0, job="half"))
    page = tmp_path / "page.html"
    report(tmp_path, page)
    printed = capsys.readouterr().out
    assert "math" in page.read_text()
    for text in (page.read_text().replace("<dt>Dollars</dt>", ""), printed):
        assert "inf" not in text.replace("interference", "") and "$" not in text
        assert ">SLO<" not in text and "Dollars" not in text and " SLO " not in printed
    assert "# for the job file of math\nprofile:\n  rollout_max: 5s" in printed
    assert "# half ran no iteration with both a rollout and a training phase: no profile" in printed


def test_a_line_that_was_never_finished_is_skipped_and_reported_once(tmp_path):
    write(tmp_path, "a", *three_iterations(), tail=b'{"job":"math","ro')
    file = observed_timeline(tmp_path)
    assert len(file.timeline.intervals) == 10 and file.torn_bytes == 17
    assert run_page(file, title="t").count("its 17 bytes were skipped") == 1


def test_damage_in_the_middle_is_an_error_with_its_line(tmp_path):
    first, *_ = iteration(0, 0.0, 1.0)
    damaged = msgspec.json.encode(first)[:-9]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join([msgspec.json.encode(first), damaged, msgspec.json.encode(first)]))
    with pytest.raises(UsageError, match=r"a\.jsonl, line 2: not an observed phase .*; remove that line"):
        observed_timeline(tmp_path)


def test_ranks_of_a_phase_are_one_interval_on_a_slot_each(tmp_path):
    for rank, seconds in ((0, 2.0), (1, 3.0)):
        write(tmp_path, str(rank), seen(ROLLOUT, 0, rank, seconds, role="rollout", rank=rank, samples=4))
    (interval,) = observed_timeline(tmp_path).timeline.intervals
    assert interval.slots == (Slot("math-rollout", 0), Slot("math-rollout", 1))
    assert (interval.started_at, interval.ended_at, interval.samples) == (0, 4 * SECOND, 8)
    run_page(observed_timeline(tmp_path), title="t")


def test_a_second_run_in_the_same_folder_is_a_second_attempt_and_gives_the_profile(tmp_path):
    write(tmp_path, "z-first", *iteration(0, 0.0, 9.0))
    write(tmp_path, "a-second", *iteration(0, 100.0, 4.0))
    file = observed_timeline(tmp_path)
    assert [one.attempt for one in file.timeline.intervals] == [1, 1, 1, 2, 2, 2]
    assert observed_profiles(file)["math"].rollout_max_seconds == 4.0


def test_a_folder_without_phases_is_an_error(tmp_path):
    write(tmp_path, "a")
    with pytest.raises(UsageError, match="holds no phases of observe mode: run a job with WEAVERL_MODE=observe first"):
        observed_timeline(tmp_path)
