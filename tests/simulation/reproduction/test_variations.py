import msgspec
import pytest

from weaverl.simulation.costs import Costs
from weaverl.simulation.fluid import solo_job_seconds
from weaverl.simulation.reproduction.cases import mixes
from weaverl.simulation.reproduction.variations import (
    every_nth,
    first_jobs,
    shortened,
    side_by_side,
    with_phase_ratio,
    with_slo,
    with_switch_times,
)

MIX = mixes(100)[1]


def test_a_shortened_trace_keeps_how_many_jobs_run_at_once():
    short = shortened(MIX, 10)
    assert [job.iterations for job in short.jobs] == [10, 10, 10]
    assert [job.arrival_seconds for job in short.jobs] == [0.0, 6.0, 12.0]
    assert shortened(MIX, 1000).jobs[0].iterations == 1


def test_jobs_side_by_side_take_equally_long_alone():
    trace = side_by_side(MIX, 2, 12.0, Costs())
    assert [job.arrival_seconds for job in trace.jobs] == [0.0, 60.0]
    for job in trace.jobs:
        assert solo_job_seconds(job, Costs()) == pytest.approx(12 * 3600, abs=300)


def test_a_phase_ratio_keeps_the_sum_and_the_cap_s_distance():
    (job, *_), (before, *_) = with_phase_ratio(MIX, 4.0).jobs, MIX.jobs
    assert job.rollout_mean_seconds / job.training_seconds == pytest.approx(4.0)
    assert job.rollout_mean_seconds + job.training_seconds == pytest.approx(
        before.rollout_mean_seconds + before.training_seconds
    )
    assert job.rollout_max_seconds / job.rollout_mean_seconds == pytest.approx(1.15)


def test_one_promise_for_all_and_nothing_else_changed():
    jobs = with_slo(MIX, 1.07).jobs
    assert [msgspec.structs.replace(job, slo=1.25) for job in jobs] == list(MIX.jobs)
    assert {job.slo for job in jobs} == {1.07}


def test_switch_times_scale_and_nothing_else():
    costs = with_switch_times(Costs(), 3.0)
    assert costs.rollout_switch_seconds == pytest.approx((2.7, 5.7))
    assert costs.training_switch_seconds == pytest.approx((12.3, 17.7))
    assert costs.cold_start_seconds == Costs().cold_start_seconds


def test_the_first_jobs_are_those_that_arrive_first():
    assert [job.job_id for job in first_jobs(MIX, 2).jobs] == ["a", "b"]


def test_every_second_job_is_kept():
    assert [job.job_id for job in every_nth(MIX, 2).jobs] == ["a", "c"]
