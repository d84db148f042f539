"""What commands write: a disk without room is one line and exit code 1, and what was there is there still."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from reports.example import cluster, draw, header
from simulation.small import row
from weaverl.cli.main import main
from weaverl.cli.outputs import emit
from weaverl.reports.timeline_file import write_timeline
from weaverl.simulation.traces.schema import write_jobs

MOST_BYTES = 2000


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    write_jobs([row("a", iterations=5)], tmp_path / "few.csv")
    return tmp_path / "few.csv"


def code_of(*arguments: object) -> object:
    with pytest.raises(SystemExit) as exit_:
        main([str(one) for one in arguments])
    return exit_.value.code


def run(*arguments: object, **options: object) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "weaverl.cli.main", *map(str, arguments)]
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False, **options)


@pytest.mark.parametrize(
    "command",
    ["trace generate --jobs 3 --out FULL", "simulate TRACE --timeline FULL", "simulate TRACE --json FULL"],
)
def test_a_full_device_is_one_line_and_stays_a_device(trace, full_device, capsys, command: str):
    arguments = command.replace("TRACE", str(trace)).replace("FULL", str(full_device)).split()
    assert code_of(*arguments) == 1
    printed = capsys.readouterr()
    remedy = "make room there, or write to another disk"
    assert printed.err == f"weaverl: {full_device}: No space left on device; {remedy}\n"
    assert full_device.is_char_device()


def test_a_page_for_a_full_device_is_one_line(tmp_path, full_device, capsys):
    jobs = {"a": (3.0, 2.0), "b": (2.0, 3.0)}
    write_timeline(tmp_path / "run", header(cluster(), tuple(jobs), 2), draw(cluster(), jobs, 2))
    assert code_of("report", tmp_path / "run", "--out", full_device) == 1
    assert f"{full_device}: No space left" in capsys.readouterr().err
    assert full_device.is_char_device()


@pytest.mark.parametrize("num_jobs", [1, 300], ids=["at the end", "in the middle"])
def test_standard_output_without_room_is_one_line(full_device, num_jobs: int):
    with full_device.open("w") as nowhere:
        ran = run("trace", "generate", "--jobs", num_jobs, "--out", "-", stdout=nowhere)
    assert ran.returncode == 1
    assert ran.stderr.startswith("weaverl: standard output: No space left") and ran.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "command",
    [
        "--version",
        "--help",
        "trace generate --jobs 3 --out -",
        "trace generate --jobs 300 --out -",
        "trace show TRACE",
        "trace show TRACE --json -",
        "simulate TRACE",
        "estimate Qwen2.5-7B --max-tokens 8192",
    ],
)
def test_a_closed_standard_output_is_one_line(trace, command: str):
    ran = run(*command.replace("TRACE", str(trace)).split(), preexec_fn=lambda: os.close(1))
    words = "standard output is closed: send it to a file, or to /dev/null"
    assert (ran.returncode, ran.stderr) == (1, f"weaverl: {words}\n")


def test_a_file_is_whole_and_right_beside_closed_standard_streams(tmp_path):
    """Nothing that is printed ends in a file that took the number of a closed stream."""
    here, there = tmp_path / "open.csv", tmp_path / "closed.csv"
    assert run("trace", "generate", "--jobs", 3, "--out", here, stdout=subprocess.DEVNULL).returncode == 0
    ran = run("trace", "generate", "--jobs", 3, "--out", there, preexec_fn=lambda: os.closerange(0, 3))
    assert ran.returncode == 1
    assert there.read_bytes() == here.read_bytes()


def test_closed_standard_error_changes_nothing(trace):
    ran = run("trace", "show", trace, "--json", "-", stdout=subprocess.PIPE, preexec_fn=lambda: os.close(2))
    assert ran.returncode == 0
    assert ran.stdout == run("trace", "show", trace, "--json", "-", stdout=subprocess.PIPE).stdout


def test_a_disk_that_fills_up_keeps_the_old_file_and_nothing_else(tmp_path):
    """A limit on the size of files fails in the middle of a write, as a disk does."""
    path = tmp_path / "jobs.csv"
    path.write_text("old")
    ran = run(
        *("trace", "generate", "--jobs", 300, "--out", path),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_BYTES, MOST_BYTES)),
    )
    assert ran.returncode == 1
    assert ran.stderr.startswith(f"weaverl: {path}: File too large") and ran.stderr.count("\n") == 1
    assert path.read_text() == "old"
    assert [one.name for one in tmp_path.iterdir()] == ["jobs.csv"]


@pytest.mark.parametrize(
    ("as_json", "shows", "prints"),
    [(None, True, ""), (Path("-"), False, '{\n  "a": 1\n}\n'), (Path("figures"), True, "")],
    ids=["no JSON", "standard output", "a file"],
)
def test_people_see_figures_unless_json_is_printed(tmp_path, monkeypatch, capsys, as_json, shows: bool, prints: str):
    monkeypatch.chdir(tmp_path)
    shown = []
    emit({"a": 1}, as_json, lambda: shown.append(True))
    assert (bool(shown), capsys.readouterr().out) == (shows, prints)
    assert [one.read_text() for one in tmp_path.iterdir()] == (
        ['{\n  "a": 1\n}\n'] if as_json == Path("figures") else []
    )
