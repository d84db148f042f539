"""`weaverl trace`: what it writes, prints, and refuses in one line."""

import json
from pathlib import Path

import pytest

from weaverl.cli.main import main
from weaverl.simulation.traces.read import read_trace

PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster\n" + "".join(
    f"2017-10-{day:02d} 07:01:55,{hours * 3600},8,1,11cb48\n" for day, hours in [(9, 10), (3, 0.1), (4, 30), (5, 2)]
)


def run(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> tuple[str, str]:
    with pytest.raises(SystemExit) as exit_:
        main(["trace", *map(str, arguments)])
    printed = capsys.readouterr()
    assert exit_.value.code == code, printed.err
    return printed.out, printed.err


@pytest.fixture
def philly(tmp_path: Path) -> Path:
    path = tmp_path / "philly.csv"
    path.write_text(PHILLY)
    return path


def test_a_generated_trace_is_shown(tmp_path, capsys):
    out, _ = run(capsys, "generate", "--jobs", 20, "--drift", "mixed", "--out", tmp_path / "t.csv")
    assert out == f"wrote 20 of 20 jobs to {tmp_path / 't.csv'}\n"
    shown = json.loads(run(capsys, "show", tmp_path / "t.csv", "--json", "-")[0])
    assert (shown["rows"], shown["jobs"], shown["drifting_jobs"]) == (20, 20, 20)
    assert 27 < shown["mean_job_hours"] < 29 and shown["bound_usd_with_tail"] < shown["bound_usd_without_tail"]
    assert "mean job hours" in run(capsys, "show", tmp_path / "t.csv")[0]


def test_standard_output_takes_the_rows(tmp_path, capsys):
    out, _ = run(capsys, "generate", "--preset", "philly-like", "--jobs", 5, "--iterations", 20, "--out", "-")
    (tmp_path / "t.csv").write_text(out)
    assert [job.iterations for job in read_trace(tmp_path / "t.csv").jobs] == [20] * 5


def test_a_public_trace_is_converted_with_every_job_accounted_for(tmp_path, capsys, philly):
    out, err = run(capsys, "convert", philly, "--start-hours", 20, "--out", tmp_path / "t.csv")
    assert out == f"wrote 3 of 4 jobs to {tmp_path / 't.csv'}; 1 outside the window\n"
    assert err.count("\n") == 1 and "no time zone" in err
    assert [job.job_id for job in read_trace(tmp_path / "t.csv").jobs] == ["row000003", "row000004", "row000001"]
    _, err = run(capsys, "convert", philly, "--tz", "America/Los_Angeles", "--out", tmp_path / "t.csv")
    assert err == ""


def test_a_public_trace_is_shown_as_arrivals(capsys, philly):
    shown = json.loads(run(capsys, "show", philly, "--json", "-")[0])
    assert (shown["rows"], shown["jobs"], shown["origin"]) == (4, 4, "2017-10-03 07:01:55")
    assert shown["gpu_hours"] == pytest.approx(42.1 * 8) and shown["gpus"] == {"on 8": 4}


REFUSALS = {
    "preset": (
        ["generate", "--preset", "producton", "--out", "-"],
        "--preset is 'producton': choose one of production",
    ),
    "no jobs": (["generate", "--jobs", 0, "--out", "-"], "--jobs is 0"),
    "folder": (["generate", "--out", "/no/such/t.csv"], "/no/such is not a folder"),
    "format": (["convert", "FILE", "--format", "phily", "--out", "-"], "--format is 'phily': choose one of philly"),
    "no window": (["convert", "FILE", "--hours", 0, "--out", "-"], "--hours 0"),
    "rate": (["show", "FILE", "--format", "gavel", "--steps-per-second", "nan"], "--steps-per-second is nan"),
    "zone": (["show", "FILE", "--tz", "Mars/Base"], "no time zone 'Mars/Base'"),
    "not that format": (["show", "FILE", "--format", "helios"], "lacks column job_id"),
    "member": (["show", "FILE", "--member", "x.csv"], "is no archive"),
    "absent": (["show", "/no/such.csv"], "/no/such.csv cannot be read"),
}


@pytest.mark.parametrize(("arguments", "words"), REFUSALS.values(), ids=REFUSALS)
def test_what_is_wrong_is_refused_in_one_line(capsys, philly, arguments, words):
    out, err = run(capsys, *(philly if one == "FILE" else one for one in arguments), code=2)
    assert out == "" and err.count("\n") == 1 and words in err


def test_without_a_cluster_there_is_no_log_to_export(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("WEAVERL_HOME", str(tmp_path / "home"))
    _, err = run(capsys, "export", "--out", tmp_path / "t.csv", code=2)
    assert "no cluster is up" in err and not (tmp_path / "t.csv").exists()
