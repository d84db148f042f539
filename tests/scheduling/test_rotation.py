"""Turns and permits, seen through the one door."""

import msgspec
from builders import SECOND, World, cluster, job, node

from weaverl.domain.cluster import PoolKind, Slot
from weaverl.domain.commands import KillJob, VacateSlot
from weaverl.domain.events import (
    JobCancelled,
    PermitRequested,
    PhaseEnded,
    RankId,
    Token,
)
from weaverl.domain.groups import Group, Pin
from weaverl.domain.jobs import JobState, PhaseKind
from weaverl.scheduling.rotation import Rotation
from weaverl.scheduling.rotation_state import RotationState
from weaverl.scheduling.state import ClusterState, JobRecord, NodeRecord, Parameters, RankRecord
from weaverl.scheduling.turns import decide


def woven(**more) -> World:
    world = World(cluster(), **more)
    world.submit(job("a"))
    world.submit(job("b"))
    world.register_all()
    return world


def order(world: World, phase: PhaseKind) -> list[str]:
    return [grant.job for grant in world.grants() if grant.phase is phase]


def test_two_jobs_take_turns_on_both_pools_in_one_order():
    world = woven()
    world.run()
    assert order(world, PhaseKind.ROLLOUT) == ["a", "b"] * 3
    assert order(world, PhaseKind.TRAINING) == ["a", "b"] * 3
    assert world.state("a") is world.state("b") is JobState.FINISHED


def test_second_job_rolls_out_while_first_trains():
    world = woven()
    held = []
    while world.pending:
        world.deliver()
        if "g1" in world.scheduler.state.groups:
            permits = world.scheduler.rotation("g1").permits
            held.append({(name, permit.grant.phase) for name, permit in permits.items()})
    assert {("a", PhaseKind.TRAINING), ("b", PhaseKind.ROLLOUT)} in held


def test_state_of_a_lone_job_lingers_and_is_vacated_once_somebody_else_wants_the_slot():
    world = World(cluster())
    world.submit(job("a"))
    while not world.grants():
        world.deliver()
    assert not world.grants()[0].vacate
    world.deliver()
    world.submit(job("b"))
    world.run()
    demands = [c for _, commands in world.log for c in commands if isinstance(c, VacateSlot)]
    assert demands and demands[0].job == "a"


def test_while_others_wait_state_leaves_at_the_end_of_the_phase_without_a_demand():
    world = woven(iterations=6)
    world.run()
    assert all(grant.vacate for grant in world.grants()[4:-2])


def test_a_lone_job_moves_no_state():
    world = World(cluster())
    world.submit(job("a"))
    world.run()
    assert not [c for _, commands in world.log for c in commands if isinstance(c, VacateSlot)]
    assert not any(grant.vacate for grant in world.grants())


def test_a_permit_is_granted_only_when_every_rank_is_registered():
    world = World(cluster(node("r0", devices=4), node("r1", devices=4), node("t0")))
    world.submit(job("a", gpus=(8, 8), driver=False))
    registrations = list(world.pending)
    world.pending.clear()
    world.send(registrations[0])
    world.send(
        PermitRequested(job="a", attempt=1, role="rollout", phase=PhaseKind.ROLLOUT, pool="rollout", iteration=0)
    )
    assert not world.grants()
    for registration in registrations[1:]:
        world.send(registration)
    assert [(g.ranks, len(g.slots)) for g in world.grants()] == [(2, 8)]


def test_a_permit_is_given_back_when_the_last_rank_ended_it():
    world = World(cluster(node("r0", devices=4), node("r1", devices=4), node("t0")))
    world.submit(job("a", gpus=(8, 8), driver=False))
    while not world.grants():
        world.deliver()
    rotation = world.scheduler.rotation("g1")
    world.deliver()
    assert rotation.permits["a"].open_ranks == [1]
    world.deliver()
    assert "a" not in rotation.permits


def test_a_stale_token_ends_nothing():
    world = woven()
    while not world.grants():
        world.deliver()
    ended = next(event for event in world.pending if isinstance(event, PhaseEnded))
    world.scheduler.handle(msgspec.structs.replace(ended, token=Token(0, 7), at=world.now))
    assert "a" in world.scheduler.rotation("g1").permits
    world.scheduler.handle(msgspec.structs.replace(ended, at=world.now))
    assert "a" not in world.scheduler.rotation("g1").permits


def test_a_killed_holders_slots_are_granted_only_after_its_death_is_confirmed():
    world = woven()
    while not world.grants():
        world.deliver()
    holder = world.grants()[0]
    world.kill_rank(RankId(holder.job, 1, "rollout", 0), "r0")
    confirmations = [event for event in world.pending if type(event).__name__ == "DeathConfirmed"]
    others = [event for event in world.pending if event not in confirmations]
    world.pending.clear()
    world.pending.extend(others)
    for _ in range(len(others)):
        if world.pending:
            world.deliver()
    assert len(world.grants()) == 1
    world.pending.extend(confirmations)
    world.run()
    assert world.state("a") is JobState.FAILED
    assert world.state("b") is JobState.FINISHED
    assert order(world, PhaseKind.ROLLOUT) == ["a", "b", "b", "b"]


def test_the_dead_jobs_report_names_rank_and_signal():
    world = woven()
    while not world.grants():
        world.deliver()
    world.kill_rank(RankId("a", 1, "training", 0), "t0")
    world.run()
    assert "a/training-0 was ended by signal 9 (SIGKILL" in world.scheduler.state.jobs["a"].reason


def test_killing_the_job_whose_turn_it_is_does_not_stall_the_ring():
    world = World(cluster(), iterations=4)
    for name in ("a", "b", "c"):
        world.submit(job(name, 5, 5, slo=4.0))
    while len(world.grants()) < 3:
        world.deliver()
    world.send(JobCancelled(job="b", request="x"))
    world.run()
    assert world.state("a") is world.state("c") is JobState.FINISHED
    assert world.state("b") is JobState.CANCELLED


def test_turn_counts_of_living_jobs_differ_by_at_most_one():
    world = World(cluster(), iterations=20)
    for name, rollout in (("a", 10), ("b", 2), ("c", 2)):
        world.submit(job(name, rollout, 4, slo=9.0))
    world.register_all()
    counts = dict.fromkeys("abc", 0)
    world.run()
    for name in order(world, PhaseKind.TRAINING):
        counts[name] += 1
        assert max(counts.values()) - min(counts.values()) <= 1 or min(counts.values()) == 0
    assert set(counts.values()) == {20}


def test_a_front_that_asks_nothing_loses_its_turn_after_its_patience_and_not_before():
    world = woven()
    while len(order(world, PhaseKind.ROLLOUT)) < 3:
        world.deliver()
    while not any(isinstance(e, PermitRequested) and e.job == "b" for e in world.pending):
        world.deliver()
    silent = next(e for e in world.pending if isinstance(e, PermitRequested) and e.job == "b")
    world.pending.remove(silent)
    while world.pending:
        world.deliver()
    before = len(world.grants())
    asked_at = world.now
    world.timers = [max(timer for timer in world.timers if timer[1].startswith("turn/g1/b/"))]
    assert 0 <= world.timers[0][0] - 30 * SECOND <= asked_at
    world.fire_next_timer()
    while world.pending and world.state("a") is not JobState.FINISHED:
        world.deliver()
    assert len(world.grants()) > before
    world.send(silent)
    world.run()
    assert world.state("b") is JobState.FINISHED


def test_a_phase_past_its_limit_ends_the_job_and_no_other():
    world = World(cluster())
    world.submit(job("a", max_phase_seconds=60.0))
    world.submit(job("b"))
    while not world.grants():
        world.deliver()
    world.pending.clear()
    world.fire_next_timer()
    kills = [c for _, commands in world.log for c in commands if isinstance(c, KillJob)]
    assert {kill.job for kill in kills} == {"a"}


def test_a_cold_start_goes_first_and_on_clean_slots_only():
    world = World(cluster(), loading=True)
    world.submit(job("a"))
    while len(order(world, PhaseKind.TRAINING)) < 1:
        world.deliver()
    world.submit(job("b"))
    world.run()
    demands = [c for _, commands in world.log for c in commands if isinstance(c, VacateSlot)]
    assert [(demand.job, demand.role) for demand in demands[:2]] == [("a", "rollout"), ("a", "training")]
    assert world.state("a") is world.state("b") is JobState.FINISHED


def test_nobody_waits_for_a_job_that_has_had_its_last_turn():
    world = World(cluster())
    world.submit(job("short", iterations=2))
    world.submit(job("long"))
    world.iterations = 2
    world.register_all()
    world.progress[("long", 1)] += [(PhaseKind(str(p)), p, 2) for p in ("rollout", "training")]
    held_back = []
    while order(world, PhaseKind.ROLLOUT) != ["short", "long", "short", "long"]:
        world.deliver()
    # The short job trains for ever: the long one must get its third rollout all the same.
    while world.pending:
        event = world.pending[0]
        if isinstance(event, PhaseEnded) and event.rank.job == "short" and event.iteration == 1:
            held_back.append(world.pending.popleft())
            continue
        world.deliver()
        if len(order(world, PhaseKind.ROLLOUT)) == 5:
            break
    assert held_back and order(world, PhaseKind.ROLLOUT)[-1] == "long"
    assert not world.grants()[-1].vacate


def test_a_job_that_asks_for_both_pools_at_once_gets_them_one_after_the_other():
    world = World(cluster())
    world.submit(job("a"))
    world.register_all()
    world.pending.clear()
    for phase in (PhaseKind.ROLLOUT, PhaseKind.TRAINING):
        world.send(
            PermitRequested(job="a", attempt=1, role=str(phase), phase=phase, pool=PoolKind(str(phase)), iteration=0)
        )
    assert order(world, PhaseKind.ROLLOUT) == ["a"] and order(world, PhaseKind.TRAINING) == []
    world.deliver()
    assert order(world, PhaseKind.TRAINING) == ["a"]


def asks(world: World, name: str, phase: PhaseKind, pool: PoolKind, iteration: int) -> None:
    world.send(PermitRequested(job=name, attempt=1, role=str(pool), phase=phase, pool=pool, iteration=iteration))


def test_the_end_of_a_cold_start_takes_no_turn_from_a_job_of_one_iteration():
    world = World(cluster(node("r0", devices=4), node("r1", devices=4), node("t0")))
    world.submit(job("a", gpus=(8, 8), driver=False, iterations=1))
    world.register_all()
    world.pending.clear()
    asks(world, "a", PhaseKind.LOADING, PoolKind.ROLLOUT, 0)
    ends = [event for event in world.pending if isinstance(event, PhaseEnded)]
    world.pending.clear()
    world.send(ends[0])
    asks(world, "a", PhaseKind.ROLLOUT, PoolKind.ROLLOUT, 0)
    world.send(ends[1])
    assert order(world, PhaseKind.ROLLOUT) == ["a"]


def test_nobody_comes_back_to_slots_that_are_cleared_for_a_cold_start():
    world = woven()
    world.pending.clear()
    asks(world, "a", PhaseKind.ROLLOUT, PoolKind.ROLLOUT, 0)
    world.deliver()  # the end of the rollout, whose state lingers
    world.pending.clear()
    asks(world, "b", PhaseKind.LOADING, PoolKind.ROLLOUT, 0)
    (cleared,) = world.pending
    asks(world, "a", PhaseKind.ROLLOUT, PoolKind.ROLLOUT, 1)
    assert order(world, PhaseKind.ROLLOUT) == ["a"]
    world.send(cleared)
    assert world.grants()[-1].job == "b"


def test_a_job_that_asks_again_after_its_last_iteration_gets_its_turn():
    world = World(cluster(node("r0", devices=4), node("r1", devices=4), node("t0")))
    world.submit(job("a", gpus=(8, 8), driver=False, iterations=1))
    world.register_all()
    world.pending.clear()
    asks(world, "a", PhaseKind.ROLLOUT, PoolKind.ROLLOUT, 0)
    ends = [event for event in world.pending if isinstance(event, PhaseEnded)]
    world.pending.clear()
    world.send(ends[0])
    asks(world, "a", PhaseKind.ROLLOUT, PoolKind.ROLLOUT, 1)
    world.send(ends[1])
    assert order(world, PhaseKind.ROLLOUT) == ["a", "a"]


def test_contradicting_rings_are_resolved_while_an_unrelated_member_runs():
    slots = {
        "a": (Slot("r0", 0), Slot("r0", 1)),
        "b": (Slot("r0", 1), Slot("r0", 2)),
        "c": (Slot("r0", 2), Slot("r0", 0)),
        "d": (Slot("r0", 3),),
    }
    pins = {name: Pin(taken, ()) for name, taken in slots.items()}
    rotation = Rotation(RotationState(Group("g", ("r0",), ("t0",), tuple(slots))), pins)
    for at, name in enumerate(slots):
        rotation.request(
            PermitRequested(
                job=name, attempt=1, role="rollout", phase=PhaseKind.ROLLOUT, pool=PoolKind.ROLLOUT, iteration=0, at=at
            )
        )
    rings = {0: ["a", "c"], 1: ["b", "a"], 2: ["c", "b"], 3: ["d"]}
    for lane in rotation.state.lanes:
        (slot,) = lane.slots
        lane.ring = rings[slot.device]
    granted = []
    for command in decide(rotation, started_cluster(*slots)):
        granted.append(command.job)
        rotation.granted(command, 10)
    assert sorted(granted) == ["a", "d"], "d runs on its own slot; of the others the longest waiting goes"


def started_cluster(*jobs: str) -> ClusterState:
    """A cluster whose agents are there and whose jobs have one registered rank."""
    of = cluster()
    state = ClusterState(of, Parameters(), {one.name: NodeRecord(one, ready=True) for one in of.nodes})
    for name in jobs:
        rank = RankRecord(RankId(name, 1, "rollout", 0), "r0", registered=True)
        state.jobs[name] = JobRecord(job(name), 0, ranks={"rollout-0": rank})
    return state
