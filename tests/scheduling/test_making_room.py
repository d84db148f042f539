"""A fixed fleet: who has nodes of its own, who makes room for whom, and that nobody is passed for ever."""

from time import sleep

import msgspec
import pytest
from builders import SECOND, World, cluster, job, node
from hypothesis import given, settings
from test_moves import AT_ONCE, NODES, THREE, check_log, commands, plan, play_with_plans, steps

from weaverl.control.planner import Planner
from weaverl.domain.commands import DropMove, PlanMove, QueueJob
from weaverl.domain.events import JobCancelled
from weaverl.domain.groups import Move, Pin
from weaverl.domain.jobs import ENDED, JobSpec, JobState
from weaverl.domain.units import HOUR_US
from weaverl.errors import UsageError
from weaverl.scheduling import replanning
from weaverl.scheduling.admission import Candidate
from weaverl.scheduling.backfilling import MOST_PASSED_US, PATIENCE_US, expected_wait_us
from weaverl.scheduling.making_room import propose
from weaverl.scheduling.moves import destination, purpose
from weaverl.scheduling.state import Parameters
from weaverl.scheduling.trial_moves import candidate_of, remaining_spec, without_record

FLEET = msgspec.structs.replace(AT_ONCE, objective="throughput")


def heavy(name: str, *, slo: float = 3.0, iterations: int = 8, **more: object) -> JobSpec:
    """Two of these slow each other down by a ninth."""
    return job(name, 25, 20, slo=slo, iterations=iterations, checkpoint_directory="here", **more)


def fleet(*nodes, parameters: Parameters = FLEET) -> World:
    return World(cluster(*(nodes or NODES)), iterations=8, parameters=parameters)


def running(world: World, *names: str) -> None:
    """Until each of these has run an iteration, so that it can be moved."""
    while any(world.scheduler.state.jobs[name].iterations_done < 1 for name in names):
        world.deliver()


def wait(world: World, name: str, microseconds: float) -> None:
    """As if the job had waited for so long already."""
    record = world.scheduler.state.jobs[name]
    record.submitted_at -= int(microseconds)
    record.queued_at -= int(microseconds)


def crowded(**more: object) -> tuple[World, Move]:
    """Two jobs on nodes of their own, and one that bears no neighbour; the move that is planned for it."""
    world = fleet()
    for name in ("a", "b"):
        world.submit(heavy(name, **more))
    world.register_all()
    world.submit(heavy("picky", slo=1.0))
    assert world.state("picky") is JobState.QUEUED
    running(world, "a", "b")
    proposed = propose(world.scheduler.state, ())
    assert proposed is not None
    (move,) = proposed.moves
    return world, move


def test_while_somebody_waits_no_moves_are_weighed_that_only_save(monkeypatch):
    world, _ = crowded()
    monkeypatch.setattr(replanning, "_paying", lambda *_: pytest.fail("its answer would be thrown away"))
    assert propose(world.scheduler.state, list(world.scheduler.state.groups)) is not None


def test_a_free_node_is_taken_where_dollars_would_share():
    kinds = {}
    for objective in ("dollars", "throughput"):
        world = fleet(parameters=msgspec.structs.replace(FLEET, objective=objective))
        world.submit(job("a", 20, 20, slo=3.0))
        world.submit(job("b", 20, 20, slo=3.0))
        kinds[objective] = world.admitted("b").verdicts[-1].kind
    assert kinds == {"dollars": "pack", "throughput": "isolate"}


def test_where_no_node_is_free_jobs_share_rather_than_wait():
    world = fleet()
    for name in "abc":
        world.submit(job(name, 20, 20, slo=3.0))
    assert world.admitted("c").verdicts[-1].kind == "pack"


def test_the_group_that_loses_the_least_work_is_joined():
    """Beside the job that is about to end, though the other one's group would be held for as long anyway."""
    world = fleet()
    world.submit(heavy("long", iterations=1000))
    world.submit(heavy("short", iterations=10))
    world.submit(heavy("new", iterations=900))
    assert world.admitted("new").group.name == world.admitted("short").group.name


def test_a_job_moves_in_with_another_so_that_one_which_bears_nobody_can_start():
    world, move = crowded()
    assert (move.makes_room_for, move.job) in {("picky", "a"), ("picky", "b")}
    assert move.group and move.saving_usd < 0.0
    assert purpose(move) == "make room for picky"
    assert destination(move) == f"group {move.group}"
    assert plan(world, move) == [PlanMove(job=move.job, move=move)]
    assert propose(world.scheduler.state, ()) is None, "it is awaited"
    world.run()
    state = world.scheduler.state
    assert {record.state for record in state.jobs.values()} == {JobState.FINISHED}
    assert state.jobs[move.job].moves == 1
    assert world.admitted("picky").verdicts[-1].kind == "isolate"
    ended = {name: state.jobs[name].ended_at for name in "ab"}
    assert world.scheduler.state.jobs["picky"].admitted_at < min(ended.values())


def test_who_hangs_is_not_awaited_and_another_makes_room():
    world, move = crowded(slo=50.0, iterations=40)
    plan(world, move)
    state = world.scheduler.state
    assert propose(state, ()) is None, "it is awaited"
    state.jobs[move.job].progress.since -= round(2 * HOUR_US)
    proposed = propose(state, ())
    assert proposed is not None
    (another,) = proposed.moves
    assert {another.job, move.job} == {"a", "b"}
    assert another.makes_room_for == "picky"


def test_who_hangs_is_not_asked_to_make_room():
    world, move = crowded(slo=50.0, iterations=40)
    state = world.scheduler.state
    state.jobs[move.job].progress.since -= round(2 * HOUR_US)
    proposed = propose(state, ())
    assert proposed is not None and move.job not in {one.job for one in proposed.moves}


def test_who_saves_too_seldom_is_not_asked_to_make_room():
    world, _ = crowded()
    both = [world.scheduler.state.jobs[name] for name in ("a", "b")]
    while not all(record.checkpoints for record in both):
        world.deliver()
    assert propose(world.scheduler.state, ()) is not None
    for record in both:
        record.saves_every = 40
    assert propose(world.scheduler.state, ()) is None


def test_nobody_makes_room_for_one_that_waits_no_more():
    world, move = crowded()
    plan(world, move)
    world.send(JobCancelled(job="picky"))
    while not commands(world, DropMove):
        world.deliver()
    assert [one.reason for one in commands(world, DropMove)] == ["picky waits no more"]
    assert world.scheduler.state.jobs[move.job].moves == 0


def test_nobody_makes_room_where_promises_forbid_it_or_for_less_than_it_costs():
    for more in ({"slo": 1.0}, {"host_gib": (900, 900)}):
        world = fleet()
        for name in ("a", "b"):
            world.submit(heavy(name, **more))
        world.register_all()
        world.submit(heavy("picky", slo=1.0))
        running(world, "a", "b")
        assert propose(world.scheduler.state, ()) is None
    world, _ = crowded()
    state = world.scheduler.state
    state.parameters = msgspec.structs.replace(FLEET, saving_over_cost=1e9)
    assert propose(state, ()) is None
    state.parameters = msgspec.structs.replace(FLEET, objective="dollars")
    assert all(not move.makes_room_for for move in getattr(propose(state, ()), "moves", ()))


def test_while_somebody_waits_nobody_moves_onto_free_nodes():
    """Two share one node of each pool; a third one needs two of each, and one is free."""
    world = fleet()
    for name in ("a", "b", "c"):
        world.submit(heavy(name))
    world.submit(heavy("wide", slo=1.0, gpus=(16, 16)))
    world.register_all()
    running(world, "a", "b", "c")
    alone = next(record for record in world.scheduler.state.jobs.values() if record.predicted_slowdown == 1.0)
    assert alone.spec.name in ("a", "b", "c")
    world.send(JobCancelled(job=alone.spec.name))
    while alone.state is JobState.STOPPING:
        world.deliver()
    proposed = propose(world.scheduler.state)
    assert proposed is None or all(move.makes_room_for == "wide" for move in proposed.moves)


def test_the_first_waits_until_enough_nodes_of_each_pool_are_free():
    world = fleet(*THREE)
    for name, iterations in (("a", 10), ("b", 100)):
        world.submit(job(name, 20, 30, slo=1.0, iterations=iterations))
    state = world.scheduler.state
    times = [expected_wait_us(state, job("x", 1, 1, gpus=gpus)) for gpus in ((8, 8), (16, 8), (8, 24), (8, 32))]
    assert times == [0.0, 500 * SECOND, 5000 * SECOND, float("inf")]


def test_a_wide_job_is_passed_for_a_while_only():
    """Small jobs come for ever, each to stay for long; the wide one has both nodes when those before it have ended."""
    world = fleet(parameters=msgspec.structs.replace(FLEET, max_moves_per_job=0))
    world.submit(job("first", 3000, 3000, slo=1.0, iterations=1))
    world.submit(job("wide", 20, 20, slo=1.0, gpus=(16, 16), iterations=2))
    assert world.state("wide") is JobState.QUEUED
    world.submit(job("early", 1000, 1000, slo=1.0, iterations=3))
    assert world.admitted("early"), "the wide one starts within its patience all the same"
    wait(world, "wide", PATIENCE_US)
    world.send(JobCancelled(job="early"))
    while world.state("early") is JobState.STOPPING:
        world.deliver()
    world.submit(job("brief", 100, 100, slo=1.0, iterations=3))
    assert world.admitted("brief"), "it ends before the first does"
    world.submit(job("late", 1000, 5000, slo=1.0, iterations=3))
    assert world.state("late") is JobState.QUEUED
    assert world.scheduler.state.jobs["late"].verdicts[-1].refused


ON_ONE_POOL = msgspec.structs.replace(FLEET, colocates=True)


def synced(name: str, **more: object) -> JobSpec:
    """A job that is faster without its sync."""
    spec = heavy(name, **more)
    return msgspec.structs.replace(spec, profile=msgspec.structs.replace(spec.profile, sync_seconds=30.0))


def test_a_job_with_a_long_sync_has_training_gpus_to_itself():
    world = fleet(parameters=ON_ONE_POOL)
    world.submit(synced("a"))
    admitted = world.admitted("a")
    assert admitted.verdicts[-1].kind == "colocate on training GPUs"
    assert (admitted.group.rollout_nodes, admitted.group.training_nodes) == ((), ("t0",))
    assert admitted.predicted_slowdowns["a"] == pytest.approx((25 * 1.1 + 20) / 75)
    world.submit(heavy("b"))
    assert world.admitted("b").verdicts[-1].kind == "isolate"
    world.submit(heavy("c"))
    assert world.admitted("c").group.name == world.admitted("b").group.name
    refused = {verdict.refused for verdict in world.admitted("c").verdicts}
    assert "has a job with all its phases on one pool's GPUs" in refused
    world.register_all()
    world.run()
    assert {record.state for record in world.scheduler.state.jobs.values()} == {JobState.FINISHED}


def test_a_job_whose_phases_run_side_by_side_has_slots_in_both_pools():
    world, spec = fleet(parameters=ON_ONE_POOL), synced("a")
    ahead = msgspec.structs.replace(spec.profile, staleness=1)
    world.submit(msgspec.structs.replace(spec, staleness=1, profile=ahead))
    assert world.admitted("a").verdicts[-1].kind == "isolate"


def test_a_running_job_moves_to_training_gpus_alone_when_they_are_free():
    world = fleet(node("r0"), node("t0"), parameters=ON_ONE_POOL)
    world.submit(heavy("a"))
    world.submit(synced("b", iterations=8))
    world.register_all()
    running(world, "a", "b")
    world.send(JobCancelled(job="a"))
    while world.state("a") is JobState.STOPPING:
        world.deliver()
    running(world, "b")
    state = world.scheduler.state
    record = state.jobs["b"]
    slots = record.pin.training
    proposed = propose(state)
    assert proposed is not None
    (move,) = proposed.moves
    assert (move.job, move.group, move.pin) == ("b", "", Pin(slots, slots))
    assert move.saving_usd > 0.0
    candidate = candidate_of(without_record(state, record), remaining_spec(record), move)
    assert isinstance(candidate, Candidate)
    assert (candidate.group.rollout_nodes, candidate.group.training_nodes) == ((), ("t0",))
    assert candidate.group.by_slack
    assert candidate_of(state, remaining_spec(record), move) == "node t0 is not to be had any more"
    plan(world, move)
    world.run()
    assert (world.state("b"), state.jobs["b"].moves) == (JobState.FINISHED, 1)
    assert world.admitted("b").pin == Pin(slots, slots)


def test_only_throughput_has_jobs_on_one_pool():
    with pytest.raises(UsageError, match="the objective is dollars"):
        Parameters(policy="weave", colocates=True)


@pytest.mark.parametrize(("objective", "thinks"), [("throughput", True), ("dollars", False)])
def test_the_planner_of_a_live_fleet_thinks_when_a_job_has_to_wait(objective, thinks):
    world, move = crowded()
    state, planner = world.scheduler.state, Planner()
    assert state.now < state.parameters.review_us
    planner.hear([QueueJob(job="picky", verdicts=())])
    state.parameters = msgspec.structs.replace(FLEET, objective=objective)
    assert planner.look(state) is None, "it thinks aside"
    plan = None
    for _ in range(2000 if thinks else 10):
        plan = planner.look(state)
        if plan is not None:
            break
        sleep(0.005)
    planner.close()
    assert (plan is not None) == thinks
    assert plan is None or plan.moves == (move,)


def test_nobody_passes_a_job_that_has_waited_for_a_day():
    world = fleet(parameters=msgspec.structs.replace(FLEET, max_moves_per_job=0))
    world.submit(job("first", 3000, 3000, slo=1.0, iterations=1))
    world.submit(job("wide", 20, 20, slo=1.0, gpus=(16, 16), iterations=2))
    wait(world, "wide", MOST_PASSED_US)
    world.submit(job("brief", 1, 1, slo=1.0, iterations=1))
    assert world.state("brief") is JobState.QUEUED
    assert "would delay wide" in world.scheduler.state.jobs["brief"].verdicts[-1].refused
    world.register_all()
    world.run()
    started = {name: world.scheduler.state.jobs[name].admitted_at for name in ("wide", "brief")}
    assert started["wide"] < started["brief"]


@settings(max_examples=20, deadline=None)
@given(steps)
def test_invariants_hold_on_a_fleet_and_its_log_decides_the_same(given_steps):
    world = fleet(*THREE)
    play_with_plans(world, given_steps, propose)
    check_log(world)
    world.run()
    state = world.scheduler.state
    assert {record.state for record in state.jobs.values()} <= ENDED
    assert not state.groups and not state.moves


@pytest.mark.parametrize("objective", ["dollars", "throughput"])
def test_a_fleet_that_never_has_room_says_why(objective):
    world = fleet(parameters=msgspec.structs.replace(FLEET, objective=objective))
    world.submit(heavy("a", slo=1.0))
    world.submit(heavy("b", slo=1.0))
    world.submit(job("c", 20, 20, slo=1.0))
    assert world.state("c") is JobState.QUEUED
    assert any("would slow" in verdict.refused for verdict in world.scheduler.state.jobs["c"].verdicts)
