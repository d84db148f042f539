import msgspec
import pytest

from reports.reproduction_example import outcome
from weaverl.simulation.reproduction.cases import mixes
from weaverl.simulation.reproduction.ideal import over_ideal
from weaverl.simulation.reproduction.records import CostStep, Life, Result
from weaverl.simulation.traces.records import Trace


def step(hours, usd):
    return CostStep(hours=hours, rollout_usd_per_hour=usd / 4, training_usd_per_hour=usd * 3 / 4)


def life(job, began, ended):
    return Life(job=job, began_hours=began, ended_hours=ended)


JOBS = tuple(msgspec.structs.replace(job, rollout_growth=2.0) for job in mixes(10)[1].jobs)
TRACE = Trace(name="three", jobs=JOBS)
RUN = Result(
    study="",
    outcome=outcome("weave-paper", "three", 100.0, hours=10.0),
    slowdowns=(),
    slos=(),
    steps=(step(0.0, 100.0), step(5.0, 160.0), step(8.0, 0.0)),
    lives=(life("a", 0.0, 8.0), life("b", 5.0, 8.0), life("c", 5.0, 8.0)),
)


def test_each_sample_sets_what_was_paid_against_the_ideal_for_the_jobs_that_ran():
    found = over_ideal(RUN, TRACE, lambda jobs: 50.0 * len(jobs), 2.0)
    # At 1, 3: 100 against 50; at 5, 7: 160 against 150; at 9 nothing runs.
    assert (found.usd, found.ideal_usd) == (520.0, 400.0)
    assert (found.samples, found.too_large, found.most_jobs) == (4, 0, 3)
    assert found.ratio == pytest.approx(1.3)


def test_moments_with_too_many_jobs_are_counted_and_not_estimated():
    found = over_ideal(RUN, TRACE, lambda jobs: 50.0 if len(jobs) < 3 else None, 2.0)
    assert (found.usd, found.ideal_usd) == (200.0, 100.0)
    assert (found.samples, found.too_large, found.most_jobs) == (2, 2, 1)


def test_a_drifting_job_is_planned_at_the_durations_it_has_reached():
    seen = []
    over_ideal(RUN, TRACE, lambda jobs: seen.append([job.rollout_mean_seconds for job in jobs]) or 1.0, 4.0)
    # Job a doubles over 8 hours: at 2 h it has grown by a quarter. At 6 h b and c are a third on their way.
    assert seen[0] == [pytest.approx(330 * 1.25)]
    assert seen[1] == [pytest.approx(330 * 1.75), pytest.approx(360 * 4 / 3), pytest.approx(345 * 4 / 3)]
