"""What is wrong in a file or a request: exit code 2, one line with what, value and remedy, and nothing changed."""

from pathlib import Path

import pytest

from weaverl.cli.main import main
from weaverl.config.cluster_file import load_cluster
from weaverl.control.home import HeadRecord, Home
from weaverl.control.processes import ProcessId
from weaverl.control.rank_process import StoreAccess

EXAMPLES = Path(__file__).parents[2] / "examples"
JOB = (EXAMPLES / "grpo" / "job.yaml").read_text()
CLUSTER = (EXAMPLES / "clusters" / "laptop.yaml").read_text()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "home"
    monkeypatch.setenv("WEAVERL_HOME", str(place))
    return place


def refusal(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    with pytest.raises(SystemExit) as exit_:
        main([str(one) for one in arguments])
    assert exit_.value.code == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1 and printed.err.startswith("weaverl: "), printed.err
    return printed.err


def written(tmp_path: Path, text: str, old: str, new: str) -> Path:
    assert old in text
    path = tmp_path / "file.yaml"
    path.write_text(text.replace(old, new))
    return path


BAD_JOBS = {
    "unknown key": ("slo: 1.6", "slo: 1.6\nslowdown: 2", "slowdown"),
    "wrong type": ("slo: 1.6", "slo: fast", "slo"),
    "missing unit": ("rollout: 600Mi", "rollout: 600", "600"),
    "half a byte": ("rollout: 600Mi", "rollout: 500m", "500m"),
    "duplicate key": ("slo: 1.6", "slo: 1.6\nslo: 1.7", "slo"),
    "base 60": ("iterations: 12", "iterations: 22:10", "22:10"),
    "promise below 1": ("slo: 1.6", "slo: 0.9", "0.9"),
    "no such directory": ("iterations: 12", "iterations: 12\nworking_directory: nowhere", "nowhere"),
    "no roles": ("roles:", "rules:", "rules"),
}


@pytest.mark.parametrize(("old", "new", "value"), BAD_JOBS.values(), ids=BAD_JOBS)
def test_a_bad_job_file_is_refused_in_one_line(home, tmp_path, capsys, old: str, new: str, value: str):
    line = refusal(capsys, "submit", written(tmp_path, JOB, old, new))
    assert "file.yaml" in line and value in line
    assert not home.exists()


BAD_CLUSTERS = {
    "unknown key": ("name: laptop", "name: laptop\nnodez: 1", "nodez"),
    "wrong type": ("devices: 1", "devices: one", "one"),
    "missing unit": ("host_memory: 2Gi", "host_memory: 2", "2"),
    "duplicate key": ("name: laptop", "name: laptop\nname: laptop", "name"),
    "a cpu that is not here": ("cpus: [0]", "cpus: [4096]", "4096"),
    "same name twice": ("name: training-0", "name: rollout-0", "rollout-0"),
}


@pytest.mark.parametrize(("old", "new", "value"), BAD_CLUSTERS.values(), ids=BAD_CLUSTERS)
def test_a_bad_cluster_file_is_refused_in_one_line(home, tmp_path, capsys, old: str, new: str, value: str):
    line = refusal(capsys, "up", written(tmp_path, CLUSTER, old, new))
    assert "file.yaml" in line and value in line
    assert not home.exists()


@pytest.mark.parametrize("command", [["submit", "missing.yaml"], ["up", "missing.yaml"], ["report", "missing.jsonl"]])
def test_a_file_that_is_not_there_is_named(home, capsys, command: list[str]):
    assert command[1] in refusal(capsys, *command)


@pytest.mark.parametrize(
    "command", [["status"], ["logs", "a"], ["cancel", "a"], ["explain", "a"], ["timeline"], ["report"]]
)
def test_without_a_cluster_the_remedy_is_up(home, capsys, command: list[str]):
    assert "weaverl up CLUSTER.yaml" in refusal(capsys, *command)


def test_more_gpus_than_the_pool_has_are_refused_before_anything_is_sent(home, tmp_path, capsys):
    cluster = load_cluster(EXAMPLES / "clusters" / "laptop.yaml")
    place = Home(home)
    place.write_cluster(cluster)
    place.write_head(HeadRecord(ProcessId.of_self(), cluster, StoreAccess(f"unix://{home}/nobody-listens.sock")))
    job = written(tmp_path, JOB, "gpus: {rollout: 1,", "gpus: {rollout: 12,")
    line = refusal(capsys, "submit", job)
    assert "file.yaml" in line and "12 rollout GPUs" in line and "has 1" in line


def test_a_demo_of_too_many_jobs_is_refused(home, capsys):
    assert "--jobs is 7" in refusal(capsys, "demo", "--jobs", "7")


def test_the_same_command_line_is_a_module_and_a_program():
    import subprocess
    import sys

    shown = subprocess.run([sys.executable, "-m", "weaverl.cli.main", "--help"], capture_output=True, text=True)
    assert shown.returncode == 0 and "demo" in shown.stdout
