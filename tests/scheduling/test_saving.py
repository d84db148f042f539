"""Jobs that seldom or never save: a move of theirs is dropped in time, and holds nobody up."""

from collections import Counter

import pytest
from builders import World, cluster, job
from test_moves import commands, each_once, plan, ran
from test_preemption import TWO, planned, running, saving, shared

from weaverl.domain.commands import DropMove, GrantPermit, PlanMove, RefusePlan
from weaverl.domain.events import JobCancelled, PhaseEnded
from weaverl.domain.groups import Move
from weaverl.domain.jobs import JobSpec, JobState, PhaseKind
from weaverl.scheduling.state import Parameters

LONG = 40


def plain(name: str, **more: object) -> JobSpec:
    return job(name, iterations=LONG, checkpoint_directory="here", slo=50.0, **more)


def two_low_jobs(**saves_every: int) -> World:
    world = shared(*TWO, iterations=LONG)
    world.saves_every = saves_every
    return running(world, saving("low1", iterations=LONG), saving("low2", iterations=LONG))


def until(world: World, name: str, iterations: int) -> None:
    while world.scheduler.state.jobs[name].iterations_done < iterations:
        world.deliver()


def drops(world: World) -> list[tuple[str, str]]:
    return [(drop.job, drop.reason) for drop in commands(world, DropMove)]


def test_who_never_saves_stays_and_another_makes_way():
    world = two_low_jobs(low1=0)
    world.submit(saving("high", priority=1, iterations=LONG))
    assert planned(world) == ["low1"], "it is new, and may save"
    world.run()
    assert drops(world) == [("low1", "it has not saved iteration 2")]
    assert planned(world) == ["low1", "low2"]
    jobs = world.scheduler.state.jobs
    assert (jobs["low1"].preemptions, jobs["low2"].preemptions) == (0, 1)
    assert jobs["high"].admitted_at < jobs["low1"].ended_at
    assert Counter(ran(world, "low2")) == each_once(LONG)


def test_who_is_known_not_to_save_is_not_asked():
    world = two_low_jobs(low1=0)
    until(world, "low1", 3)
    world.submit(saving("high", priority=1, iterations=LONG))
    assert planned(world) == ["low2"]


@pytest.mark.parametrize("leaves", ["low1", "low2"])
def test_who_was_asked_stays_at_once_when_the_other_waits_no_more(leaves):
    world = two_low_jobs(low1=0)
    if leaves == "low2":
        until(world, "low1", 3)
    world.submit(saving("high", priority=1, iterations=LONG))
    assert list(world.scheduler.state.moves) == [leaves]
    world.send(JobCancelled(job="high"))
    assert drops(world) == [(leaves, "high does not wait any more")]
    assert not world.scheduler.state.moves
    world.submit(saving("high2", priority=1, iterations=LONG))
    assert {move.paused_for for move in world.scheduler.state.moves.values()} == {"high2"}


@pytest.mark.parametrize("every", [2, 5, 10])
@pytest.mark.parametrize("asked_at", [11, 12, 13, 14])
def test_who_saves_seldom_makes_way_where_it_has_saved(every, asked_at):
    world = running(shared(iterations=LONG), saving("low", iterations=LONG))
    world.saves_every = {"low": every}
    until(world, "low", asked_at)
    world.submit(saving("high", priority=1, iterations=2))
    world.run()
    low = world.scheduler.state.jobs["low"]
    assert (low.state, low.preemptions, drops(world)) == (JobState.FINISHED, 1, [])
    assert Counter(ran(world, "low")) == each_once(LONG)


def test_who_has_stopped_saving_is_asked_no_more():
    world = running(shared(iterations=LONG), saving("low", iterations=LONG))
    until(world, "low", 6)
    world.saves_every = {"low": 0}
    until(world, "low", 9)
    world.submit(saving("high", priority=1, iterations=2))
    world.run()
    assert planned(world) == []


def test_an_attempt_that_did_not_save_three_times_when_it_was_to_move_is_left_alone():
    world = World(cluster(*TWO), iterations=LONG, parameters=Parameters(policy="weave", least_stay_us=0))
    world.saves_every = {"a": 0}
    world.submit(plain("a"))
    until(world, "a", 3)
    record = world.scheduler.state.jobs["a"]
    for number in range(3):
        assert isinstance(plan(world, Move(job="a", attempt=1, group="", pin=record.pin))[0], PlanMove)
        asked_at = record.iterations_done
        while len(drops(world)) == number:
            world.deliver()
        assert record.iterations_done <= asked_at + 2
    (refused,) = plan(world, Move(job="a", attempt=1, group="", pin=record.pin))
    assert isinstance(refused, RefusePlan) and refused.reason == "a was to leave 3 times and had not saved"
    world.run()
    assert world.state("a") is JobState.FINISHED


def dry_rollouts(world: World) -> list[int]:
    """Rollouts that were granted when the training before them was over, of all but an attempt's first."""
    done, found = -1, []
    for event, decided in world.log:
        if isinstance(event, PhaseEnded) and event.phase is PhaseKind.TRAINING:
            done = max(done, event.iteration)
        for command in decided:
            if isinstance(command, GrantPermit) and command.phase is PhaseKind.ROLLOUT:
                found += [command.iteration] if command.iteration == done + 1 else []
    return found


@pytest.mark.parametrize(("every", "late"), [(0, False), (3, False), (1, True), (1, False)])
@pytest.mark.parametrize("asked_at", [6, 7, 8])
def test_a_job_a_step_ahead_runs_dry_for_one_boundary_and_goes_on_ahead(every, late, asked_at):
    world = World(cluster(*TWO), iterations=20, parameters=Parameters(policy="weave", least_stay_us=0))
    world.saves_every, world.saves_late = {"a": every}, {"a"} if late else set()
    world.submit(plain("a", staleness=1))
    until(world, "a", asked_at)
    before, record = dry_rollouts(world), world.scheduler.state.jobs["a"]
    plan(world, Move(job="a", attempt=1, group="", pin=record.pin, rescues="a"))
    while record.attempt == 1 and record.ending is None and "a" in world.scheduler.state.moves:
        world.deliver()
    assert record.iterations_done <= asked_at + 2
    is_dropped = record.ending is None
    assert is_dropped == (late or every == 0 or record.iterations_done % every != 0)
    world.run()
    assert record.state is JobState.FINISHED
    assert Counter(ran(world, "a")) == each_once(20)
    assert len(set(dry_rollouts(world)) - set(before)) <= 1


def test_way_is_made_for_nobody_who_runs_already():
    world = running(shared(*TWO), saving("a"), saving("b"))
    world.submit(saving("high", priority=1))
    (paused,) = planned(world)
    (other,) = {"a", "b"} - {paused}
    while world.state(paused) is not JobState.STOPPING:
        world.deliver()
    world.send(JobCancelled(job=other))
    while world.state("high") is JobState.QUEUED:
        world.deliver(next(at for at, one in enumerate(world.pending) if getattr(one, "job", "") != paused))
    world.run()
    jobs = world.scheduler.state.jobs
    assert jobs[paused].preemptions == 1
    assert not jobs["high"].way_made


def test_a_job_a_step_ahead_that_saves_after_the_push_is_asked_three_times_and_no_more():
    world = running(shared(iterations=LONG), plain("low", host_gib=(900, 900), staleness=1))
    world.saves_late = {"low"}
    world.submit(saving("high", priority=1, iterations=2))
    until(world, "low", LONG - 5)
    assert planned(world) == ["low"] * 3
    assert [drop.unsaved for drop in commands(world, DropMove)] == [True] * 3
    assert not [iteration for iteration in dry_rollouts(world) if 6 < iteration < LONG - 5]
    world.run()
    assert world.state("high") is JobState.FINISHED
