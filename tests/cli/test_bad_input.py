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
    "a policy of the simulator": ("name: laptop", "name: laptop\npolicy: gavel", "gavel"),
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


TRACE = (
    "job_id,tenant,arrival_s,iterations,model_b,max_tokens,turns,rollout_gpus,training_gpus,rollout_max_s,"
    "rollout_mean_s,rollout_cv,rollout_p80,training_s,sync_gib,rollout_host_gib,training_host_gib,slo,rollout_growth\n"
    "a,t,0,3,7,4096,1,8,8,100,90,0.1,0.5,50,13,100,200,1.5,1\n"
)
BAD_OPTIONS = {
    "no bandwidth": ("simulate TRACE --set link_gbps=0", "link_gbps is 0"),
    "less than none": ("simulate TRACE --set link_gbps=-1", "link_gbps is -1"),
    "no number": ("simulate TRACE --set link_gbps=nan", "link_gbps is nan"),
    "nodes without GPUs": ("simulate TRACE --set gpus_per_node=0", "gpus_per_node is 0"),
    "a tail of no time": ("simulate TRACE --set tail_stretch=0", "tail_stretch is 0"),
    "more memory than there is": ("simulate TRACE --set usable_host_memory=5", "usable_host_memory is 5"),
    "crashes all the time": ("simulate TRACE --set job_mtbf_hours=0", "job_mtbf_hours is 0"),
    "half a pair": ("simulate TRACE --set cold_start_seconds=1", "two numbers, at 7B and at 70B, such as 80.0,135.8"),
    "a switch neither on nor off": ("simulate TRACE --set tail_migration=no", "tail_migration=no: give true or false"),
    "half a GPU": ("simulate TRACE --set gpus_per_node=7.5", "gpus_per_node=7.5: give a whole number, such as 8"),
    "nodes by name": (
        "simulate TRACE --set max_nodes_per_pool=x",
        "max_nodes_per_pool=x: give a number",
    ),
    "a link neither own nor shared": ("simulate TRACE --set link_sharing=x", "link_sharing=x: give per_node or shared"),
    "a seed below 0": ("simulate TRACE --seed -1", "got '-1'"),
    "no growth": ("simulate TRACE --drift 0", "--drift is 0.0"),
    "no trace": ("simulate", "TRACE"),
    "an unknown objective": ("simulate TRACE --policy weave --objective speed", "choose dollars or throughput"),
    "an objective of another policy": ("simulate TRACE --objective throughput", "the policy is weave-paper"),
    "an objective nobody has": ("compare TRACE --policies solo,gavel --objective throughput", "the policy is solo"),
    "jobs on one pool for dollars": ("simulate TRACE --policy weave --colocate", "the objective is dollars"),
    "jobs on one pool, compared for dollars": ("compare TRACE --policies weave --colocate", "the objective is dollars"),
    "throughput of no fleet": ("simulate TRACE --policy weave --objective throughput", "give --fleet SHARE"),
    "throughput of no fleet, compared": (
        "compare TRACE --policies weave --objective dollars,throughput",
        "give --fleet SHARE",
    ),
    "hidden switches of another policy": ("simulate TRACE --no-hidden-switches", "the policy is weave-paper"),
    "hidden switches of no policy": (
        "compare TRACE --policies solo,gavel --no-hidden-switches",
        "the policy is solo, gavel",
    ),
    "no objective": ("compare TRACE --objective ,", "--objective is empty"),
    "no fleet": ("simulate TRACE --fleet 0", "--fleet is 0: give a share"),
    "a fleet that is no number": ("compare TRACE --fleet nan", "--fleet is nan: give a share"),
    "two limits": ("simulate TRACE --fleet 0.6 --max-nodes 9", "so does max_nodes_per_pool, which is 9: leave one out"),
    "a policy twice": ("compare TRACE --policies weave,weave", "--policies has 'weave' 2 times"),
    "an objective twice": (
        "compare TRACE --policies weave --objective dollars,dollars",
        "--objective has 'dollars' 2 times: name each once",
    ),
    "an unknown policy": ("simulate TRACE --policy best", "best"),
    "a trace that is not there": ("simulate nowhere.csv", "nowhere.csv"),
    "nothing to compare": ("compare", "TRACE"),
    "no policy": ("compare TRACE --policies ,", "--policies"),
    "a seed below 0 to compare": ("compare TRACE --seed -1", "got '-1'"),
    "bandwidth to compare": ("compare TRACE --set link_gbps=inf", "link_gbps is inf"),
    "no file to write": ("trace generate", "--out"),
    "a seed of too many digits": (f"simulate TRACE --seed {10**32}", f"got '{10**32}'"),
    "a generator's seed of too many digits": (f"trace generate --out - --seed {10**32}", f"got '{10**32}'"),
    "a conversion's seed of too many digits": (f"trace convert TRACE --out - --seed {10**32}", f"got '{10**32}'"),
    "a generator's seed": ("trace generate --out - --seed -1", "--seed is -1"),
    "hours that are no number": ("trace generate --out - --hours nan", "nan"),
    "an unknown preset": ("trace generate --out - --preset big", "big"),
    "an endless window": ("trace convert TRACE --out - --start-hours inf", "--start-hours is inf"),
    "a window of no length": ("trace convert TRACE --out - --hours nan", "nan"),
    "a limit that is no number": ("trace convert TRACE --out - --min-gpus nan", "nan"),
    "a trace to show that is not there": ("trace show nowhere.csv", "nowhere.csv"),
    "an unknown format": ("trace show TRACE --format excel", "excel"),
    "no cap": ("estimate 7", "--max-tokens"),
    "a cap in words": ("estimate 7 --max-tokens many", "got 'many'"),
    "a cap below the least": ("estimate 7 --max-tokens 3", "got '3'"),
    "an unknown model": ("estimate Nobody-7X --max-tokens 4096", "Nobody-7X"),
    "a link that is no number": ("estimate 7 --max-tokens 4096 --link-gbps nan", "nan"),
    "a mean that is no number": ("estimate 7 --max-tokens 4096 --mean-tokens nan", "nan"),
    "no logs": ("advise", "LOG..."),
    "a log that is not there": ("advise nowhere.log", "nowhere.log"),
    "a promise below 1": ("advise TRACE --slo 0.5", "got '0.5'"),
    "a promise that is no number": ("advise TRACE --slo nan", "nan"),
    "a link of advice that is no number": ("advise TRACE --link-gbps nan", "nan"),
    "a promise without end": ("advise TRACE --slo inf", "--slo is inf"),
    "no job": ("whatif", "JOB.yaml"),
    "a job that is not there": ("whatif nowhere.yaml", "nowhere.yaml"),
    "a cluster that is not there": (f"whatif {EXAMPLES}/grpo/job.yaml --cluster nowhere.yaml", "nowhere.yaml"),
    "no folder": ("reproduce", "--out"),
    "a trace in no folder": ("trace generate --out none/a.csv", "none is not a folder"),
    "a conversion in no folder": ("trace convert nowhere.csv --out none/a.csv", "none is not a folder"),
    "an export in no folder": ("trace export --out none/a.csv", "none is not a folder"),
    "a timeline in no folder": ("timeline --out none/a.jsonl", "none is not a folder"),
    "a simulated timeline in no folder": ("simulate TRACE --timeline none/a.jsonl", "none is not a folder"),
    "a page in no folder": ("report nowhere.jsonl --out none/a.html", "none is not a folder"),
    "a page in the place of a folder": ("report nowhere.jsonl --out .", "folder"),
    "a name that is too long": (f"trace generate --out {'a' * 255}", "File name too long"),
    "a folder in a file": ("reproduce --out TRACE/report", "trace.csv/report"),
    "a folder in the place of a file": ("reproduce --out TRACE", "trace.csv"),
    "a folder where there can be none": ("reproduce --out /proc/report", "/proc/report"),
    "a folder that takes no files": ("reproduce --out /proc", "/proc"),
    "a demo in a file": ("demo --out TRACE/demo", "trace.csv/demo"),
    "figures of hand-overs in no folder": ("bench permits --json none/a.json", "none is not a folder"),
    "no workers": ("reproduce --out report --workers 0", "--workers is 0"),
    "traces that are not there": ("reproduce --out report --traces nowhere", "nowhere"),
    "one job to hand over": ("bench permits --jobs 1", "--jobs is 1"),
    "one job to decide among": ("bench decision --jobs 1", "--jobs is 1"),
    "no drift": ("bench reactions TRACE --drift 1.5,0", "--drift has '0': give numbers from 0.01 to 100"),
    "drift in words": ("bench reactions TRACE --drift much", "--drift has 'much'"),
    "an error of nothing": ("bench reactions TRACE --error 0", "--error has '0'"),
    "no such reaction": ("bench reactions TRACE --reactions none,pray", "--reactions has 'pray'"),
    "a reaction twice": ("bench reactions TRACE --reactions none,none", "--reactions has 'none' 2 times"),
    "a drift twice": ("bench reactions TRACE --drift 1.5,2,1.5", "--drift has 1.5 twice"),
    "a trace twice to react": ("bench reactions TRACE TRACE", "2 traces are named trace"),
    "a trace twice to drift": ("bench drift TRACE TRACE", "2 traces are named trace"),
    "a plot over nothing": ("bench reactions TRACE --plot .", "give --drift"),
    "no jobs to drift": ("bench drift TRACE --jobs 0", "--jobs"),
    "drift of no trace": ("bench drift nowhere.csv", "nowhere.csv"),
    "jobs in words": ("bench decision --jobs many", "got 'many'"),
    "an unknown command": ("simulat", "simulat"),
    "an unknown option": ("simulate TRACE --speed 3", "--speed"),
}


@pytest.mark.parametrize(("command", "value"), BAD_OPTIONS.values(), ids=BAD_OPTIONS)
def test_a_bad_option_is_refused_in_one_line(home, tmp_path, monkeypatch, capsys, command: str, value: str):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trace.csv").write_text(TRACE)
    assert value in refusal(capsys, *command.replace("TRACE", "trace.csv").split())
    assert [one.name for one in tmp_path.iterdir()] == ["trace.csv"]


@pytest.mark.parametrize("arguments", [[], ["trace"], ["bench"]])
def test_without_a_command_the_help_is_shown(capsys, arguments: list[str]):
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    printed = capsys.readouterr()
    assert exit_.value.code == 2
    assert "Usage: weaverl" in printed.out and "weaverl: " not in printed.err


@pytest.mark.parametrize(("option", "shown"), [("--help", "simulate"), ("--version", "weaverl ")])
def test_help_and_version_are_no_errors(capsys, option: str, shown: str):
    with pytest.raises(SystemExit) as exit_:
        main([option])
    assert exit_.value.code == 0
    assert shown in capsys.readouterr().out


def test_the_exit_code_of_a_command_is_that_of_the_program(tmp_path, capsys):
    (tmp_path / "none.csv").write_text(TRACE.splitlines()[0] + "\n")
    with pytest.raises(SystemExit) as exit_:
        main(["simulate", str(tmp_path / "none.csv")])
    assert exit_.value.code == 1
    assert "the trace has no jobs" in capsys.readouterr().err
