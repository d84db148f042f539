"""`weaverl estimate`: the table shows its numbers, the JSON is the same, and the job file is one."""

import json
from pathlib import Path

import pytest

from weaverl.cli.main import main
from weaverl.config.job_file import parse_job

GIB = 2**30


def printed(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    with pytest.raises(SystemExit) as exit_:
        main(["estimate", *arguments])
    assert exit_.value.code == code
    streams = capsys.readouterr()
    return streams.out if code == 0 else streams.err


def test_the_job_file_is_read_back_as_what_was_estimated(capsys):
    arguments = ("Qwen2.5-7B", "--max-tokens", "16384", "--other-seconds", "3")
    figures = json.loads(printed(capsys, *arguments, "--json", "-"))
    job = parse_job(printed(capsys, *arguments, "--job", "math-a"), directory=Path.cwd())
    assert job.name == "math-a" and (job.rollout_gpus, job.training_gpus) == (8, 8)
    profile, memory = figures["profile"], figures["host_memory"]
    assert job.profile is not None
    for name, value in profile.items():
        assert getattr(job.profile, name) == pytest.approx(value, rel=0.006)
    assert job.profile.other_seconds == 3.0
    assert 0 <= job.host_memory.rollout_bytes - memory["rollout_bytes"] < GIB
    assert 0 <= job.host_memory.training_bytes - memory["training_bytes"] < GIB


def test_the_table_shows_what_went_into_each_term(capsys):
    out = printed(capsys, "7", "--max-tokens", "8192", "--efficiency", "bandwidth=0.7")
    assert "7B (shape of Qwen2.5-7B), 64 x 8 responses" in out
    assert "14.0 GB weights" in out and "4 TB/s x 0.7" in out and "bandwidth=0.7" in out


BAD = {
    "an unknown model": (("gpt", "--max-tokens", "8192"), "'gpt'"),
    "an unknown gpu": (("7", "--max-tokens", "8192", "--rollout-gpu", "H21"), "'H21'"),
    "an unknown efficiency": (("7", "--max-tokens", "8192", "--efficiency", "speed=1"), "'speed'"),
    "no number": (("7", "--max-tokens", "8192", "--efficiency", "bandwidth=nan"), "'nan'"),
    "more than all": (("7", "--max-tokens", "8192", "--efficiency", "bandwidth=1.01"), "bandwidth=1.01"),
    "no name": (("7", "--max-tokens", "8192", "--job", "Math_A"), "'Math_A'"),
    "endless turns": (("7", "--max-tokens", "8192", "--turns", "2", "--turn-seconds", "inf"), "inf"),
    "no room": (("70", "--max-tokens", "8192"), "does not fit 8 H800"),
    "a folder for the figures": (("7", "--max-tokens", "8192", "--json", "/"), "/ is a folder"),
}


@pytest.mark.parametrize(("arguments", "value"), BAD.values(), ids=BAD)
def test_what_cannot_be_is_one_line(capsys, arguments: tuple[str, ...], value: str):
    line = printed(capsys, *arguments, code=2)
    assert line.count("\n") == 1 and value in line
