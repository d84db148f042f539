"""`weaverl simulate` and `compare` as people run them."""

import json
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from simulation.small import row
from weaverl.cli.main import app
from weaverl.cli.simulate import resolved_costs
from weaverl.errors import UsageError
from weaverl.simulation.costs import LinkSharing
from weaverl.simulation.traces.schema import write_jobs

KEYS = {
    "usd",
    "usd_per_hour",
    "hours",
    "bound_multiple",
    "slo_attainment",
    "peak_gpus",
    "bubbles",
    "moves",
    "decision_ms",
    "jobs_finished",
    "audited",
    "parameters",
}
JOBS = [
    row(
        f"j{number}",
        at=100.0 * number,
        iterations=6,
        rollout_max_seconds=200.0,
        rollout_cv=0.2,
        tenant=f"t{number % 2}",
    )
    for number in range(6)
]


@pytest.fixture
def path(tmp_path):
    write_jobs(JOBS, tmp_path / "few.csv")
    return tmp_path / "few.csv"


def call(*arguments):
    return CliRunner().invoke(app, [str(one) for one in arguments])


def figures(*arguments):
    result = call(*arguments, "--json", "-")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_simulate_prints_the_keys_that_others_rely_on(path):
    printed = figures("simulate", path, "--policy", "weave-paper", "--seed", 3)
    assert set(printed) >= KEYS
    assert (printed["trace"], printed["policy"], printed["seed"], printed["jobs_finished"]) == (
        "few",
        "weave-paper",
        3,
        6,
    )
    assert printed["audited"] is True
    assert set(printed["decision_ms"]) >= {"p50", "p99"}
    assert printed["parameters"]["link_gbps"] == 20.0


def test_people_get_a_table(path):
    result = call("simulate", path, "--no-random")
    assert result.exit_code == 0
    assert "6 of 6 finished" in result.stdout
    assert "mean rollout times" in result.stdout


def test_neighbours_that_disturb_are_asked_for_by_name_and_shown(path):
    settings = ("--set", "interference_rollout=1.2", "--set", "interference_training=1.1")
    printed = figures("simulate", path, "--no-random", *settings)
    assert printed["audited"] is True
    assert 1.0 < printed["interference"]["rollout"] < 1.2
    assert 1.0 < printed["interference"]["training"] < 1.1
    assert printed["parameters"]["interference_rollout"] == 1.2
    table = call("simulate", path, "--no-random", *settings).stdout
    assert f"{printed['interference']['rollout']:.3f}x rollout" in table
    assert "interference" not in call("simulate", path, "--no-random").stdout
    (woven, _) = figures("compare", path, "--policies", "weave-paper,solo", "--no-random", *settings)["results"]
    assert woven["interference"] == printed["interference"]


def test_equal_seeds_give_equal_bytes_in_any_process(path):
    """This process has a random hash seed, or one that is not the other's."""
    arguments = ["simulate", str(path), "--seed", "5", "--no-timings", "--json", "-"]
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    command = [sys.executable, "-m", "weaverl.cli.main", *arguments]
    other = subprocess.run(command, env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=True)
    assert other.stdout == call(*arguments).stdout_bytes
    assert json.loads(other.stdout)["decision_ms"] is None


def test_compare_sets_dollars_in_proportion(path):
    printed = figures("compare", path, "--policies", "weave-paper,solo", "--no-random")
    assert [(one["trace"], one["policy"]) for one in printed["results"]] == [("few", "weave-paper"), ("few", "solo")]
    woven, solo = printed["results"]
    first, second = printed["ratios"]
    assert first["solo"] == pytest.approx(solo["usd"] / woven["usd"])
    assert first["colocated"] / second["colocated"] == pytest.approx(first["solo"])
    assert second["solo"] == 1.0


def test_a_fleet_is_a_share_of_the_peak_of_solo_and_the_same_for_all(path):
    arguments = ("--policies", "gavel,weave", "--objective", "dollars,throughput", "--fleet", 0.5, "--no-random")
    results = figures("compare", path, *arguments)["results"]
    aims = [(one["policy"], one["parameters"].get("objective")) for one in results]
    assert aims == [("gavel", None), ("weave", "dollars"), ("weave", "throughput")]
    for one in results:
        assert (one["parameters"]["max_rollout_nodes"], one["parameters"]["max_training_nodes"]) == (3, 3)
        assert one["audited"] is True
        assert one["makespan_hours"] >= one["makespan_bound_hours"]
    table = call("compare", path, *arguments).stdout
    assert "weave, throughput" in table
    assert "makespan h" in table
    assert "makespan h" not in call("compare", path, "--policies", "solo", "--no-random").stdout


@pytest.mark.parametrize("command", ["simulate", "compare"])
def test_a_tenant_whose_weight_does_nothing_is_named(path, tmp_path, command):
    sharing = tmp_path / "sharing.yaml"
    sharing.write_text("sharing: {tenants: {t1: 2, resaerch: 3}}\n")
    said = call(command, path, "--sharing", sharing, "--no-random").stderr
    assert said == "weaverl: sharing names tenant resaerch, of whom the trace has no job: the weight does nothing\n"
    sharing.write_text("sharing: {tenants: {t1: 2}}\n")
    assert call(command, path, "--sharing", sharing, "--no-random").stderr == ""


def test_throughput_takes_any_limit_for_a_fleet(path):
    aim = ("simulate", path, "--policy", "weave", "--objective", "throughput", "--no-random", "--json", "-")
    for limit in (("--max-nodes", 9), ("--set", "max_rollout_nodes=9"), ("--fleet", 1)):
        assert call(*aim, *limit).exit_code == 0


def test_traces_of_one_name_are_not_compared(path, tmp_path):
    (tmp_path / "other").mkdir()
    write_jobs([row("a")], tmp_path / "other" / path.name)
    result = call("compare", path, tmp_path / "other" / path.name)
    assert isinstance(result.exception, UsageError)
    assert str(result.exception) == "2 traces are named few: give each its own file name, and once"


def test_dollars_of_different_work_stand_in_no_proportion(tmp_path):
    """One job's memory fits two nodes, not the one that `colocated` gives it."""
    write_jobs([row("a", rollout_host_gib=800.0, training_host_gib=800.0), row("b")], tmp_path / "two.csv")
    result = call("compare", tmp_path / "two.csv", "--policies", "weave-paper", "--json", "-")
    assert result.exit_code == 0
    (ratios,) = json.loads(result.stdout)["ratios"]
    assert ratios["solo"] >= 1.0 and ratios["colocated"] is None
    said = "two: colocated finished 1 of 2 jobs: no ratios with it, dollars of different work"
    assert result.stderr == f"weaverl: {said}\n"


@pytest.mark.parametrize(
    ("name", "why"), [("foo", "policy 'foo' is not known"), ("optimal", "up to 10 jobs.*`weaverl reproduce`")]
)
def test_a_policy_that_cannot_be_simulated_is_refused_before_anything_is_read(name, why):
    for arguments in (["simulate", "no.csv", "--policy", name], ["compare", "no.csv", "--policies", f"solo,{name}"]):
        with pytest.raises(UsageError, match=why):
            CliRunner().invoke(app, arguments, catch_exceptions=False)


def test_no_policy_is_offered_that_is_refused():
    assert "optimal" not in call("simulate", "--help").stdout
    assert "optimal" not in call("compare", "--help").stdout


def test_a_measured_run_takes_no_options_of_a_simulated_one():
    arguments = ["simulate", "--from-timeline", "run.jsonl", "--policy", "weave-paper", "--no-audit", "--json", "-"]
    with pytest.raises(UsageError, match=r"^--policy, --audit/--no-audit cannot be given with --from-timeline"):
        CliRunner().invoke(app, arguments, catch_exceptions=False)


def test_compare_shows_people_a_row_a_run(path):
    result = call("compare", path, "--policies", "weave-paper")
    assert result.exit_code == 0
    assert result.stdout.count("few") == 1


def test_a_trace_is_found_by_its_name_in_a_folder_of_traces(path, monkeypatch):
    folder = path.parent / "traces"
    folder.mkdir()
    path.rename(folder / "few.csv")
    monkeypatch.chdir(path.parent)
    assert figures("simulate", "few", "--policy", "solo")["jobs_finished"] == 6


def test_a_job_that_does_not_fit_is_said_and_told_by_the_exit_code(tmp_path):
    write_jobs([row(at=1000.0, training_host_gib=5000.0)], tmp_path / "big.csv")
    result = call("simulate", tmp_path / "big.csv", "--json", "-")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["jobs_admitted"] == 0
    assert "0 of 1 admitted" in result.stderr
    assert "5000.0 GiB of host memory" in result.stderr


def test_jobs_that_wait_for_ever_are_named(tmp_path):
    write_jobs([row("small"), row("large", rollout_gpus=16)], tmp_path / "trace.csv")
    result = call("simulate", tmp_path / "trace.csv", "--max-nodes", 1, "--json", "-")
    assert result.exit_code == 1
    assert "1 of 2 admitted, 1 finished" in result.stderr
    assert "asks 16 rollout GPUs" in result.stderr


def test_an_empty_trace_ends_at_once(tmp_path):
    write_jobs([], tmp_path / "none.csv")
    result = call("simulate", tmp_path / "none.csv", "--json", "-")
    assert result.exit_code == 1
    assert "0 of 0 admitted, 0 finished: the trace has no jobs" in result.stderr


def test_parameters_can_be_set():
    costs = resolved_costs(["rollout_switch_seconds=1,2", "link_gbps=40"], True, "shared", 41)
    assert costs.rollout_switch_seconds == (1.0, 2.0)
    assert (costs.link_gbps, costs.tail_migration, costs.max_nodes_per_pool) == (40.0, False, 41)
    assert costs.link_sharing is LinkSharing.SHARED


@pytest.mark.parametrize("setting", ["speed=3", "link_gbps", "link_gbps=fast", "tail_devices="])
def test_a_parameter_that_cannot_be_set_is_refused(setting):
    with pytest.raises(UsageError):
        resolved_costs([setting], False, "per_node", None)


def test_a_link_that_is_not_known_and_no_node_at_all_are_refused():
    with pytest.raises(UsageError, match="per_node"):
        resolved_costs(None, False, "bus", None)
    with pytest.raises(UsageError, match="--max-nodes is 0"):
        resolved_costs(None, False, "per_node", 0)


def test_rollouts_can_be_made_to_drift(path):
    calm, grown = (figures("simulate", path, "--policy", "solo", "--no-random", *more) for more in ([], ["--drift", 3]))
    assert grown["trace"] == "few, drift 3"
    assert grown["usd"] > calm["usd"] * 1.3
    assert grown["audited"] is True
