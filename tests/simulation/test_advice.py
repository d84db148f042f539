"""Advice with numbers worked out by hand: who shares nodes, at what slowdown and price, and why not."""

import msgspec
import pytest

from weaverl.domain.jobs import HostMemory, JobSpec, PhaseProfile, Role
from weaverl.errors import RefusedError
from weaverl.scheduling.round_model import Durations
from weaverl.scheduling.scheduler import Scheduler
from weaverl.scheduling.state import Parameters
from weaverl.simulation.advice import AdvisedJob, advise
from weaverl.simulation.costs import Costs
from weaverl.simulation.metrics import Metrics
from weaverl.simulation.standing import cluster_of, standing_scheduler, submit, with_enough_nodes
from weaverl.simulation.supply import Supply, empty_cluster
from weaverl.simulation.workload import SimulatedJob, Work
from weaverl.simulation.world import World

GIB = 2**30
SECOND = 1_000_000
CLUSTER = cluster_of(Costs())
ROLLOUT_NODE, TRAINING_NODE = 8 * 1.85, 8 * 5.28
OWN_NODES = ROLLOUT_NODE + TRAINING_NODE


def job(
    name: str,
    *iterations: tuple[float, float],
    slo: float = 1.5,
    host_gib: int = 100,
    gpus: int = 8,
    colocated: bool = False,
) -> AdvisedJob:
    """A job whose measured iterations are pairs of rollout and training seconds; no switches."""
    profile = PhaseProfile(
        rollout_max_seconds=max(rollout for rollout, _ in iterations),
        rollout_mean_seconds=sum(rollout for rollout, _ in iterations) / len(iterations),
        training_seconds=sum(training for _, training in iterations) / len(iterations),
    )
    spec = JobSpec(
        name=name,
        roles=(Role(name="run", command=("measured",)),),
        rollout_gpus=8,
        training_gpus=8,
        host_memory=HostMemory(rollout_bytes=host_gib * GIB, training_bytes=host_gib * GIB),
        slo=slo,
        profile=profile,
    )
    measured = tuple(Durations(round(rollout * SECOND), round(training * SECOND)) for rollout, training in iterations)
    return AdvisedJob(spec=spec, measured=measured, colocated=colocated)


def test_two_balanced_jobs_share_one_node_of_each_pool_and_cost_half():
    advice = advise([job("a", *[(10.0, 10.0)] * 10), job("b", *[(10.0, 10.0)] * 10)], CLUSTER)
    (group,) = advice.groups
    assert set(group.jobs) == {"a", "b"}
    assert (len(group.rollout_nodes), len(group.training_nodes)) == (1, 1)
    assert group.usd_per_hour == pytest.approx(OWN_NODES) and group.usd_per_hour_alone == pytest.approx(2 * OWN_NODES)
    # The second job's first rollout waits 10 s for the first's: 210 s instead of 200 s.
    assert sorted(one.slowdown for one in advice.jobs) == [1.0, 1.05]
    assert [one.predicted_slowdown for one in advice.jobs] == [1.0, 1.0]
    assert advice.usd_before == pytest.approx(2 * OWN_NODES * 200 / 3600)
    assert advice.usd_after == pytest.approx(OWN_NODES * 210 / 3600)
    assert advice.saved == pytest.approx(1 - 210 / 400) and advice.pays
    assert (advice.nodes_before, advice.nodes_after) == (4, 2)


def test_measured_iterations_and_not_their_mean_are_walked_through():
    # a: 10 + 10, then 30 + 10; b waits for a's rollout of each round.
    advice = advise([job("a", (10.0, 10.0), (30.0, 10.0), slo=3.0), job("b", *[(10.0, 10.0)] * 2, slo=3.0)], CLUSTER)
    by_name = {one.name: one for one in advice.jobs}
    # a rolls out 0-10 and 20-50 and trains 10-20 and 50-60; b rolls out 10-20 and 50-60 and trains 20-30 and 60-70.
    assert by_name["a"].slowdown == 1.0 and by_name["b"].slowdown == pytest.approx(70 / 40)
    (group,) = advice.groups
    last = max(group.phases, key=lambda phase: phase.end_us)
    assert (last.job, last.iteration, last.pool, last.start_us, last.end_us) == (
        "b",
        1,
        "training",
        60 * SECOND,
        70 * SECOND,
    )


def test_two_rollout_heavy_jobs_share_the_training_node_only():
    advice = advise([job(name, *[(20.0, 2.0)] * 5, slo=1.2) for name in ("a", "b")], CLUSTER)
    (group,) = advice.groups
    assert (len(group.rollout_nodes), len(group.training_nodes)) == (2, 1)
    assert group.usd_per_hour == pytest.approx(2 * ROLLOUT_NODE + TRAINING_NODE)


def test_a_short_job_beside_a_long_one_stays_alone_and_it_is_said_why():
    def pair(slo: float) -> list[AdvisedJob]:
        return [job("long", *[(100.0, 100.0)] * 5, slo=slo), job("short", *[(10.0, 10.0)] * 5, slo=slo)]

    advice = advise(pair(1.5), CLUSTER)
    assert sorted(group.jobs for group in advice.groups) == [("long",), ("short",)]
    assert advice.usd_after == advice.usd_before and not advice.pays and advice.saved == 0.0
    refusal = advice.jobs[0].refused[0]
    assert refusal.jobs == ("short",) and refusal.reason == "would slow short to 10.00x, its SLO is 1.50x"
    assert refusal.slo == 10.0
    assert len(advise(pair(10.0), CLUSTER).groups) == 1


def test_host_memory_that_holds_one_job_alone_keeps_them_apart():
    jobs = [job(name, *[(10.0, 10.0)] * 5, host_gib=900) for name in ("a", "b")]
    advice = advise(jobs, CLUSTER)
    assert len(advice.groups) == 2
    assert "needs 900 GiB on" in advice.jobs[0].refused[0].reason and advice.jobs[0].refused[0].slo is None


def test_jobs_that_ran_colocated_paid_for_training_nodes_only():
    jobs = [job(name, *[(10.0, 10.0)] * 10, colocated=True) for name in ("a", "b")]
    advice = advise(jobs, CLUSTER)
    assert advice.usd_per_hour_as_run == pytest.approx(2 * TRAINING_NODE)
    assert advice.usd_as_run == pytest.approx(2 * TRAINING_NODE * 200 / 3600)
    assert advice.pays
    alone = advise([job("a", *[(10.0, 10.0)] * 10, colocated=True)], CLUSTER)
    assert alone.usd_as_run < alone.usd_after and not alone.pays


def test_the_scheduler_itself_decides_who_shares_nodes():
    jobs = [job("a", *[(30.0, 10.0)] * 4), job("b", *[(10.0, 12.0)] * 4), job("c", *[(9.0, 8.0)] * 4, slo=2.0)]
    advice = advise(jobs, CLUSTER)
    groups = {frozenset(group.jobs) for group in advice.groups}
    found = set()
    for order in (jobs, jobs[::-1], [jobs[1], jobs[0], jobs[2]], [jobs[2], jobs[0], jobs[1]]):
        scheduler = standing_scheduler(with_enough_nodes(CLUSTER, [one.spec for one in jobs]), Parameters())
        for one in order:
            submit(scheduler, one.spec)
        found.add(frozenset(frozenset(group.members) for group in scheduler.state.groups.values()))
    assert frozenset(groups) in found


def test_more_jobs_than_all_orders_are_tried_for_are_advised_too():
    advice = advise([job(f"j{place}", *[(10.0, 10.0 + place)] * 3, slo=1.4) for place in range(6)], CLUSTER)
    assert sorted(name for group in advice.groups for name in group.jobs) == [f"j{place}" for place in range(6)]
    assert advice.pays


def test_a_job_that_no_node_holds_is_refused():
    with pytest.raises(RefusedError, match=r"asks 2000\.0 GiB of host memory"):
        advise([job("a", (10.0, 10.0), host_gib=2000)], CLUSTER)


def test_the_simulated_world_with_the_live_rotation_finds_the_same_slowdowns():
    jobs = [
        job("a", (80.0, 60.0), (95.0, 62.0), (70.0, 58.0), (88.0, 61.0)),
        job("b", (70.0, 72.0), (66.0, 70.0), (90.0, 75.0), (75.0, 71.0)),
    ]
    jobs = [AdvisedJob(spec=one.spec, measured=one.measured * 10) for one in jobs]
    advice = advise(jobs, CLUSTER)
    by_name = {one.name: one for one in jobs}
    order = [by_name[name] for name in advice.groups[0].jobs]
    assert len(advice.groups) == 1
    costs, runs = Costs(tail_migration=False), {}
    metrics = Metrics(costs, runs, lambda: None)
    world = World(
        Scheduler(empty_cluster(costs), Parameters()),
        costs,
        Supply(costs),
        lambda simulated: work_of(by_name[simulated.spec.name]),
        runs,
        [metrics],
    )
    world.run(SimulatedJob(spec=msgspec.structs.replace(one.spec, iterations=40), arrival_us=0) for one in order)
    walked = sorted(one.slowdown for one in advice.jobs)
    assert sorted(metrics.jobs.slowdown) == pytest.approx(walked, rel=1e-6)


def work_of(one: AdvisedJob) -> Work:
    return Work(
        [times.rollout_us for times in one.measured],
        [times.training_us for times in one.measured],
        [times.sync_us for times in one.measured],
        [times.other_us for times in one.measured],
    )
