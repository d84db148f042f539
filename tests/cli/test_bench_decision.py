"""The decision benchmark at a size that fits a test: its arrivals are what they are named for."""

import json

import pytest
from typer.testing import CliRunner

from weaverl.cli.bench_decision import measure_decisions, sizes_up_to
from weaverl.cli.main import app
from weaverl.errors import UsageError
from weaverl.scheduling.policies.weave import FEW


def test_every_kind_of_arrival_is_timed_at_groups_of_two_and_more():
    admitted = []
    figures = measure_decisions(60, 10, admitted.append)
    assert len(admitted) == 60
    assert figures.jobs / figures.groups >= 2
    assert set(figures.kinds) == {"refused_by_memory", "refused_by_promises", "feasible"}
    assert figures.p50_ms == max(kind.p50_ms for kind in figures.kinds.values()) <= figures.p99_ms


def test_weave_is_timed_among_more_groups_than_it_looks_at():
    figures = measure_decisions(100, 10, lambda admitted: None, "weave")
    assert figures.policy == "weave"
    assert figures.groups > FEW
    assert figures.jobs / figures.groups >= 2
    assert set(figures.kinds) == {"refused_by_memory", "refused_by_promises", "feasible"}


def test_a_policy_that_shares_no_nodes_is_not_timed():
    with pytest.raises(UsageError, match=r"--policy is 'solo'.*choose weave-paper or weave"):
        CliRunner().invoke(app, ["bench", "decision", "--policy", "solo"], catch_exceptions=False)


def test_a_sweep_is_a_list_up_to_the_number_asked():
    assert sizes_up_to(2000) == [10, 30, 100, 300, 1000, 2000]
    result = CliRunner().invoke(
        app, ["bench", "decision", "--jobs", "30", "--sweep", "--arrivals", "10", "--json", "-"]
    )
    assert [one["jobs"] for one in json.loads(result.stdout)] == [10, 30]


def test_one_job_is_no_group():
    with pytest.raises(UsageError, match="--jobs is 1"):
        CliRunner().invoke(app, ["bench", "decision", "--jobs", "1"], catch_exceptions=False)
