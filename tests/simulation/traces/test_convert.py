"""Public arrivals as RL jobs: real arrivals and durations, synthetic profiles, everything left out counted."""

import pytest

from weaverl.errors import UsageError
from weaverl.simulation.costs import Costs
from weaverl.simulation.traces.convert import Window, with_profiles
from weaverl.simulation.traces.profiles import solo_iteration_seconds
from weaverl.simulation.traces.records import Arrival, Arrivals

COSTS = Costs()
HOUR = 3600.0


def arrivals(*jobs: tuple[float, float, float]) -> Arrivals:
    made = (
        Arrival(job_id=f"a{i}", tenant="vc", submit_seconds=at * HOUR, duration_seconds=hours * HOUR, gpus=gpus)
        for i, (at, hours, gpus) in enumerate(jobs)
    )
    return Arrivals(name="public", origin="0 s", arrivals=tuple(made), skipped={"never started": 2})


def test_jobs_of_the_window_keep_arrival_and_length_and_the_others_are_counted():
    source = arrivals((0, 10, 8), (5, 10, 8), (6, 0.1, 8), (7, 200, 8), (8, 30, 1), (9, 50, 16), (20, 10, 8))
    window = Window(start_hours=5.0, hours=15.0, min_gpus=2)
    trace = with_profiles(source, window, 0, COSTS)
    assert [(job.job_id, job.arrival_seconds) for job in trace.jobs] == [("a1", 0.0), ("a5", 4 * HOUR)]
    for job, hours in zip(trace.jobs, (10, 50), strict=True):
        one = solo_iteration_seconds(job, COSTS)
        assert abs(job.iterations * one - hours * HOUR) <= one / 2
    assert trace.skipped == {
        "never started": 2,
        "outside the window": 2,
        "under 2 GPUs": 1,
        "shorter than 0.5 h": 1,
        "longer than 168 h": 1,
    }
    assert trace.rows == source.rows


def test_a_job_shorter_than_an_iteration_has_one():
    trace = with_profiles(arrivals((0, 0.001, 8)), Window(start_hours=0.0, shortest_hours=0.0), 0, COSTS)
    assert trace.jobs[0].iterations == 1


def test_too_many_jobs_are_thinned_by_lot_over_the_whole_window():
    source = arrivals(*((hour / 10, 10, 8) for hour in range(1000)))
    trace = with_profiles(source, Window(start_hours=0.0, most_jobs=100), 0, COSTS)
    at = [job.arrival_seconds / HOUR for job in trace.jobs]
    assert len(at) == 100 and at == sorted(at) and at[0] < 10 and at[-1] > 90
    assert trace.skipped["over 100 jobs, by lot"] == 900
    assert with_profiles(source, Window(start_hours=0.0, most_jobs=100), 1, COSTS).jobs != trace.jobs


def test_a_window_without_jobs_is_refused():
    with pytest.raises(UsageError, match=r"public has no job from hour 100 on .*2 never started, 1 outside the window"):
        with_profiles(arrivals((0, 10, 8)), Window(start_hours=100.0), 0, COSTS)


def test_300_jobs_of_a_window_of_the_philly_trace(philly_file):
    trace = with_profiles(philly_file, Window(), 3, COSTS)
    assert len(trace.jobs) == 300 and trace.rows == 82_247
    assert trace.jobs == with_profiles(philly_file, Window(), 3, COSTS).jobs
    assert all(0 <= job.arrival_seconds < 580 * HOUR for job in trace.jobs)
