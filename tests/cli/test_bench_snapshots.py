"""`weaverl bench snapshots`: ratios of 1 and more, by number of jobs."""

import json

import pytest
from typer.testing import CliRunner

from weaverl.cli.main import app
from weaverl.errors import UsageError


def test_no_snapshots_is_refused():
    with pytest.raises(UsageError, match="--snapshots is 0: give 1 or more"):
        CliRunner().invoke(app, ["bench", "snapshots", "--snapshots", "0"], catch_exceptions=False)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_nothing_is_cheaper_than_the_best_regrouping():
    result = CliRunner().invoke(app, ["bench", "snapshots", "--snapshots", "4", "--json", "-"])
    figures = json.loads(result.stdout)
    assert figures["snapshots"] == sum(one["snapshots"] for one in figures["by_jobs"].values()) == 4
    assert sum(figures["by_jobs"].get(jobs, {"snapshots": 0})["snapshots"] for jobs in ("7", "8")) == 2
    assert 1.0 <= figures["least_ratio"] <= figures["mean_ratio"] <= figures["worst_ratio"]
    assert 1.0 <= figures["settled_mean_ratio"] <= figures["settled_worst_ratio"]
