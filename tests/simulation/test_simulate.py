import pytest

from simulation.small import FREE, row, trace
from weaverl.simulation.costs import Costs, LinkSharing
from weaverl.simulation.simulate import Setup, simulate

HOUR = 3600.0
NODE_PAIR = 8 * (1.85 + 5.28)


def run(*jobs, policy="weave-paper", costs=FREE, seed=None):
    return simulate(trace(*jobs), Setup(policy=policy, seed=seed, costs=costs))


def test_a_job_alone_takes_its_solo_time_and_pays_for_its_nodes():
    outcome = run(row(iterations=10), policy="solo")
    assert outcome.hours * HOUR == pytest.approx(1500.0)
    assert outcome.usd == pytest.approx(NODE_PAIR * 1500.0 / HOUR)
    assert (outcome.slowdown.max, outcome.slo_attainment) == (1.0, 1.0)
    assert (outcome.bubbles.rollout, outcome.bubbles.training) == pytest.approx((1 / 3, 2 / 3))
    assert (outcome.peak_gpus.rollout, outcome.mean_gpus.training) == pytest.approx((8, 8))


def test_a_cold_start_is_paid_for_and_is_no_slowdown():
    costs = Costs(cold_start_seconds=(80.0, 80.0), tail_migration=False)
    outcome = run(row(iterations=10), policy="solo", costs=costs)
    assert outcome.hours * HOUR == pytest.approx(1580.0)
    assert outcome.slowdown.max == 1.0


def test_two_complementary_jobs_share_nodes_at_no_slowdown():
    outcome = run(
        row("a", iterations=10, rollout=100, training=100), row("b", iterations=10, rollout=100, training=100)
    )
    assert outcome.hours * HOUR == pytest.approx(2100.0)
    assert outcome.usd == pytest.approx(NODE_PAIR * 2100.0 / HOUR)
    assert outcome.jobs_finished == 2
    assert outcome.slowdown.max == pytest.approx(1.05)  # b waits for a's first rollout once


def test_switches_are_paid_on_shared_nodes_alone():
    costs = Costs(
        rollout_switch_seconds=(1.0, 1.0),
        training_switch_seconds=(2.0, 2.0),
        cold_start_seconds=(0.0, 0.0),
        tail_migration=False,
    )
    alone = run(row(iterations=10), policy="solo", costs=costs)
    assert alone.hours * HOUR == pytest.approx(1500.0)
    colocated = run(row(iterations=10), policy="colocated", costs=costs)
    # Each phase displaces the other's state; the first rollout finds the slots as the cold start left them.
    assert colocated.hours * HOUR == pytest.approx(10 * (110 + 50) + 10 * 2 + 9 * 1)
    assert colocated.peak_gpus.rollout == 0


def test_a_shared_link_slows_syncs_that_meet():
    costs = Costs(link_sharing=LinkSharing.SHARED, cold_start_seconds=(0.0, 0.0), tail_migration=False)
    gib = 100.0 / (8 * 1.073741824 / 20 * 1.15)
    jobs = [row(name, iterations=1, sync_gib=gib) for name in "ab"]
    assert run(*jobs, policy="solo", costs=costs).hours * HOUR == pytest.approx(350.0)


def test_one_seed_gives_one_outcome_and_the_same_draws_under_every_policy():
    jobs = [row(name, rollout_cv=0.2, rollout_max_seconds=300.0, iterations=20) for name in "abc"]
    first, second, other = (
        simulate(trace(*jobs), Setup(policy="solo", seed=seed, timings=False)) for seed in (1, 1, 2)
    )
    assert first == second
    assert first.usd != other.usd
    woven = simulate(trace(*jobs), Setup(seed=1, timings=False))
    assert woven.bound_multiple / woven.usd == pytest.approx(first.bound_multiple / first.usd)


def test_a_job_that_can_never_fit_ends_the_run_at_once():
    outcome = run(row(at=1000.0, rollout_gpus=8, rollout_host_gib=5000.0))
    assert (outcome.jobs, outcome.jobs_admitted, outcome.usd, outcome.hours) == (1, 0, 0.0, 0.0)
    assert "5000.0 GiB of host memory on each rollout node" in next(iter(outcome.refused))


def test_an_empty_trace_is_an_empty_run():
    outcome = run()
    assert (outcome.jobs, outcome.usd, outcome.slo_attainment) == (0, 0.0, 0.0)


def test_jobs_wait_where_nodes_are_limited():
    costs = Costs(max_nodes_per_pool=1, cold_start_seconds=(0.0, 0.0), tail_migration=False)
    outcome = run(row("a", iterations=10), row("b", at=1.0, iterations=10), policy="solo", costs=costs)
    assert outcome.jobs_finished == 2
    assert outcome.wait_hours.max * HOUR == pytest.approx(1499.0)
    assert outcome.hours * HOUR == pytest.approx(3000.0)
    assert outcome.peak_gpus.rollout == 8


def test_tenants_share_a_group_s_cost_by_what_their_jobs_would_cost_alone():
    jobs = [row(name, iterations=10, rollout=100, training=100, tenant=name) for name in "ab"]
    outcome = run(*jobs)
    assert sum(one.usd for one in outcome.tenants.values()) == pytest.approx(outcome.usd)
    assert outcome.tenants["a"].usd < outcome.tenants["b"].usd  # b stays on alone for its last iteration
    assert outcome.fairness == pytest.approx(1.0, abs=0.01)
