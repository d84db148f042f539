"""Moves that pay only together: found by ruin and recreate, each made when its place is to be had."""

from collections import Counter
from collections.abc import Callable

import msgspec
import pytest
import test_moves
from builders import World, cluster, job, node
from hypothesis import given, settings
from hypothesis import strategies as st
from test_moves import (
    AT_ONCE,
    SMALL,
    THREE,
    Apart,
    apart,
    check_log,
    commands,
    each_once,
    plan,
    play_with_plans,
    ran,
    steps,
    to_the_other,
)

from weaverl.domain.cluster import Slot
from weaverl.domain.commands import DropMove, PlanMove
from weaverl.domain.events import DeathConfirmed, JobCancelled, NodeLost, PlanProposed, TimerFired
from weaverl.domain.groups import Move, Pin
from weaverl.domain.jobs import ENDED, JobState
from weaverl.scheduling import joint_moves, replanning, ruin_and_recreate
from weaverl.scheduling.admission import Candidate
from weaverl.scheduling.joint_moves import after, made
from weaverl.scheduling.movable import refusal
from weaverl.scheduling.moves import destination, purpose
from weaverl.scheduling.policies.weave import by_itself, company_of
from weaverl.scheduling.replanning import propose
from weaverl.scheduling.ruin_and_recreate import regrouping
from weaverl.scheduling.state import ClusterState
from weaverl.scheduling.trial_moves import candidate_of, on_nodes_free_before, put, remaining_spec, without_records

FRESH = Pin(*(tuple(Slot(name, device) for device in range(8)) for name in ("r2", "t2")))


def to_fresh_nodes(world: Apart) -> tuple[Move, Move]:
    """Job a opens a group of its own on nodes that are free, and the other one joins it there."""
    together = ("a", world.stays)
    jobs = world.scheduler.state.jobs
    opens, joins = (
        Move(job=name, attempt=jobs[name].attempt, group="", pin=FRESH, saving_usd=9.0, together=together)
        for name in together
    )
    return opens, msgspec.structs.replace(joins, joins="a")


def deliver_until(world: World, name: str, state: JobState) -> None:
    while world.state(name) is not state:
        world.deliver()


def test_one_opens_the_group_and_the_other_joins_it():
    world = apart(nodes=THREE)
    moves = to_fresh_nodes(world)
    assert plan(world, *moves) == [PlanMove(job=move.job, move=move) for move in moves]
    world.run()
    state = world.scheduler.state
    assert world.admitted("a").pin == world.admitted(world.stays).pin == FRESH
    assert world.admitted("a").group.name == world.admitted(world.stays).group.name
    for name in ("a", world.stays):
        assert (state.jobs[name].state, state.jobs[name].moves) == (JobState.FINISHED, 1)
        assert Counter(ran(world, name)) == each_once(8)
    assert not state.moves and not commands(world, DropMove)


def test_who_joins_goes_on_until_the_group_is_there():
    world = apart(nodes=THREE)
    _, joins = moves = to_fresh_nodes(world)
    plan(world, *moves)
    done = world.scheduler.state.jobs[world.stays].iterations_done
    deliver_until(world, "a", JobState.STOPPING)
    while world.state("a") is not JobState.RUNNING:
        assert world.state(world.stays) is JobState.RUNNING
        world.deliver()
    deliver_until(world, world.stays, JobState.STOPPING)
    assert world.scheduler.state.jobs[world.stays].iterations_done > done
    settled = world.scheduler.state.moves[world.stays]
    assert settled == msgspec.structs.replace(
        joins, group=world.admitted("a").group.name, joins="", saving_usd=settled.saving_usd
    )


def test_who_cannot_join_any_more_stays_where_it_is():
    world = apart(nodes=THREE)
    plan(world, *to_fresh_nodes(world))
    world.send(JobCancelled(job="a"))
    world.run()
    (dropped,) = commands(world, DropMove)
    assert (dropped.job, dropped.reason) == (world.stays, "its place is not to be had any more")
    assert not dropped.unsaved
    assert world.state(world.stays) is JobState.FINISHED
    assert Counter(ran(world, world.stays)) == each_once(8)


def test_nobody_goes_where_it_saves_nothing_any_more():
    world = apart(nodes=THREE)
    opens, _joins = to_fresh_nodes(world)
    plan(world, msgspec.structs.replace(opens, together=("a",)))
    world.run()
    (dropped,) = commands(world, DropMove)
    assert (dropped.job, dropped.reason) == ("a", "it would save nothing any more"), "alone as before, on other nodes"


def test_a_job_that_waits_for_others_may_still_be_rescued():
    world = apart(nodes=THREE)
    plan(world, *to_fresh_nodes(world))
    state = world.scheduler.state
    assert refusal(state, "a", 1) == "a is to move already"
    assert not refusal(state, "a", 1, rescues=True)
    deliver_until(world, "a", JobState.STOPPING)
    assert refusal(state, "a", 1, rescues=True)


def test_what_people_read_of_them():
    opens, joins = to_fresh_nodes(apart(nodes=THREE))
    assert destination(opens) == "a group of its own"
    assert destination(joins) == "the group that a opens"
    assert purpose(opens) == f"save $9.00 together with {joins.job}"


@pytest.fixture
def long_jobs(monkeypatch):
    """Worlds of ``apart`` with jobs of 60 iterations."""
    monkeypatch.setattr(test_moves, "saving", lambda name, **more: job(name, **OF_LONG_JOBS | more))
    monkeypatch.setattr(test_moves, "Apart", lambda *args, iterations, **more: Apart(*args, iterations=60, **more))


OF_LONG_JOBS = {"host_gib": SMALL, "checkpoint_directory": "here", "iterations": 60}


def go(world: World, done: Callable[[], bool], later: Callable[[object], bool] = lambda event: False) -> None:
    """Deliver what happens, ``later`` last, until it is done."""
    while not done():
        at = next((at for at, event in enumerate(world.pending) if not later(event)), None)
        if at is not None:
            world.deliver(at)
        else:
            world.fire_next_timer()


def planned_where_one_saves(every: int, after: int) -> Apart:
    """The one who joins saves so often, 0 for never, and the plan is made after so many of its iterations."""
    world = apart(nodes=THREE)
    record = world.scheduler.state.jobs[world.stays]
    world.saves_every[world.stays] = every
    go(world, lambda: record.iterations_done >= after)
    plan(world, *to_fresh_nodes(world))
    return world


def test_who_saves_now_and_then_joins_after_one_of_its_next_saves(long_jobs):
    world = planned_where_one_saves(every=4, after=9)
    jobs = world.scheduler.state.jobs
    late = jobs[world.stays].leaves_by + 2
    go(
        world,
        lambda: world.stays not in world.scheduler.state.moves,
        later=lambda event: isinstance(event, DeathConfirmed) and jobs[world.stays].iterations_done < late,
    )
    assert not commands(world, DropMove)
    assert jobs["a"].group == jobs[world.stays].group


def test_who_never_saves_is_not_waited_for_and_counted(long_jobs):
    world = planned_where_one_saves(every=0, after=3)
    jobs = world.scheduler.state.jobs
    go(world, lambda: not world.scheduler.state.moves)
    (dropped,) = commands(world, DropMove)
    assert (dropped.job, dropped.unsaved) == (world.stays, True)
    assert jobs[world.stays].unsaved == 1


@pytest.mark.parametrize("every", [1, 4])
def test_who_always_saves_late_is_not_waited_for_for_ever_and_holds_nobody_up(long_jobs, every):
    """Each save is heard of after the request for the next rollout: never at a boundary."""
    world = apart(nodes=THREE)
    record = world.scheduler.state.jobs["a"]
    world.saves_late, world.saves_every["a"] = {"a"}, every
    go(world, lambda: record.iterations_done >= 9)
    plan(world, *to_fresh_nodes(world))
    go(world, lambda: "a" not in world.scheduler.state.moves or record.iterations_done > 9 + 11)
    assert [(dropped.job, dropped.unsaved) for dropped in commands(world, DropMove)] == [("a", True)]
    others = world.scheduler.state.jobs[world.stays]
    after = others.iterations_done
    go(world, lambda: not world.scheduler.state.moves)
    assert others.iterations_done <= after + 1
    (_, dropped) = commands(world, DropMove)
    assert (dropped.job, dropped.reason) == (world.stays, "its place is not to be had any more")


def test_nobody_waits_for_one_that_has_ended_in_the_queue(long_jobs):
    """Its planned nodes went to others while it was stopped, and the node that it had is lost."""
    world = apart(nodes=THREE)
    state = world.scheduler.state
    plan(world, *to_fresh_nodes(world))
    deliver_until(world, "a", JobState.STOPPING)
    lost = state.jobs["a"].pin.rollout[0].node
    for name, host_gib in (("late", 1500), ("later", 600)):
        world.submit(job(name, **OF_LONG_JOBS | {"host_gib": (host_gib, host_gib)}))
    world.send(NodeLost(node=lost, reason="test"))
    (lost_for_good,) = [timer for timer in world.timers if timer[1].startswith("node/")]
    world.timers.remove(lost_for_good)
    world.now = max(world.now, lost_for_good[0])
    world.send(TimerFired(name=lost_for_good[1]))
    go(world, lambda: world.state("a") is JobState.QUEUED)
    assert world.stays in state.moves
    go(world, lambda: world.stays not in state.moves)
    assert world.state("a") is JobState.QUEUED
    assert world.state(world.stays) is JobState.RUNNING
    assert commands(world, DropMove)[-1].reason == "its place is not to be had any more"


def test_only_a_move_that_waits_for_nobody_is_certain():
    opens, _ = to_fresh_nodes(apart(nodes=THREE))
    assert not opens.is_certain
    assert msgspec.structs.replace(opens, together=()).is_certain


def test_beside_one_who_is_yet_to_leave_the_whole_reserve_is_kept():
    """Nobody has planned the company of the three: a and b are to go to one place and to the other."""
    world = apart(nodes=THREE)
    state = world.scheduler.state
    move = to_the_other(world)
    judged = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(joint_moves, "option_of", lambda *_, planned: judged.append(planned) or "no")
        joint_moves.option_now(state, move)
        together = msgspec.structs.replace(move, together=("a", world.stays))
        joint_moves.option_now(state, together)
        state.moves[world.stays] = msgspec.structs.replace(together, job=world.stays)
        joint_moves.option_now(state, together)
    assert judged == [True, True, False]


def two_pairs_alike(parameters=AT_ONCE, copies=1, **more) -> ClusterState:
    """Two jobs that roll out for long, and two that train for long, each beside the one that is like it; or more such.

    Their promises are strict: none of them could be the third in the other group.
    """
    nodes = [node(f"{pool}{number}") for pool in "rt" for number in range(6 * copies)]
    world = World(cluster(*nodes), iterations=60, parameters=parameters)
    times = {"rolls": (80, 10), "rolls too": (80, 10), "trains": (10, 80), "trains too": (10, 80)}
    for copy in range(copies):
        for name, (rollout, training) in times.items():
            known = {"slo": 1.25, "host_gib": (9, 9), "checkpoint_directory": "here", "iterations": 200, **more}
            world.submit(job(f"{name}{copy or ''}", rollout, training, **known))
    world.register_all()
    while any(record.started_at is None for record in world.scheduler.state.jobs.values()):
        world.deliver()
    state = world.scheduler.state
    trial = without_records(state, list(state.jobs.values()))
    for copy in range(copies):
        for name, beside, rollout, training in (
            ("rolls", "", 0, 0),
            ("rolls too", "rolls", 1, 0),
            ("trains", "", 2, 2),
            ("trains too", "trains", 2, 3),
        ):
            slots = [f"r{rollout + 6 * copy}", f"t{training + 6 * copy}"]
            pin = Pin(*(tuple(Slot(one, device) for device in range(8)) for one in slots))
            record = state.jobs[f"{name}{copy or ''}"]
            named = str(trial.jobs[f"{beside}{copy or ''}"].group) if beside else ""
            move = Move(job=record.spec.name, attempt=1, group=named, pin=pin)
            candidate = candidate_of(trial, remaining_spec(record), move)
            assert isinstance(candidate, Candidate), candidate
            trial = put(trial, record, candidate)
    return trial


def usd_of(state: ClusterState) -> float:
    return sum(company_of(state, group).usd for group in state.groups.values())


def test_a_swap_is_found_that_no_single_move_finds():
    state = two_pairs_alike()
    moves = regrouping(state, 40)
    then = after(state, moves)
    assert sorted(sorted(one.split()[0] for one in group.members) for group in then.groups.values()) == [
        ["rolls", "trains"],
        ["rolls", "trains"],
    ]
    assert usd_of(then) < 0.7 * usd_of(state)
    saved = usd_of(state) - usd_of(then)
    assert all(0 < move.saving_usd < saved for move in moves), "the cold starts are taken off"


def test_among_few_jobs_a_change_and_a_review_look_for_one_and_a_drift_does_not(monkeypatch):
    state = two_pairs_alike()
    monkeypatch.setattr(replanning, "_paying", lambda *_: None)
    for near, reviewed_at in (((), state.now), (["g1"], None), (["g1"], state.now)):
        plan = propose(state, near, reviewed_at=reviewed_at)
        assert plan is not None, (near, reviewed_at)
        assert all(move.together for move in plan.moves)
    assert propose(state, ()) is None
    none = msgspec.structs.replace(state.parameters, regrouping_tries=0)
    assert propose(msgspec.structs.replace(state, parameters=none), (), reviewed_at=state.now) is None
    monkeypatch.setattr(ruin_and_recreate, "FEW_JOBS", 3)
    assert propose(state, (), reviewed_at=state.now) is None


def test_the_same_state_gives_the_same_regrouping():
    assert regrouping(two_pairs_alike(), 10) == regrouping(two_pairs_alike(), 10)


@pytest.mark.parametrize(
    "fields", [{"moves": 1_000}, {"unsaved": 3}, {"attempt": 2, "state": JobState.STARTING}, {"started_at": None}]
)
def test_jobs_that_cannot_move_are_left_where_they_are(fields):
    state = two_pairs_alike()
    for name in ("rolls", "trains too"):
        state.jobs[name] = msgspec.structs.replace(state.jobs[name], **fields)
    assert not {"rolls", "trains too"} & {move.job for move in regrouping(state, 20)}


def test_moves_are_made_as_soon_as_they_can_be_in_any_order():
    state = two_pairs_alike()
    moves = regrouping(state, 40)
    backwards = made(state, moves[::-1])
    assert {move.job for move in backwards.moves} == {move.job for move in moves}
    assert usd_of(backwards.state) == pytest.approx(usd_of(after(state, moves)), rel=0.01)


def together_at_random(state: ClusterState, number: int) -> PlanProposed | None:
    """Two or three running jobs to slots of one another, with sense or without."""
    running = [record for record in state.jobs.values() if record.state is JobState.RUNNING and record.pin]
    if len(running) < 2:
        return None
    some = [running[(number + place) % len(running)] for place in range(min(2 + number % 2, len(running)))]
    names = tuple(record.spec.name for record in some)
    moves = []
    for place, record in enumerate(some):
        pin = FRESH if number % 3 else some[place - 1].pin
        joins = names[0] if place and number % 5 else ""
        group = "" if joins or number % 7 else str(some[place - 1].group)
        moves.append(Move(job=names[place], attempt=record.attempt, group=group, pin=pin, joins=joins, together=names))
    return PlanProposed(base_version=state.version, moves=tuple(moves))


@settings(max_examples=30, deadline=None)
@given(steps, st.integers(0, 1000))
def test_whatever_is_planned_together_nothing_is_lost_or_run_twice(given_steps, number):
    world = apart(nodes=THREE)
    play_with_plans(world, given_steps, lambda state: together_at_random(state, number))
    check_log(world)
    world.run()
    state = world.scheduler.state
    assert {record.state for record in state.jobs.values()} <= ENDED
    assert not state.groups and not state.moves
    for record in state.jobs.values():
        if record.state is JobState.FINISHED and record.attempt == 1 + record.moves:
            assert Counter(ran(world, record.spec.name)) == each_once(8)


@pytest.mark.parametrize(("slo", "iterations"), [(1.25, 200), (1.15, 30)])
def test_the_door_makes_what_was_planned_for_what_it_saves(slo, iterations):
    """With few iterations left nobody has room for a wait beside who is yet to leave."""
    state = two_pairs_alike(copies=2, slo=slo, iterations=iterations)
    moves = regrouping(state, 100)
    planned = msgspec.structs.replace(state, moves={move.job: move for move in moves})
    joint = made(planned, moves)
    assert len(joint.moves) == len(moves) > 2
    by_set = {move.together: move.saving_usd for move in moves}
    assert sum(by_set.values()) == pytest.approx(joint.saving_usd)


def test_moves_of_other_groups_are_not_tied_together():
    state = two_pairs_alike(copies=2)
    moves = regrouping(state, 100)
    sets = {move.together for move in moves}
    assert len(sets) > 1, "each pair of groups has its own swap"
    assert sorted(name for together in sets for name in together) == sorted(move.job for move in moves)
    for together in sets:
        only = [move for move in moves if move.together == together]
        assert made(state, only).saving_usd == pytest.approx(only[0].saving_usd)


def test_a_job_that_cannot_wait_is_tied_to_nobody():
    state = two_pairs_alike()
    there = after(state, regrouping(state, 40))
    assert ruin_and_recreate._joint(state, there) is not None
    moved = next(name for name, record in state.jobs.items() if there.jobs[name].pin != record.pin)
    record = state.jobs[moved]
    state.jobs[moved] = msgspec.structs.replace(record, spec=msgspec.structs.replace(record.spec, staleness=1))
    assert ruin_and_recreate._joint(state, there) is None, "also where a single move has it there"
    assert not regrouping(two_pairs_alike(staleness=1), 40)


def test_each_move_of_a_regrouping_saves_enough():
    state = two_pairs_alike()
    (saved,) = {move.saving_usd for move in regrouping(state, 40)}
    for least_usd, pays in ((0.4 * saved, True), (0.6 * saved, False)):
        parameters = msgspec.structs.replace(state.parameters, least_saving_usd=least_usd)
        assert bool(regrouping(msgspec.structs.replace(state, parameters=parameters), 40)) is pays, "two moves"


def test_nothing_is_tried_twice_from_the_same_place(monkeypatch):
    tried = []
    monkeypatch.setattr(ruin_and_recreate, "_put_back", lambda before, now, choice: tried.append(choice))
    assert regrouping(two_pairs_alike(), 1000) == ()
    assert len(tried) == len(set(tried)), "of four jobs there are 60 choices of two and more, in any order"
    assert 20 < len(tried) <= 60


def test_who_is_put_back_by_itself_has_its_own_nodes_again():
    state = two_pairs_alike()
    records = list(state.jobs.values())
    trial = without_records(state, records)
    for record in records:
        fresh = by_itself(trial, remaining_spec(record))[0].candidate
        assert on_nodes_free_before(state, trial, record, fresh).pin == record.pin


def test_who_opens_nodes_takes_none_that_others_have_yet_to_leave():
    state = two_pairs_alike()
    first, last = state.jobs["rolls"], state.jobs["trains too"]
    trial = without_records(state, list(state.jobs.values()))
    there = candidate_of(trial, remaining_spec(first), Move(job="rolls", attempt=1, group="", pin=last.pin))
    assert isinstance(there, Candidate)
    trial = put(trial, first, there)
    fresh = by_itself(trial, remaining_spec(last))[0].candidate
    kept = {node for group in state.groups.values() for node in group.nodes}
    assert kept.issuperset(fresh.group.nodes)
    opened = on_nodes_free_before(state, trial, last, fresh)
    assert kept.isdisjoint(opened.group.nodes)
    assert (opened.group.name, opened.kind, opened.added_usd_per_hour) == (
        fresh.group.name,
        fresh.kind,
        fresh.added_usd_per_hour,
    )


def test_tries_go_on_from_the_moves_that_were_found_before():
    state = two_pairs_alike()
    moves = regrouping(state, 40)
    assert regrouping(state, 20, moves, after(state, moves)) == (), "nothing better than what has been found"


def test_most_is_tried_when_somebody_has_come_or_gone(monkeypatch):
    tried, minute = [], 60_000_000
    monkeypatch.setattr(replanning, "regrouping", lambda state, tries, moves, begun: tried.append(tries) or ())
    patient = msgspec.structs.replace(AT_ONCE, least_stay_us=30 * minute)
    state = two_pairs_alike(patient)
    state.now = 100 * minute
    for record in state.jobs.values():
        record.started_at = 0
    propose(state, ["g1"])
    propose(state, (), reviewed_at=70 * minute)
    state.jobs["rolls"].started_at = 60 * minute
    propose(state, (), reviewed_at=70 * minute)
    state.jobs["rolls"].started_at = 80 * minute
    propose(state, (), reviewed_at=70 * minute)
    state.jobs["rolls"] = msgspec.structs.replace(state.jobs["rolls"], started_at=60 * minute, moves=1)
    propose(state, (), reviewed_at=70 * minute)
    state.ended_at = state.now
    propose(state, ["g1"])
    propose(state)
    assert tried == [5, 5, 50, 5, 5, 50, 50]
