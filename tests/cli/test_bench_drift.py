"""Ways to move running jobs, compared from the command line; the audited figures are those of the runs."""

import json

import pytest
from typer.testing import CliRunner

from weaverl.cli.main import app

HEAD = (
    "job_id,tenant,arrival_s,iterations,model_b,max_tokens,turns,rollout_gpus,training_gpus,rollout_max_s,"
    "rollout_mean_s,rollout_cv,rollout_p80,training_s,sync_gib,rollout_host_gib,training_host_gib,slo,rollout_growth\n"
)


@pytest.fixture
def jobs(tmp_path):
    rows = [f"{name},t,{60 * at},40,7,4096,1,8,8,130,100,0.1,0.5,100,13,100,200,2,1.5" for at, name in enumerate("abc")]
    path = tmp_path / "three.csv"
    path.write_text(HEAD + "\n".join(rows) + "\n")
    return str(path)


def figures(*arguments):
    result = CliRunner().invoke(app, ["bench", *arguments, "--json", "-"], catch_exceptions=False)
    assert result.exit_code == 0
    return json.loads(result.stdout)


def test_weave_stands_beside_free_moves_on_a_piece_of_a_trace(jobs):
    (one,) = figures("drift", jobs, "--jobs", "2")
    assert one["jobs"] == 2 and one["audited"] is True
    assert one["ratio"] == pytest.approx(one["usd"] / one["hourly_usd"])
    assert one["slo_attainment"] == one["hourly_slo_attainment"] == 1.0


def test_each_reaction_is_run_at_each_drift_and_drawn(jobs, tmp_path):
    found = figures("reactions", jobs, "--drift", "1,1.8", "--plot", str(tmp_path / "drawn"))
    assert [(one["drift"], one["reaction"]) for one in found] == [
        (drift, reaction)
        for drift in (1.0, 1.8)
        for reaction in ("none", "rescue", "incremental", "resubmit", "global")
    ]
    assert all(one["audited"] for one in found)
    assert {one["plans"] for one in found if one["drift"] == 1.0} == {0}
    assert len({one["usd"] for one in found if one["drift"] == 1.0}) == 1
    assert min(one["plans"] for one in found if one["drift"] == 1.8) > 0
    assert sorted(path.name for path in (tmp_path / "drawn").iterdir()) == ["reactions.png", "reactions.svg"]


def test_a_job_has_drifted_as_late_as_it_is_said_to(jobs):
    early, late = figures("reactions", jobs, "--error", "0.05,0.2", "--reactions", "none")
    assert early["plans"] > late["plans"] > 0
