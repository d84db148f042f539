import random

import msgspec
import pytest

from weaverl.simulation.costs import Costs
from weaverl.simulation.fluid import (
    bubble_free_usd,
    colocated_job_seconds,
    colocated_usd,
    mean_rollout_seconds,
    solo_job_seconds,
    solo_usd,
)
from weaverl.simulation.traces.records import Trace, TraceJob
from weaverl.simulation.workload import drawn_work

JOB = TraceJob(
    job_id="a",
    tenant="t",
    arrival_seconds=0.0,
    iterations=100,
    model_billions=7.0,
    max_tokens=8192,
    turns=1,
    rollout_gpus=8,
    training_gpus=16,
    rollout_max_seconds=300.0,
    rollout_mean_seconds=200.0,
    rollout_cv=0.0,
    rollout_p80=0.5,
    training_seconds=100.0,
    sync_gib=10.0,
    rollout_host_gib=1.0,
    training_host_gib=1.0,
    slo=1.5,
)
COSTS = Costs(rollout_usd_per_gpu_hour=1.8, training_usd_per_gpu_hour=3.6)


def trace(*jobs):
    return Trace(name="hand", jobs=jobs)


def job(**changes):
    return msgspec.structs.replace(JOB, **changes)


def test_a_solo_job_pays_both_pools_from_its_cold_start_to_its_end():
    sync = 10 * 8 * 1.073741824 / 20 * 1.15
    seconds = 80 + 100 * (200 + 100 + sync)
    assert solo_job_seconds(JOB, COSTS) == pytest.approx(seconds)
    assert solo_usd(trace(JOB), COSTS) == pytest.approx(seconds * (8 * 1.8 + 16 * 3.6) / 3600)


def test_a_colocated_job_pays_training_nodes_alone_with_slower_rollouts_and_two_switches():
    seconds = 80 + 100 * (220 + 100 + 0.9 + 4.1)
    assert colocated_job_seconds(JOB, COSTS) == pytest.approx(seconds)
    assert colocated_usd(trace(JOB), COSTS) == pytest.approx(seconds * 16 * 3.6 / 3600)


def test_without_bubbles_only_busy_devices_are_paid():
    rollout, training = 100 * 200 * 8 * 1.8 / 3600, 100 * 100 * 16 * 3.6 / 3600
    assert bubble_free_usd(trace(JOB), COSTS, False) == pytest.approx(rollout + training)
    tail = 100 * (0.5 * 200 + 0.25 * (0.5 * 200 * 1.05 + 1)) * 8 * 1.8 / 3600
    assert bubble_free_usd(trace(JOB), COSTS, True) == pytest.approx(tail + training)


def test_a_tail_is_not_moved_where_that_would_cost_more():
    short = job(rollout_mean_seconds=0.2)
    assert bubble_free_usd(trace(short), COSTS, True) == bubble_free_usd(trace(short), COSTS, False)


def test_a_node_is_paid_whole():
    assert solo_usd(trace(job(rollout_gpus=1, training_gpus=9)), COSTS) == solo_usd(trace(JOB), COSTS)


def test_growth_counts_by_its_mean_over_the_iterations():
    assert mean_rollout_seconds(job(rollout_growth=1.4)) == pytest.approx(200 * 1.2)
    assert mean_rollout_seconds(job(rollout_growth=1.4, iterations=1)) == 200


def test_a_capped_lognormal_has_the_mean_that_draws_have():
    wide = job(rollout_cv=0.5, rollout_max_seconds=250.0)
    chance = random.Random(1)
    sigma = (2 * 0.11157177565710488) ** 0.5  # ln(1 + 0.5^2) = 0.2231...
    mu = 5.298317366548036 - sigma**2 / 2  # ln 200
    draws = [min(chance.lognormvariate(mu, sigma), 250.0) for _ in range(100_000)]
    assert mean_rollout_seconds(wide) == pytest.approx(sum(draws) / len(draws), rel=5e-3)


def test_costs_of_a_trace_are_sums_over_its_jobs():
    other = job(job_id="b", model_billions=32.0, iterations=7, rollout_cv=0.2)
    for usd in (solo_usd, colocated_usd, lambda some, costs: bubble_free_usd(some, costs, True)):
        assert usd(trace(JOB, other), COSTS) == pytest.approx(usd(trace(JOB), COSTS) + usd(trace(other), COSTS))
    assert bubble_free_usd(trace(JOB, other), COSTS, False) < solo_usd(trace(JOB, other), COSTS)


@pytest.mark.parametrize("training", [20.0, 190.0, 220.0, 400.0])
@pytest.mark.parametrize(("cv", "growth"), [(0.0, 1.0), (0.3, 1.0), (0.3, 1.6)])
def test_a_job_a_step_ahead_takes_the_longer_one_of_each_rollout_and_the_training_before_it(training, cv, growth):
    of = job(staleness=1, training_seconds=training, rollout_cv=cv, rollout_growth=growth, iterations=40)
    drawn = [
        sum(drawn_work(msgspec.structs.replace(of, job_id=f"{seed}"), COSTS, seed).solo_us()) for seed in range(120)
    ]
    assert solo_job_seconds(of, COSTS) - 80 == pytest.approx(sum(drawn) / len(drawn) / 1e6, rel=0.006)


def test_a_job_without_iterations_takes_its_cold_start():
    assert solo_job_seconds(job(staleness=1, iterations=0), COSTS) == 80
