"""`weaverl whatif` asked of files."""

import json
from pathlib import Path

import pytest

from weaverl.cli.main import main

CLUSTER = Path(__file__).parents[2] / "examples" / "clusters" / "two-nodes.yaml"
JOB = """\
name: {name}
slo: {slo}
gpus: {{rollout: 8, training: 8}}
host_memory: {{rollout: 100Gi, training: 200Gi}}
iterations: 100
profile: {{rollout_max: {rollout}s, rollout_mean: {rollout}s, training: {training}s}}
roles:
  rollout: {{command: [python, rollout.py]}}
  training: {{command: [python, training.py]}}
"""


def job(folder: Path, name: str, rollout: float, training: float, slo: float = 1.5) -> str:
    path = folder / f"{name}.yaml"
    path.write_text(JOB.format(name=name, rollout=rollout, training=training, slo=slo))
    return str(path)


def printed(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    with pytest.raises(SystemExit) as exit_:
        main(["whatif", *arguments])
    assert exit_.value.code == code
    streams = capsys.readouterr()
    return streams.out if code == 0 else streams.err


def test_a_job_that_would_be_packed(tmp_path, capsys):
    arguments = (job(tmp_path, "b", 90, 80), "--cluster", str(CLUSTER), "--jobs", job(tmp_path, "a", 100, 80))
    out = printed(capsys, *arguments)
    assert "b would run in group g1 (pack) on rollout-0, training-0." in out
    assert "It adds $0.00 an hour: $57.04 instead of $57.04." in out
    answer = json.loads(printed(capsys, *arguments, "--json", "-"))
    assert (answer["kind"], answer["added_usd_per_hour"], answer["wait"]) == ("pack", 0.0, None)
    assert {effect["job"] for effect in answer["effects"]} == {"a", "b"}


def test_the_policy_of_the_cluster_file_is_asked(tmp_path, capsys):
    alone = tmp_path / "alone.yaml"
    alone.write_text(CLUSTER.read_text() + "\npolicy: solo\n")
    out = printed(capsys, job(tmp_path, "b", 90, 80), "--cluster", str(alone), "--jobs", job(tmp_path, "a", 100, 80))
    assert "b would wait for the end of a" in out


def test_a_job_that_would_wait(tmp_path, capsys):
    out = printed(
        capsys, job(tmp_path, "b", 900, 900), "--cluster", str(CLUSTER), "--jobs", job(tmp_path, "a", 100, 80)
    )
    assert "b would wait for the end of a, in about 5 h at mean iterations." in out
    assert "would slow a to" in out


def test_what_cannot_be_is_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("WEAVERL_HOME", str(tmp_path / "home"))
    a, huge = job(tmp_path, "a", 100, 80), tmp_path / "huge.yaml"
    huge.write_text(Path(a).read_text().replace("rollout: 8", "rollout: 80"))
    for arguments, value in (
        ((a,), "no cluster is up"),
        ((a, "--jobs", a), "--jobs needs --cluster"),
        ((str(huge), "--cluster", str(CLUSTER)), "asks 80 rollout GPUs"),
        ((a, "--cluster", str(CLUSTER), "--jobs", str(huge)), "huge.yaml: job a asks 80 rollout GPUs"),
        ((a, "--cluster", str(CLUSTER), "--jobs", a), "is starting already"),
    ):
        line = printed(capsys, *arguments, code=2)
        assert line.count("\n") == 1 and value in line, line
