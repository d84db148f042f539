"""`weaverl bench snapshots`: ratios of 1 and more, by number of jobs."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from typer.testing import CliRunner

from weaverl.cli import bench_snapshots
from weaverl.cli.bench_snapshots import _One, measure_snapshots
from weaverl.cli.main import app
from weaverl.errors import UsageError


def test_no_snapshots_is_refused():
    with pytest.raises(UsageError, match="--snapshots is 0: give 1 or more"):
        CliRunner().invoke(app, ["bench", "snapshots", "--snapshots", "0"], catch_exceptions=False)


@pytest.mark.parametrize("workers", ["0", "1025"])
def test_no_workers_and_too_many_are_refused(workers):
    with pytest.raises(UsageError, match=f"--workers is {workers}: give 1 to 1,024"):
        CliRunner().invoke(app, ["bench", "snapshots", "--workers", workers], catch_exceptions=False)


@pytest.mark.parametrize("seed", [-1, 10**32])
def test_a_seed_that_is_none_is_refused(seed):
    result = CliRunner().invoke(app, ["bench", "snapshots", "--seed", str(seed), "--snapshots", "0"])
    assert result.exit_code == 2


@pytest.mark.parametrize("hours", ["0", "-1", "nan"])
def test_a_horizon_that_is_none_is_refused(hours):
    with pytest.raises(UsageError, match=f"--horizon is {float(hours)}: give hours above 0, or inf"):
        CliRunner().invoke(app, ["bench", "snapshots", "--horizon", hours], catch_exceptions=False)


def test_what_is_found_does_not_depend_on_the_number_of_workers(monkeypatch):
    monkeypatch.setattr(bench_snapshots, "ProcessPoolExecutor", lambda workers, *_: ThreadPoolExecutor(workers))
    monkeypatch.setattr(bench_snapshots, "states", lambda seed, trace: [seed, trace] if trace % 3 else [])
    monkeypatch.setattr(bench_snapshots, "_measured", lambda state, horizon_us: _One(state, 1.0 + state, 1.0, 1, 0.0))
    told = []
    figures = [measure_snapshots(7, 50, workers, lambda: told.append(1)) for workers in (1, 2, 5)]
    assert {tuple(one.by_jobs) for one in figures} == {("1", "2", "4", "50")}
    assert {(one.snapshots, one.mean_ratio, one.worst_ratio) for one in figures} == {(7, 1 + 207 / 7, 51.0)}
    assert len(told) == 21


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_nothing_is_cheaper_than_the_best_regrouping():
    result = CliRunner().invoke(app, ["bench", "snapshots", "--snapshots", "4", "--json", "-"])
    figures = json.loads(result.stdout)
    assert figures["snapshots"] == sum(one["snapshots"] for one in figures["by_jobs"].values()) == 4
    assert sum(figures["by_jobs"].get(jobs, {"snapshots": 0})["snapshots"] for jobs in ("7", "8")) == 2
    assert 1.0 <= figures["least_ratio"] <= figures["mean_ratio"] <= figures["worst_ratio"]
    assert 1.0 <= figures["settled_mean_ratio"] <= figures["settled_worst_ratio"]
