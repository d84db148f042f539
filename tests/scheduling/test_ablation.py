"""`docs/weave/ablate.py` replaces rules of the scheduler: they are all there, and a run without each of them ends."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "docs" / "weave" / "ablate.py"


def run(*arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_rule_that_a_lever_replaces_is_there():
    code = (
        f"import runpy; [lever.remove() for lever in runpy.run_path({str(SCRIPT)!r})['LEVERS'].values()]; print('all')"
    )
    assert run("-c", code) == "all\n"


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        (["few.csv", "--jobs", "0"], "got '0'"),
        (["nowhere.csv"], "nowhere.csv cannot be read: No such file"),
        (["few.csv", "--only", "moves,moves"], "'moves' is named 2 times: name each once"),
        (["few.csv", "--only", "move"], "'move' is no lever: choose from whole, moves, rescues, "),
    ],
)
def test_what_cannot_be_is_one_line(arguments: list[str], value: str):
    done = subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert value in done.stderr and done.stderr.count("\n") == 1
    assert len(done.stderr) < 250


def test_a_trace_is_given_once(tmp_path: Path):
    trace = tmp_path / "few.csv"
    run("-m", "weaverl.cli.main", "trace", "generate", "--jobs", "1", "--out", str(trace))
    done = subprocess.run([sys.executable, str(SCRIPT), *[str(trace)] * 2], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "2 traces are named few: give each its own file name, and once" in done.stderr


@pytest.mark.slow  # a process and a run for each of a dozen levers
def test_a_row_for_each_lever_with_dollars_against_the_whole_policy(tmp_path: Path):
    trace = tmp_path / "few.csv"
    run("-m", "weaverl.cli.main", "trace", "generate", "--jobs", "4", "--seed", "3", "--out", str(trace))
    rows = run(str(SCRIPT), str(trace)).splitlines()
    assert rows[0] == "| without | few | dollars |"
    assert rows[2].startswith("| the whole policy | ") and rows[2].endswith("| +0.0 % |")
    levers = run("-c", f"import runpy; print(len(runpy.run_path({str(SCRIPT)!r})['LEVERS']))")
    assert len(rows) == 2 + int(levers)
