import json

import pytest
from typer.testing import CliRunner

from weaverl.cli.main import app
from weaverl.cli.reproduce import decide
from weaverl.errors import UsageError

RUN = CliRunner()


def test_a_folder_without_traces_is_told_by_its_pattern(tmp_path):
    result = RUN.invoke(app, ["reproduce", "--out", str(tmp_path / "out"), "--traces", str(tmp_path)])
    assert isinstance(result.exception, UsageError)
    assert "has no production-[0-9]*-s*.csv" in str(result.exception)
    assert not (tmp_path / "out").exists()


def test_a_file_in_the_report_s_place_is_left_alone(tmp_path):
    (tmp_path / "out").write_text("mine")
    result = RUN.invoke(app, ["reproduce", "--out", str(tmp_path / "out")])
    assert isinstance(result.exception, UsageError)
    assert (tmp_path / "out").read_text() == "mine"


def test_decisions_are_measured_with_as_many_jobs_as_asked():
    point = decide(10, arrivals=10)
    assert point.jobs == 10
    assert 0 < point.p50_ms <= point.p99_ms


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_quick_reproduction_has_every_row_and_all_of_it_is_audited(tmp_path):
    result = RUN.invoke(app, ["reproduce", "--out", str(tmp_path), "--quick"])
    assert result.exit_code == 0, result.output
    found = json.loads((tmp_path / "results.json").read_text())
    assert {row["key"] for row in found["rows"]} == {
        "usd_per_hour",
        "total_usd",
        "slo_attainment",
        "cost_solo_over_weave",
        "cost_colocated_over_weave",
        "peak_gpus",
        "bubble_rollout",
        "bubble_training",
        "mix_over_solo",
        "mix_over_gavel",
        "mix_over_colocated",
        "sharing_slowdown",
        "careless_pair",
        "cold_switches",
        "tail_migration",
        "two_level_sync_8",
        "two_level_sync_16",
        "starts",
        "philly_over_optimum",
        "decision",
        "drift_increasing",
        "drift_decreasing",
        "drift_mixed",
    }
    assert found["audits"]["refuted"] == []
    # 4 replays, 12 mixes, 6 with drift, 2 of Philly, 14 small ones, and the sweeps.
    assert found["audits"]["confirmed"] > 100
    assert {sweep["key"] for sweep in found["sensitivity"]} == {
        "jobs",
        "phase_ratio",
        "price_ratio",
        "host_memory",
        "slo",
        "switch_cost",
        "interference",
        "link_per_node",
        "link_shared",
    }
    (philly,) = (row for row in found["rows"] if row["key"] == "philly_over_optimum")
    assert all(1 <= ratio < 2 for ratio in philly["values"].values())
