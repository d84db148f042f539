"""A fixed fleet: each pool has its own limit, and what is said of its makespan."""

import msgspec
import pytest

from simulation.small import FREE, row, trace
from weaverl.domain.cluster import PoolKind
from weaverl.reports.recorded import audit_recorded
from weaverl.simulation.costs import Costs
from weaverl.simulation.earliest_end import EarliestEnd
from weaverl.simulation.fleet import limited, without_limits
from weaverl.simulation.simulate import Setup, simulate, simulate_heard
from weaverl.simulation.timeline import Recorder
from weaverl.simulation.workload import drawn_work, simulated_job


def fleet(rollout: int, training: int, **more) -> Costs:
    return msgspec.structs.replace(FREE, max_rollout_nodes=rollout, max_training_nodes=training, **more)


def test_a_pool_without_its_own_limit_has_that_of_both():
    costs = Costs(max_nodes_per_pool=5, max_training_nodes=3)
    assert (costs.most_nodes(PoolKind.ROLLOUT), costs.most_nodes(PoolKind.TRAINING)) == (5, 3)
    assert costs.is_fleet
    assert not Costs(max_training_nodes=3).is_fleet


def test_only_the_limited_pool_runs_out_of_nodes():
    jobs = [row(name, rollout=100.0, training=100.0) for name in "abc"]
    costs = msgspec.structs.replace(FREE, max_training_nodes=2)
    found = simulate(trace(*jobs), Setup(policy="solo", costs=costs))
    assert msgspec.structs.astuple(found.peak_gpus) == (16, 16)
    assert found.mean_wait_hours == pytest.approx(400 / 3 / 3600)
    assert found.makespan_bound_hours is None


def test_a_share_of_the_peak_is_rounded_up_in_each_pool():
    setup = Setup(policy="weave", objective="throughput", costs=fleet(1, 1))
    jobs = [row("a", rollout_gpus=16), row("b"), row("c")]
    free = without_limits(setup)
    peak = simulate(trace(*jobs), free)
    assert (free.policy, msgspec.structs.astuple(peak.peak_gpus)) == ("solo", (32, 24))
    costs = limited(setup.costs, peak, 0.6)
    assert (costs.max_rollout_nodes, costs.max_training_nodes) == (3, 2)
    assert limited(setup.costs, peak, 0.5).max_rollout_nodes == 2
    assert limited(setup.costs, peak, 0.01).max_rollout_nodes == 1


def test_waiting_counts_in_makespan_and_completion():
    """Two jobs of 300 s on one node of each pool, the second at 100 s."""
    jobs = [row("a"), row("b", at=100.0)]
    found = simulate(trace(*jobs), Setup(policy="solo", costs=fleet(1, 1)))
    assert found.makespan_hours == pytest.approx(600 / 3600)
    assert found.mean_wait_hours == pytest.approx(100 / 3600)
    assert found.mean_completion_hours == pytest.approx((300 + 500) / 2 / 3600)


def earliest_seconds(costs: Costs, *jobs) -> float:
    bound = EarliestEnd(costs)
    for job in jobs:
        bound.add(simulated_job(job, costs), drawn_work(job, costs, 0))
    return bound.at_us / 1e6


def test_nobody_ends_before_its_shortest_life():
    """300 s on both pools, 320 s on training GPUs alone."""
    assert earliest_seconds(fleet(9, 9), row("a", at=10.0), row("b")) == pytest.approx(310.0)
    assert earliest_seconds(fleet(9, 9, cold_start_seconds=(50.0, 50.0)), row("a")) == pytest.approx(350.0)


def test_a_sync_is_saved_where_all_phases_run_on_one_pool():
    synced = row("a", sync_gib=100 * 20 / 8 / 1.073741824 / 1.15)
    assert earliest_seconds(fleet(9, 9), synced) == pytest.approx(320.0)


def test_all_devices_must_do_what_arrives_from_any_moment_on():
    """Ten jobs of 300 s of one node each at 1,000 s, on three nodes."""
    late = [row(f"j{number}", at=1000.0) for number in range(10)]
    assert earliest_seconds(fleet(2, 1), row("early"), *late) == pytest.approx(2000.0)


@pytest.mark.parametrize("policy", ["gavel", "weave-paper", "colocated", "solo"])
def test_no_policy_beats_the_bound_and_the_auditor_finds_the_same(policy):
    jobs = [
        row(f"j{n}", at=60.0 * n, iterations=5, rollout_max_seconds=300.0, rollout_cv=0.3, sync_gib=30.0)
        for n in range(6)
    ]
    setup = Setup(policy=policy, costs=Costs(max_rollout_nodes=2, max_training_nodes=1))
    recorder = Recorder()
    finished = simulate_heard(trace(*jobs), setup, (), recorder=recorder)
    found = finished.outcome
    assert found.makespan_bound_hours is not None
    assert found.makespan_hours >= found.makespan_bound_hours
    assert audit_recorded(trace(*jobs), finished.cluster, recorder, found).audited
    wrong = msgspec.structs.replace(found, makespan_bound_hours=found.makespan_bound_hours * 1.001)
    audit = audit_recorded(trace(*jobs), finished.cluster, recorder, wrong)
    assert [one.message for one in audit.findings if "makespan_bound" in one.message]
    fewer = {**found.parameters, "max_rollout_nodes": 1}
    audit = audit_recorded(trace(*jobs), finished.cluster, recorder, msgspec.structs.replace(found, parameters=fewer))
    assert any("had 2 nodes, 1 were allowed" in one.message for one in audit.findings)
