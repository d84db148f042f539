"""Moves of running jobs: planned aside, made at the end of an iteration, nothing lost, nothing run twice."""

from collections import Counter
from collections.abc import Callable

import msgspec
import pytest
from builders import SECOND, World, check_invariants, cluster, job, node
from hypothesis import given, settings
from hypothesis import strategies as st
from test_lifecycle import image, play

from weaverl.channel.wire import decode_fact, encode_fact
from weaverl.domain.cluster import Node, Slot
from weaverl.domain.commands import AdmitJob, AnyCommand, DropMove, KillJob, PlanMove, RefusePlan
from weaverl.domain.events import (
    CheckpointWritten,
    DeathConfirmed,
    JobCancelled,
    NodeLost,
    PhaseEnded,
    PlanProposed,
)
from weaverl.domain.facts import SCHEMA, Fact
from weaverl.domain.groups import Move, Pin
from weaverl.domain.jobs import ENDED, JobSpec, JobState, PhaseKind
from weaverl.errors import UsageError
from weaverl.scheduling import ruin_and_recreate
from weaverl.scheduling.admission import Candidate
from weaverl.scheduling.expected_dollars import stay_of
from weaverl.scheduling.movable import MOST_RESCUES, refusal
from weaverl.scheduling.replanning import propose
from weaverl.scheduling.scheduler import Scheduler
from weaverl.scheduling.state import ClusterState, Parameters, Progress
from weaverl.scheduling.trial_moves import candidate_of, remaining_spec, without_record

Proposer = Callable[[ClusterState], PlanProposed | None]
AT_ONCE = Parameters(policy="weave", least_stay_us=0, least_saving_usd=0.0)
NODES = (node("r0"), node("r1"), node("t0"), node("t1"))
THREE = (*NODES, node("r2"), node("t2"))
LARGE, SMALL = (900, 900), (100, 100)
"""Host memory in GiB: a node holds one large job beside small ones."""


def saving(name: str, *, host_gib: tuple[int, int] = SMALL, **more: object) -> JobSpec:
    return job(name, host_gib=host_gib, checkpoint_directory="here", iterations=8, **more)


class Apart(World):
    """Job a, and another one that stays: each on nodes of its own since a third one has left."""

    stays: str


def apart(parameters: Parameters = AT_ONCE, nodes: tuple[Node, ...] = NODES, **more: object) -> Apart:
    world = Apart(cluster(*nodes), iterations=8, parameters=parameters)
    world.submit(saving("first", host_gib=LARGE))
    world.submit(saving("b", host_gib=LARGE))
    world.submit(saving("a", **more))
    world.register_all()
    group = {name: record.group for name, record in world.scheduler.state.jobs.items()}
    assert len(set(group.values())) == 2
    world.stays, leaves = ("b", "first") if group["a"] == group["first"] else ("first", "b")
    world.send(JobCancelled(job=leaves))
    while world.state(leaves) is JobState.STOPPING:
        world.deliver()
    return world


def to_the_other(world: Apart, name: str = "a") -> Move:
    record = world.scheduler.state.jobs[name]
    other = world.scheduler.state.jobs[world.stays]
    assert other.group is not None and other.pin is not None and other.group != record.group
    return Move(job=name, attempt=record.attempt, group=other.group, pin=other.pin)


def plan(world: World, *moves: Move, base: int | None = None) -> list[AnyCommand]:
    version = world.scheduler.state.version if base is None else base
    return world.send(PlanProposed(base_version=version, moves=moves))


def until_stopping(world: World, name: str = "a") -> None:
    while world.state(name) is not JobState.STOPPING:
        world.deliver()


def ran(world: World, name: str) -> list[tuple[PhaseKind, int]]:
    ended = (event for event, _ in world.log if isinstance(event, PhaseEnded) and event.rank.job == name)
    return [(event.phase, event.iteration) for event in ended]


def each_once(iterations: int) -> Counter[tuple[PhaseKind, int]]:
    return Counter((phase, number) for number in range(iterations) for phase in (PhaseKind.ROLLOUT, PhaseKind.TRAINING))


def commands(world: World, kind: type) -> list[AnyCommand]:
    return [command for _, decided in world.log for command in decided if isinstance(command, kind)]


def test_a_job_moves_at_the_end_of_an_iteration_and_runs_every_iteration_once():
    world = apart()
    move = to_the_other(world)
    assert plan(world, move) == [PlanMove(job="a", move=move)]
    until_stopping(world)
    done = world.scheduler.state.jobs["a"].iterations_done
    assert ran(world, "a")[-1] == (PhaseKind.TRAINING, done - 1)
    world.run()
    record = world.scheduler.state.jobs["a"]
    assert (record.state, record.attempt, record.moves, record.retries) == (JobState.FINISHED, 2, 1, 0)
    assert world.admitted("a").group.name == move.group
    assert world.admitted("a").pin == move.pin
    assert Counter(ran(world, "a")) == each_once(8)
    assert not world.scheduler.state.moves


def test_its_old_slots_are_free_and_it_starts_anew_only_when_its_death_is_confirmed():
    world = apart()
    plan(world, to_the_other(world))
    until_stopping(world)
    place = [place for place, (_, decided) in enumerate(world.log) if any(isinstance(c, KillJob) for c in decided)][-1]
    world.run()
    later = world.log[place:]
    deaths = [at for at, (event, _) in enumerate(later) if isinstance(event, DeathConfirmed) and event.job == "a"]
    again = [at for at, (_, decided) in enumerate(later) if any(isinstance(c, AdmitJob) for c in decided)]
    assert again[0] == deaths[1], "the second of its two nodes"


def test_it_waits_for_its_checkpoint_and_goes_on_meanwhile():
    world = apart()
    plan(world, to_the_other(world))

    def held_back(event: object) -> bool:
        return isinstance(event, CheckpointWritten) and event.rank.job == "a"

    while world.scheduler.state.jobs["a"].iterations_done < 3:
        world.deliver(next(at for at, event in enumerate(world.pending) if not held_back(event)))
    assert world.state("a") is JobState.RUNNING
    assert [event.iteration for event in world.pending if held_back(event)][-1] >= 1
    world.run()
    record = world.scheduler.state.jobs["a"]
    assert (record.attempt, record.moves) == (2, 1)
    assert Counter(ran(world, "a")) == each_once(8)


@pytest.mark.parametrize(
    ("parameters", "more", "base", "why"),
    [
        (AT_ONCE, {}, 1, "it was made for placement 1, which is"),
        (AT_ONCE, {"attempt": 2}, None, "attempt 2 of a does not run"),
        (AT_ONCE, {"job": "nobody"}, None, "attempt 1 of nobody does not run"),
        (msgspec.structs.replace(AT_ONCE, max_moves_per_job=0), {}, None, "a was moved 0 times already"),
        (msgspec.structs.replace(AT_ONCE, least_stay_us=10**9), {}, None, "a has not been where it is for long"),
    ],
)
def test_a_plan_that_cannot_be_followed_is_refused_with_the_reason_and_changes_nothing(parameters, more, base, why):
    world = apart(parameters)
    while world.scheduler.state.jobs["a"].started_at is None:
        world.deliver()
    move = msgspec.structs.replace(to_the_other(world), **more)
    before = image(world.scheduler)
    (refused,) = plan(world, move, base=base)
    assert isinstance(refused, RefusePlan) and refused.reason.startswith(why)
    world.scheduler.state.now -= 1
    assert image(world.scheduler) == before


def test_a_job_without_checkpoints_is_not_moved():
    world = apart()
    record = world.scheduler.state.jobs["a"]
    record.spec = msgspec.structs.replace(record.spec, checkpoint_directory=None)
    (refused,) = plan(world, to_the_other(world))
    assert refused.reason == "a keeps no checkpoints, so that it cannot be moved"


def test_a_plan_with_one_move_that_cannot_be_made_is_refused_whole():
    world = apart()
    (refused,) = plan(world, to_the_other(world), Move(job="b", attempt=7, group="g1", pin=to_the_other(world).pin))
    assert isinstance(refused, RefusePlan)
    assert not world.scheduler.state.moves


def test_a_cancelled_job_is_not_moved():
    for late in (False, True):
        world = apart()
        plan(world, to_the_other(world))
        if late:
            until_stopping(world)
        world.send(JobCancelled(job="a"))
        assert not world.scheduler.state.moves
        world.run()
        assert world.state("a") is JobState.CANCELLED
        assert world.scheduler.state.jobs["a"].attempt == 1


def test_a_job_stays_if_its_place_is_taken_by_the_end_of_its_iteration():
    world = apart(host_gib=(400, 400))
    plan(world, to_the_other(world))
    other = world.scheduler.state.jobs[world.stays].group
    for name in ("late", "later"):
        world.submit(saving(name, host_gib=(600, 600)))
    assert world.scheduler.state.jobs["later"].group == other
    world.run()
    (drop,) = commands(world, DropMove)
    assert "needs 400 GiB" in drop.reason
    assert world.scheduler.state.jobs["a"].attempt == 1
    assert world.state("a") is JobState.FINISHED


def test_nobody_takes_the_place_of_a_job_that_is_on_its_way():
    world = apart(host_gib=(400, 400))
    move = to_the_other(world)
    plan(world, move)
    until_stopping(world)
    world.submit(saving("late", host_gib=(500, 500)))
    assert world.state("late") is JobState.QUEUED
    assert "a is moving there" in {verdict.refused for verdict in world.scheduler.state.jobs["late"].verdicts}
    world.run()
    assert world.scheduler.state.jobs["a"].moves == 1
    assert next(c for c in commands(world, AdmitJob) if (c.job, c.attempt) == ("a", 2)).group.name == move.group
    assert world.state("late") is JobState.FINISHED


def test_a_job_whose_new_group_is_gone_is_placed_as_the_policy_says():
    world = apart()
    plan(world, to_the_other(world))
    until_stopping(world)
    death = [event for event in world.pending if isinstance(event, DeathConfirmed)]
    world.pending = type(world.pending)(event for event in world.pending if event not in death)
    world.send(JobCancelled(job=world.stays))
    while world.pending:
        world.deliver()
    world.pending.extend(death)
    world.run()
    record = world.scheduler.state.jobs["a"]
    assert (record.state, record.attempt, record.moves) == (JobState.FINISHED, 2, 1)
    assert Counter(ran(world, "a")) == each_once(8)


def test_the_plan_of_a_job_that_is_placed_nowhere_ends_in_the_queue():
    world = apart()
    plan(world, to_the_other(world))
    until_stopping(world)
    for name in ("r0", "r1"):
        world.send(NodeLost(node=name))
    while world.state("a") is JobState.STOPPING:
        world.deliver(next(at for at, event in enumerate(world.pending) if isinstance(event, DeathConfirmed)))
    state = world.scheduler.state
    assert world.state("a") is JobState.QUEUED
    assert not state.moves
    (dropped,) = commands(world, DropMove)
    assert (dropped.attempt, dropped.unsaved) == (2, False)
    assert state.jobs["a"].stays_because == "its place was gone when it had left, and nothing else fitted it"
    check_log(world)


def test_after_a_departure_the_jobs_that_are_left_are_proposed_to_share_nodes():
    world = apart()
    while world.scheduler.state.jobs["a"].iterations_done < 1:
        world.deliver()
    proposed = propose(world.scheduler.state)
    assert proposed is not None and len(proposed.moves) == 1
    (move,) = proposed.moves
    assert move.saving_usd > 0.0
    world.send(proposed)
    world.run()
    assert world.scheduler.state.jobs[move.job].moves == 1
    assert {world.state(name) for name in ("a", world.stays)} == {JobState.FINISHED}


def test_who_was_too_new_where_it_is_to_be_moved_is_looked_at_once_at_the_next_review(monkeypatch):
    monkeypatch.setattr(ruin_and_recreate, "FEW_JOBS", 1)
    minute = 60 * SECOND
    patient = msgspec.structs.replace(AT_ONCE, least_stay_us=30 * minute, review_us=30 * minute)
    world = apart(patient)
    while world.scheduler.state.jobs["a"].iterations_done < 1:
        world.deliver()
    state = world.scheduler.state
    state.jobs[world.stays].moves = patient.max_moves_per_job
    for minutes, is_looked_at in ((29, False), (30, True), (59, True), (60, False), (61, False)):
        state.jobs["a"].started_at = state.now - minutes * minute
        assert (propose(state, (), reviewed_at=state.now - 30 * minute) is not None) is is_looked_at, minutes
        assert propose(state, ()) is None, "where a job has drifted only promises are looked at"


def test_nothing_is_proposed_where_it_does_not_pay_or_may_not_be():
    for parameters in (
        Parameters(policy="weave-paper", least_stay_us=0, least_saving_usd=0.0),
        msgspec.structs.replace(AT_ONCE, max_moves_per_job=0),
        msgspec.structs.replace(AT_ONCE, least_stay_us=10**9),
        msgspec.structs.replace(AT_ONCE, least_saving_usd=1000.0),
        msgspec.structs.replace(AT_ONCE, saving_over_cost=1e9),
    ):
        world = apart(parameters)
        while world.scheduler.state.jobs["a"].iterations_done < 1:
            world.deliver()
        assert propose(world.scheduler.state) is None, parameters


def test_a_cold_start_that_would_break_the_promise_of_the_whole_life_is_not_proposed():
    world = apart(slo=1.1)
    while world.scheduler.state.jobs["a"].iterations_done < 1:
        world.deliver()
    record = world.scheduler.state.jobs["a"]
    stays = world.stays
    world.scheduler.state.jobs[stays].moves = AT_ONCE.max_moves_per_job
    assert propose(world.scheduler.state) is not None
    record.start_us = 100 * 10**6
    assert propose(world.scheduler.state) is None


def test_nobody_moves_for_dollars_who_could_not_afford_another_cold_start():
    world = apart(slo=1.5)
    while world.scheduler.state.jobs["a"].iterations_done < 1:
        world.deliver()
    state = world.scheduler.state
    record = state.jobs["a"]
    state.jobs[world.stays].moves = AT_ONCE.max_moves_per_job
    stay = stay_of(state, record)
    for share, moves in ((0.1, True), (0.6, False)):
        record.start_us = round((stay.allowed - 1.0) * stay.left_us * share)
        free = msgspec.structs.replace(AT_ONCE, saving_over_cost=-1000.0, least_saving_usd=-1000.0)
        state.parameters = free
        assert (propose(state) is not None) is moves


def two_in_one_group(parameters: Parameters) -> World:
    """Together they train all the time, so that each is slowed to 1.2x; there are free nodes."""
    world = World(cluster(*THREE), iterations=8, parameters=parameters)
    for name in "ab":
        world.submit(saving(name, rollout=10, training=15))
    world.register_all()
    while min(record.iterations_done for record in world.scheduler.state.jobs.values()) < 2:
        world.deliver()
    assert len(world.scheduler.state.groups) == 1
    return world


def leave_room(world: World, name: str, slowdown: float) -> None:
    """It has taken so long that its promise leaves it this slowdown for the rest."""
    state = world.scheduler.state
    record = state.jobs[name]
    done, left = record.iterations_done * 25 * SECOND, (8 - record.iterations_done) * 25 * SECOND
    elapsed = record.spec.slo * (done + left) - slowdown * left
    record.progress = Progress(record.iterations_done, done, since=state.now - round(elapsed))


def deliver_all_but(world: World, is_held_back: Callable[[object], bool]) -> None:
    while left := [place for place, event in enumerate(world.pending) if not is_held_back(event)]:
        world.deliver(left[0])


def hangs(event: object) -> bool:
    """The end of a rollout of job b."""
    return isinstance(event, PhaseEnded) and event.rank.job == "b" and event.phase is PhaseKind.ROLLOUT


def test_a_job_that_waits_at_its_boundary_for_one_that_hangs_leaves_at_once():
    world = two_in_one_group(AT_ONCE)
    deliver_all_but(world, hangs)
    record = world.scheduler.state.jobs["a"]
    rotation = world.scheduler.rotation(str(record.group))
    assert [(one.job, one.phase) for one in rotation.waiting] == [("a", PhaseKind.ROLLOUT)]
    assert list(rotation.permits) == ["b"]
    leave_room(world, "a", 1.1)
    proposed = propose(world.scheduler.state, ())
    assert proposed is not None and [move.rescues for move in proposed.moves] == ["a"]
    plan(world, *proposed.moves)
    assert world.state("a") is JobState.STOPPING
    deliver_all_but(world, hangs)
    assert (record.state, record.moves) == (JobState.FINISHED, 1)
    assert Counter(ran(world, "a")) == each_once(8)


def test_a_save_that_is_heard_while_its_job_waits_has_it_leave_at_once():
    world = two_in_one_group(AT_ONCE)

    def is_a_save(event: object) -> bool:
        return isinstance(event, CheckpointWritten)

    deliver_all_but(world, lambda event: hangs(event) or is_a_save(event))
    leave_room(world, "a", 1.1)
    proposed = propose(world.scheduler.state, ())
    assert proposed is not None
    plan(world, *proposed.moves)
    assert world.state("a") is JobState.RUNNING
    deliver_all_but(world, lambda event: not is_a_save(event))
    assert world.state("a") is JobState.STOPPING


@pytest.mark.parametrize(("lasts", "saves_every", "is_rescued"), [(10, 1, False), (200, 1, True), (10, 9, True)])
def test_a_rescue_waits_for_a_neighbour_that_is_to_leave_unless_it_hangs_or_saves_seldom(
    lasts: int, saves_every: int, is_rescued: bool
):
    world = two_in_one_group(AT_ONCE)
    state = world.scheduler.state
    deliver_all_but(world, hangs)
    leaver = state.jobs["b"]
    leaver.saves_every, leaver.moves = saves_every, AT_ONCE.max_moves_per_job - 1
    leave_room(world, "a", 1.1)
    fresh = propose(state, ())
    assert fresh is not None
    plan(world, Move(job="b", attempt=1, group="", pin=fresh.moves[0].pin, saving_usd=9.0))
    state.now = (leaver.progress.since or 0) + leaver.progress.lap_us[0] + lasts * SECOND
    leave_room(world, "a", 1.1)
    proposed = propose(state, ())
    assert (proposed is not None) is is_rescued
    assert proposed is None or [(move.job, move.rescues) for move in proposed.moves] == [("a", "a")]


def test_who_saves_too_seldom_is_not_planned_to_move():
    world = two_in_one_group(AT_ONCE)
    leave_room(world, "a", 1.1)
    for record in world.scheduler.state.jobs.values():
        record.saves_every = 40
    assert propose(world.scheduler.state, ()) is None
    for record in world.scheduler.state.jobs.values():
        record.saves_every = 9
    assert propose(world.scheduler.state, ()) is not None


@pytest.mark.parametrize("parameters", [AT_ONCE, Parameters(policy="weave", max_moves_per_job=1)])
def test_a_promise_in_danger_is_saved_by_a_move_whatever_it_costs(parameters: Parameters):
    world = two_in_one_group(parameters)
    assert propose(world.scheduler.state, ()) is None
    leave_room(world, "a", 1.1)
    world.scheduler.state.jobs["b"].moves = parameters.max_moves_per_job
    proposed = propose(world.scheduler.state, ())
    assert proposed is not None
    (move,) = proposed.moves
    assert move.rescues == "a"
    assert set(move.pin.training).isdisjoint(world.scheduler.state.jobs["b"].pin.training)
    assert move.saving_usd < 0.0
    world.send(proposed)
    world.run()
    assert world.scheduler.state.jobs[move.job].moves == 1 + parameters.max_moves_per_job * (move.job == "b")
    assert {record.state for record in world.scheduler.state.jobs.values()} == {JobState.FINISHED}


@pytest.mark.parametrize("moved", ["a", "b"])
def test_a_rescue_parts_a_job_from_company_that_is_worse_than_it_was_foreseen_to_be(moved: str):
    world = two_in_one_group(AT_ONCE)
    state = world.scheduler.state
    leave_room(world, "a", 1.5)
    record = state.jobs["a"]
    assert propose(state, ()) is None
    record.progress.company, record.progress.lap_us = (0, 0, 0), (20 * SECOND, SECOND)
    for name in {"a", "b"} - {moved}:
        state.jobs[name].moves = AT_ONCE.max_moves_per_job + MOST_RESCUES
    proposed = propose(state, ())
    assert proposed is not None
    (move,) = proposed.moves
    assert (move.job, move.rescues) == (moved, "a")
    stays = next(one for one in state.jobs.values() if one.spec.name != moved)
    assert stays.pin is not None
    assert {*move.pin.rollout, *move.pin.training}.isdisjoint(stays.pin.rollout + stays.pin.training)


def test_a_long_job_may_move_once_more():
    world = apart()
    record = world.scheduler.state.jobs["a"]
    while record.started_at is None:
        world.deliver()
    state = world.scheduler.state
    assert not refusal(state, "a", 1)
    record.moves = AT_ONCE.max_moves_per_job
    assert refusal(state, "a", 1) == "a was moved 6 times already"
    record.progress.wall_us += AT_ONCE.another_move_us
    assert not refusal(state, "a", 1)
    record.moves += 1
    assert refusal(state, "a", 1) and not refusal(state, "a", 1, rescues=True)
    record.moves += MOST_RESCUES
    assert refusal(state, "a", 1, rescues=True) == "a was moved 9 times already"
    state.parameters = msgspec.structs.replace(AT_ONCE, max_moves_per_job=0)
    record.moves = 0
    assert refusal(state, "a", 1, rescues=True)


def test_another_move_after_no_time_at_all_is_refused():
    with pytest.raises(UsageError, match="another_move_us is 0: give microseconds, 1 or more"):
        Parameters(policy="weave", another_move_us=0)


def test_nobody_gives_its_last_move_for_the_promise_of_another():
    world = two_in_one_group(AT_ONCE)
    leave_room(world, "a", 1.1)
    jobs = world.scheduler.state.jobs
    jobs["a"].moves = AT_ONCE.max_moves_per_job + MOST_RESCUES
    jobs["b"].moves = AT_ONCE.max_moves_per_job + MOST_RESCUES - 2
    proposed = propose(world.scheduler.state, ())
    assert proposed is not None and [(move.job, move.rescues) for move in proposed.moves] == [("b", "a")]
    jobs["b"].moves += 1
    assert propose(world.scheduler.state, ()) is None
    leave_room(world, "a", 1.5)
    leave_room(world, "b", 1.1)
    proposed = propose(world.scheduler.state, ())
    assert proposed is not None and [(move.job, move.rescues) for move in proposed.moves] == [("b", "b")]


def test_a_promise_that_nobody_can_move_for_does_not_keep_another_from_being_saved():
    world = two_in_one_group(AT_ONCE)
    for name in "ab":
        leave_room(world, name, 1.1)
    world.scheduler.state.jobs["a"].moves = AT_ONCE.max_moves_per_job + MOST_RESCUES
    world.scheduler.state.jobs["b"].moves = AT_ONCE.max_moves_per_job + MOST_RESCUES - 1
    proposed = propose(world.scheduler.state, ())
    assert proposed is not None and [(move.job, move.rescues) for move in proposed.moves] == [("b", "b")]


def test_nobody_is_moved_for_a_promise_that_cannot_be_kept_or_where_nobody_is_to_be_moved():
    world = two_in_one_group(AT_ONCE)
    leave_room(world, "a", 0.9)
    assert propose(world.scheduler.state, ()) is None
    world = two_in_one_group(msgspec.structs.replace(AT_ONCE, max_moves_per_job=0))
    leave_room(world, "a", 1.1)
    assert propose(world.scheduler.state, ()) is None


def test_a_group_that_a_move_opens_takes_turns_by_slack():
    world = apart(nodes=THREE)
    state = world.scheduler.state
    record = state.jobs["a"]
    slots = tuple(tuple(Slot(name, device) for device in range(8)) for name in ("r2", "t2"))
    move = Move(job="a", attempt=1, group="", pin=Pin(*slots))
    candidate = candidate_of(without_record(state, record), remaining_spec(record), move)
    assert isinstance(candidate, Candidate)
    assert candidate.group.by_slack


def test_a_plan_names_its_placement_and_is_stale_after_the_next_arrival():
    world = apart()
    while world.scheduler.state.jobs["a"].iterations_done < 1:
        world.deliver()
    proposed = propose(world.scheduler.state)
    world.submit(saving("late"))
    assert isinstance(world.send(proposed)[0], RefusePlan)


steps = st.lists(
    st.tuples(
        st.sampled_from(["submit", "submit", "go on", "go on", "plan", "propose", "propose", "cancel", "kill"]),
        st.integers(0, 1000),
    ),
    max_size=60,
)


def play_with_plans(world: World, given_steps: list[tuple[str, int]], propose: Proposer = propose) -> int:
    """Plans made with sense and without, among arrivals, ends and faults; how many were taken."""
    taken = submitted = 0
    for action, number in given_steps:
        records = [r for r in world.scheduler.state.jobs.values() if r.state is JobState.RUNNING]
        if action == "submit":
            submitted += 1
            memory, retries = (SMALL, LARGE)[number % 2], number // 2 % 2
            gpus = (8, 8) if number % 5 else (1 + number % 8, 1 + number // 8 % 8)
            spec = saving(f"j{submitted}", slo=1.5 + number % 3, gpus=gpus, host_gib=memory, max_retries=retries)
            world.submit(spec)
        elif action == "plan" and records:
            record, other = records[number % len(records)], records[number // 7 % len(records)]
            group = "" if number % 5 == 0 else other.group
            move = Move(job=record.spec.name, attempt=record.attempt, group=group, pin=other.pin)
            taken += isinstance(plan(world, move)[0], PlanMove)
        elif action == "propose" and (proposed := propose(world.scheduler.state)) is not None:
            taken += isinstance(world.send(proposed)[0], PlanMove)
        elif action == "go on":
            play(world, [("deliver", 0 if place % 3 else number) for place in range(number % 30)])
        else:
            play(world, [(action, number)])
    return taken


@settings(max_examples=30, deadline=None)
@given(steps)
def test_invariants_hold_with_plans_of_any_kind_and_nothing_is_lost_or_run_twice(given_steps):
    world = apart(nodes=THREE)
    play_with_plans(world, given_steps)
    world.run()
    state = world.scheduler.state
    assert {record.state for record in state.jobs.values()} <= ENDED
    assert not state.groups and not state.moves
    for record in state.jobs.values():
        assert record.moves <= AT_ONCE.max_moves_per_job
        if record.state is JobState.FINISHED and record.attempt == 1 + record.moves:
            assert Counter(ran(world, record.spec.name)) == each_once(8)


def check_log(world: World) -> None:
    """The facts that a log would hold give the same state, and their events the same commands."""
    state = world.scheduler.state
    fresh, again = (Scheduler(state.cluster, state.parameters) for _ in range(2))
    for event, decided in world.log:
        fact = Fact(schema=SCHEMA, code="0", policy="weave", event=event, commands=tuple(decided))
        read = decode_fact(encode_fact(fact))
        fresh.replay(read.event, read.commands)
        assert again.handle(event) == decided
    check_invariants(fresh)
    assert image(fresh) == image(world.scheduler)


@settings(max_examples=12, deadline=None)
@given(steps)
def test_the_log_rebuilds_moves_under_way(given_steps):
    world = apart(nodes=THREE)
    play_with_plans(world, given_steps)
    check_log(world)
