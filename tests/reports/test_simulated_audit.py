"""Each figure and each rule of a simulated run, broken on purpose, is found."""

import msgspec
import numpy as np
import pytest

from simulation.small import row, trace
from weaverl.domain.jobs import PhaseKind
from weaverl.reports.audit import audit_simulated, read_simulated, table_of_rows
from weaverl.reports.recorded import audit_recorded, header_of, write_recorded
from weaverl.reports.timeline_file import read_timeline
from weaverl.simulation.costs import Costs
from weaverl.simulation.simulate import Setup, simulate_heard
from weaverl.simulation.timeline import Recorder

JOBS = trace(
    row("a", iterations=12, rollout=100, training=100, rollout_max_seconds=150, rollout_cv=0.2, sync_gib=10.0),
    row("b", at=300, iterations=9, rollout=80, training=90, rollout_max_seconds=150, rollout_cv=0.2, sync_gib=10.0),
    row("c", at=5000, iterations=5, rollout_gpus=16, slo=1.1),
)
ROLLOUT, TRAINING = 1, 2


@pytest.fixture(scope="module")
def run():
    recorder = Recorder()
    return simulate_heard(JOBS, Setup(seed=3, costs=Costs()), (), recorder=recorder), recorder


def audited(run, change=lambda table: None, reported=None):
    finished, recorder = run
    header = msgspec.to_builtins(header_of(finished.cluster, recorder))
    slots = [[(slot.node, slot.device) for slot in where] for where in recorder.slots]
    spans = [msgspec.to_builtins(span) for span in recorder.spans]
    table = table_of_rows(header, list(recorder.jobs), slots, np.array(recorder.rows), spans)
    change(table)
    rows = [msgspec.to_builtins(job) for job in JOBS.jobs]
    outcome = msgspec.to_builtins(finished.outcome)
    return audit_simulated(table, rows, finished.outcome.parameters, outcome | (reported or {}))


def found(run, change=lambda table: None, reported=None):
    return {finding.check for finding in audited(run, change, reported).findings}


def test_a_simulated_run_is_as_it_says(run):
    finished, recorder = run
    result = audit_recorded(JOBS, finished.cluster, recorder, finished.outcome)
    assert result.findings == ()
    assert result.figures["usd"] == pytest.approx(finished.outcome.usd)
    assert result.figures["jobs_finished"] == 3


@pytest.mark.parametrize("name", ["usd", "hours", "usd_per_hour", "slo_attainment", "jobs_finished"])
def test_a_wrong_figure_is_found(run, name):
    value = getattr(run[0].outcome, name)
    assert found(run, reported={name: value * 1.001}) == {"figure"}


@pytest.mark.parametrize("name", ["peak_gpus", "mean_gpus", "bubbles"])
def test_a_wrong_figure_of_a_pool_is_found(run, name):
    value = msgspec.to_builtins(getattr(run[0].outcome, name))
    assert found(run, reported={name: value | {"training": value["training"] + 0.01}}) == {"figure"}


def first(table, phase, job=0):
    return np.flatnonzero((table["phase"] == phase) & (table["job"] == job))[0]


def longer_body(table):
    table["ended_at"][first(table, ROLLOUT)] += 1000
    table["released_at"][first(table, ROLLOUT)] += 1000


def longer_hold(table):
    table["released_at"][first(table, ROLLOUT)] += 1_000_000_000


def other_draw(table):
    table["solo_us"][first(table, ROLLOUT)] = 151_000_000


def other_training(table):
    table["solo_us"][first(table, TRAINING)] += 10


def lost_iteration(table):
    rows = np.flatnonzero(~((table["job"] == 1) & (table["iteration"] == 4)))
    table.columns.update(table.take(rows).columns)


def node_given_back_early(table):
    table.spans[0]["given_back_at"] -= 600_000_000


def node_taken_twice(table):
    table.spans.append(table.spans[0] | {"group": "other"})


@pytest.mark.parametrize(
    ("change", "check"),
    [
        (longer_body, "work"),
        (longer_body, "order"),
        (longer_hold, "holders"),
        (other_draw, "draws"),
        (other_training, "draws"),
        (lost_iteration, "once"),
        (node_given_back_early, "owners"),
        (node_taken_twice, "owners"),
    ],
)
def test_each_fault_is_found(run, change, check):
    assert check in found(run, change)


def test_the_file_tells_the_auditor_the_same(run, tmp_path):
    finished, recorder = run
    write_recorded(tmp_path / "timeline", finished.cluster, recorder)
    rows = [msgspec.to_builtins(job) for job in JOBS.jobs]
    table = read_simulated(tmp_path / "timeline")
    result = audit_simulated(table, rows, finished.outcome.parameters, msgspec.to_builtins(finished.outcome))
    assert result.findings == ()
    assert result.figures == pytest.approx(audited(run).figures)


def test_the_file_can_be_read_as_any_timeline(run, tmp_path):
    finished, recorder = run
    write_recorded(tmp_path / "timeline", finished.cluster, recorder)
    read = read_timeline(tmp_path / "timeline")
    rollouts = [one for one in read.timeline.intervals if one.phase is PhaseKind.ROLLOUT and one.part == 0]
    assert len(rollouts) == 12 + 9 + 5
    assert {span.node for span in read.spans} <= {node.name for node in read.header.cluster.nodes}
    assert [len(job.pins) for job in read.header.jobs] == [1, 1, 1]
