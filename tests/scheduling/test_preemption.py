"""Running jobs make way for a waiting one of a higher priority: at the end of an iteration, few of them, seldom."""

from collections import Counter

import msgspec
import pytest
from builders import World, cluster, job, node
from hypothesis import given, settings
from hypothesis import strategies as st
from test_lifecycle import image
from test_moves import commands, each_once, ran, until_stopping

from weaverl.domain.commands import AdmitJob, ChangeJobState, DropMove, PlanMove
from weaverl.domain.events import JobCancelled, PhaseEnded
from weaverl.domain.jobs import ENDED, JobSpec, JobState
from weaverl.domain.sharing import Deadlines, Preemption, Sharing
from weaverl.domain.units import HOUR_US
from weaverl.scheduling.scheduler import Scheduler
from weaverl.scheduling.sharing.accounts import Account
from weaverl.scheduling.state import Parameters

LARGE = (900, 900)
AT_ONCE = Preemption(least_stay_seconds=0.0)
TWO = (node("r0"), node("t0"), node("r1"), node("t1"))


def saving(name: str, **more: object) -> JobSpec:
    return job(name, host_gib=LARGE, **({"checkpoint_directory": "here", "iterations": 8, "slo": 50.0} | more))


def shared(*nodes: object, preemption: Preemption | None = AT_ONCE, iterations: int = 8, **more: object) -> World:
    policy = more.pop("policy", "weave-paper")
    of = msgspec.structs.replace(cluster(*nodes), sharing=Sharing(preemption=preemption, **more))
    return World(of, iterations=iterations, parameters=Parameters(policy=policy))


def running(world: World, *specs: JobSpec) -> World:
    """Jobs that have come to their first rollout."""
    for spec in specs:
        world.submit(spec)
    while any(world.scheduler.state.jobs[spec.name].started_at is None for spec in specs):
        world.deliver()
    return world


def ran_by_rank(world: World, name: str) -> Counter[tuple[object, ...]]:
    ended = (event for event, _ in world.log if isinstance(event, PhaseEnded) and event.rank.job == name)
    return Counter((event.rank.role, event.rank.rank, event.phase, event.iteration) for event in ended)


def planned(world: World) -> list[str]:
    return [command.job for command in commands(world, PlanMove)]


@pytest.mark.parametrize("policy", ["weave-paper", "weave", "solo"])
def test_a_job_is_paused_at_the_end_of_an_iteration_and_runs_every_iteration_once(policy):
    world = running(shared(policy=policy), saving("low"))
    world.submit(saving("high", priority=1))
    assert planned(world) == ["low"]
    until_stopping(world, "low")
    low = world.scheduler.state.jobs["low"]
    assert low.reason == f"paused after iteration {low.iterations_done - 1}, so that high can start"
    world.run()
    low, high = (world.scheduler.state.jobs[name] for name in ("low", "high"))
    assert (low.state, low.attempt, low.preemptions, low.moves, low.retries) == (JobState.FINISHED, 2, 1, 0, 0)
    assert high.attempt == 1
    assert low.admitted_at >= high.ended_at, "it waits until the other is done"
    assert Counter(ran(world, "low")) == each_once(8)
    assert not world.scheduler.state.moves


@pytest.mark.parametrize(
    ("first", "second", "preemption"),
    [
        ({}, {"priority": 1}, None),
        ({}, {"priority": 1}, Preemption(least_stay_seconds=0.0, from_priority=2)),
        ({"priority": 1}, {"priority": 1}, AT_ONCE),
        ({"priority": 2}, {"priority": 1}, AT_ONCE),
        ({"checkpoint_directory": None}, {"priority": 1}, AT_ONCE),
        ({"slo": 1.0}, {"priority": 1}, AT_ONCE),
        ({"iterations": 2}, {"priority": 1}, AT_ONCE),
    ],
)
def test_nobody_is_paused_who_may_not_be(first, second, preemption):
    world = running(shared(preemption=preemption), saving("first", **first))
    world.submit(saving("second", **second))
    world.run()
    assert planned(world) == []
    assert world.scheduler.state.jobs["first"].attempt == 1


def test_a_job_is_not_paused_before_it_has_stayed_and_is_as_soon_as_it_has():
    world = running(shared(preemption=Preemption(least_stay_seconds=30.0)), saving("low"))
    world.submit(saving("high", priority=1))
    assert planned(world) == []
    assert len(world.timers) == 1
    world.fire_next_timer()
    assert planned(world) == ["low"]


def test_a_job_is_paused_so_often_and_not_again():
    world = running(shared(preemption=Preemption(least_stay_seconds=0.0, most_per_job=1)), saving("low"))
    for number in range(3):
        world.submit(saving(f"high-{number}", priority=1))
        while world.state(f"high-{number}") is not JobState.FINISHED:
            world.deliver()
        while world.scheduler.state.jobs["low"].started_at is None and world.state("low") not in ENDED:
            world.deliver()
    world.run()
    assert world.scheduler.state.jobs["low"].preemptions == 1


def test_a_job_whose_deadline_could_not_be_kept_afterwards_is_not_paused():
    of = shared(deadlines=Deadlines(first_start_seconds=0.0))
    world = running(of, saving("low", deadline_seconds=161.0))
    world.submit(saving("high", priority=1))
    assert planned(world) == []


def test_only_as_many_are_paused_as_are_needed_and_of_the_lowest_priority_first():
    specs = (saving("a", priority=1), saving("b"), saving("c", priority=1))
    nodes = [node(f"{pool}{number}") for pool in "rt" for number in range(3)]
    world = running(shared(*nodes), *specs)
    world.submit(saving("high", priority=2))
    assert planned(world) == ["b"]
    world.submit(saving("wide", priority=3, gpus=(16, 16)))
    while "wide" not in {command.job for command in commands(world, AdmitJob)}:
        world.deliver()
    assert len(planned(world)) <= 3


def test_a_job_on_two_nodes_gets_both_though_they_are_left_one_after_the_other():
    world = running(shared(*TWO), saving("a"), saving("b"))
    world.submit(saving("wide", priority=1, gpus=(16, 16)))
    assert sorted(planned(world)) == ["a", "b"]
    world.run()
    admissions = [command.job for command in commands(world, AdmitJob)]
    assert admissions[:3] == ["a", "b", "wide"], "who has left first does not take its place again"
    assert {world.scheduler.state.jobs[name].preemptions for name in "ab"} == {1}
    for name in "ab":
        assert Counter(ran(world, name)) == each_once(8)


def test_who_others_were_paused_for_starts_also_if_another_tenant_is_next_by_then():
    """The tenant of who has left has the least usage then, and a wide job that was behind."""
    world = running(shared(*TWO), saving("leaves", tenant="a", gpus=(16, 16)))
    world.submit(saving("high", tenant="b", priority=1))
    world.submit(saving("wide", tenant="a", priority=1, gpus=(16, 16), slo=1.0))
    state = world.scheduler.state
    while world.state("leaves") is not JobState.QUEUED:
        if world.state("leaves") is JobState.STOPPING:
            state.shares.accounts["b"] = Account(used=1e9, at=world.now)
        world.deliver()
    (for_whom,) = {command.move.paused_for for command in commands(world, PlanMove)}
    assert for_whom == "high"
    assert world.state("high") is not JobState.QUEUED
    assert world.state("wide") is JobState.QUEUED


def test_who_was_paused_goes_on_before_those_that_came_after_it():
    world = running(shared(), saving("low"))
    world.submit(saving("later"))
    world.submit(saving("high", priority=1))
    world.run()
    assert [command.job for command in commands(world, AdmitJob)] == ["low", "high", "low", "later"]


def test_who_was_to_make_way_stays_if_the_other_waits_no_more():
    world = running(shared(), saving("low"))
    world.submit(saving("high", priority=1))
    world.send(JobCancelled(job="high"))
    world.run()
    assert [drop.reason for drop in commands(world, DropMove)] == ["high does not wait any more"]
    assert world.scheduler.state.jobs["low"].attempt == 1


def test_who_was_to_make_way_stays_if_the_other_has_found_a_place():
    world = running(shared(*TWO), saving("a"), saving("b"))
    world.submit(saving("high", priority=1))
    (paused,) = planned(world)
    (other,) = {"a", "b"} - {paused}
    world.send(JobCancelled(job=other))
    while world.scheduler.state.jobs["high"].admitted_at is None:
        world.deliver(next(at for at, event in enumerate(world.pending) if getattr(event, "job", "") != paused))
    world.run()
    assert world.scheduler.state.jobs[paused].preemptions == 0


def test_who_hangs_stays_and_another_makes_way():
    low = {"iterations": 40}
    world = running(shared(*TWO, iterations=40), saving("low1", **low), saving("low2", **low))
    jobs = world.scheduler.state.jobs
    world.submit(saving("high", priority=1))
    (hangs,) = planned(world)
    (other,) = {"low1", "low2"} - {hangs}

    def goes_on(event: object) -> bool:
        return not (isinstance(event, PhaseEnded) and event.rank.job == hangs)

    def until(iterations: int) -> None:
        while jobs[other].iterations_done < iterations and jobs["high"].state is JobState.QUEUED:
            world.deliver(next(at for at, event in enumerate(world.pending) if goes_on(event)))

    until(4)
    for hours, stays in ((1, False), (2, True)):
        world.now = round(hours * HOUR_US)
        until(jobs[other].iterations_done + 2)
        world.fire_next_timer()
        assert [drop.job for drop in commands(world, DropMove)] == [hangs] * stays, hours
    assert jobs[hangs].stays_because == "it has not come to the end of an iteration for long"
    assert planned(world) == [hangs, other]
    until(40)
    assert (jobs["high"].state, jobs[other].preemptions) == (JobState.STARTING, 1)
    world.run()
    assert {record.state for record in jobs.values()} == {JobState.FINISHED}
    assert Counter(ran(world, hangs)) == each_once(40)
    replayed = Scheduler(world.scheduler.state.cluster, world.scheduler.state.parameters)
    for event, decided in world.log:
        replayed.replay(event, tuple(decided))
    assert image(replayed) == image(world.scheduler)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_stream_with_pauses_loses_no_iteration_and_keeps_the_bounds(data):
    bounds = Preemption(least_stay_seconds=0.0, most_per_job=data.draw(st.integers(1, 3)))
    policy = data.draw(st.sampled_from(["weave-paper", "weave", "solo"]))
    world = shared(*TWO, preemption=bounds, policy=policy, iterations=5, ageing_seconds=30.0)
    number = data.draw(st.integers(2, 7))
    for one in range(number):
        gpus = data.draw(st.sampled_from([(8, 8), (16, 8), (16, 16)]))
        tenant, priority = data.draw(st.sampled_from("ab")), data.draw(st.integers(0, 3))
        world.submit(saving(f"j{one}", tenant=tenant, priority=priority, gpus=gpus, iterations=5))
        for _ in range(data.draw(st.integers(0, 60))):
            if world.pending:
                world.deliver(data.draw(st.integers(0, min(len(world.pending) - 1, 3))))
    world.run()
    state = world.scheduler.state
    for one in range(number):
        record = state.jobs[f"j{one}"]
        assert record.state is JobState.FINISHED and record.preemptions <= bounds.most_per_job and not record.retries
        assert set(ran_by_rank(world, f"j{one}").values()) == {1}
        assert set(ran(world, f"j{one}")) == set(each_once(5))
    _check_who_paused_whom(world)
    replayed = Scheduler(state.cluster, state.parameters)
    for event, decided in world.log:
        replayed.replay(event, tuple(decided))
    assert image(replayed) == image(world.scheduler)


def _check_who_paused_whom(world: World) -> None:
    jobs = world.scheduler.state.jobs
    for command in commands(world, PlanMove):
        if command.move.paused_for:
            assert jobs[command.job].spec.priority < jobs[command.move.paused_for].spec.priority
    paused = [c for c in commands(world, ChangeJobState) if c.state is JobState.STOPPING and "paused" in c.reason]
    assert len(paused) == sum(record.preemptions for record in jobs.values())
