"""Permits of jobs a step ahead (staleness 1): one in each pool, and no sample that is two versions old."""

import msgspec
import pytest
from builders import SECOND, World, check_invariants, cluster, derived, job, node
from hypothesis import given, settings
from hypothesis import strategies as st
from test_lifecycle import SMALL, disturb, image, recovered, streams

from slack_policies import packed, placing, published
from weaverl.domain.commands import GrantPermit
from weaverl.domain.events import (
    PermitRequested,
    PhaseEnded,
    PhaseMeasured,
    PhaseReport,
    RankId,
)
from weaverl.domain.groups import Move, pool_of
from weaverl.domain.jobs import JobState, PhaseKind
from weaverl.scheduling.scheduler import Scheduler, Snapshot
from weaverl.scheduling.state import Parameters

ROLLOUT, TRAINING, SYNC = PhaseKind.ROLLOUT, PhaseKind.TRAINING, PhaseKind.SYNC
PAPER, WEAVE = Parameters(), Parameters(policy="weave")
BOTH = pytest.mark.parametrize("parameters", [PAPER, WEAVE], ids=["rounds", "by slack"])


def running(parameters: Parameters, *names: str, **more: object) -> World:
    """Jobs a step ahead whose ranks are all there, and whose requests are the test's to make."""
    of = World(cluster(), parameters=parameters, iterations=0)
    for name in names:
        of.submit(job(name, driver=False, iterations=9, staleness=1, slo=9.0, **more))
    of.register_all()
    of.pending.clear()
    return of


def asks(of: World, name: str, phase: PhaseKind, iteration: int) -> list[tuple[str, PhaseKind, int]]:
    pool = pool_of(phase)
    return granted(
        of.send(PermitRequested(job=name, attempt=1, role=str(pool), phase=phase, pool=pool, iteration=iteration))
    )


def ends(of: World, name: str, phase: PhaseKind, iteration: int) -> list[tuple[str, PhaseKind, int]]:
    grant = next(one for one in of.grants() if (one.job, one.phase, one.iteration) == (name, phase, iteration))
    commands = of.scheduler.handle(
        PhaseEnded(
            rank=RankId(name, 1, grant.role, 0),
            token=grant.token,
            phase=phase,
            iteration=iteration,
            vacated=True,
            report=PhaseReport(body_us=5 * SECOND),
            at=of.now,
        )
    )
    of.occupants = {slot: one for slot, one in of.occupants.items() if one.token != grant.token}
    of.pending.clear()
    for command in commands:
        of._carry_out(command)
    of.log.append((PhaseEnded, commands))
    check_invariants(of.scheduler)
    return granted(commands)


def synced(of: World, name: str, iteration: int) -> list[tuple[str, PhaseKind, int]]:
    report = PhaseReport(body_us=SECOND)
    event = PhaseMeasured(rank=RankId(name, 1, "training", 0), phase=SYNC, iteration=iteration, report=report)
    of.sides[name, 1].num_synced = iteration + 1
    return granted(of.scheduler.handle(msgspec.structs.replace(event, at=of.now)))


def granted(commands: list) -> list[tuple[str, PhaseKind, int]]:
    return [(one.job, one.phase, one.iteration) for one in commands if isinstance(one, GrantPermit)]


@BOTH
def test_the_next_rollout_runs_beside_training(parameters):
    of = running(parameters, "a")
    assert asks(of, "a", ROLLOUT, 0) == [("a", ROLLOUT, 0)]
    ends(of, "a", ROLLOUT, 0)
    assert asks(of, "a", TRAINING, 0) == [("a", TRAINING, 0)]
    assert asks(of, "a", ROLLOUT, 1) == [("a", ROLLOUT, 1)]
    rotation = of.scheduler.rotation("g1")
    assert {permit.grant.phase for permit in rotation.permits.values()} == {ROLLOUT, TRAINING}


@BOTH
def test_a_rollout_waits_for_the_training_and_the_sync_of_the_iteration_before_the_last(parameters):
    of = running(parameters, "a")
    asks(of, "a", ROLLOUT, 0)
    ends(of, "a", ROLLOUT, 0)
    asks(of, "a", TRAINING, 0)
    asks(of, "a", ROLLOUT, 1)
    ends(of, "a", ROLLOUT, 1)
    assert asks(of, "a", ROLLOUT, 2) == [], "training 0 still runs"
    assert ends(of, "a", TRAINING, 0) == [], "its weights are not at the rollout side"
    assert synced(of, "a", 0) == [("a", ROLLOUT, 2)]


def test_the_device_of_a_rollout_that_may_not_begin_yet_is_anothers():
    with placing(packed):
        of = running(WEAVE, "a", "b", host_gib=(10, 10))
    asks(of, "a", ROLLOUT, 0)
    ends(of, "a", ROLLOUT, 0)
    asks(of, "a", TRAINING, 0)
    asks(of, "a", ROLLOUT, 1)
    ends(of, "a", ROLLOUT, 1)
    assert asks(of, "a", ROLLOUT, 2) == []
    assert asks(of, "b", ROLLOUT, 0) == [("b", ROLLOUT, 0)], "a would draw with weights that are two versions old"
    ends(of, "a", TRAINING, 0)
    assert synced(of, "a", 0) == [], "it is the other's turn"
    assert ends(of, "b", ROLLOUT, 0) == [("a", ROLLOUT, 2)]


def test_before_a_move_nothing_new_is_begun_until_the_iteration_is_over():
    of = running(WEAVE, "a")
    for iteration in range(3):
        asks(of, "a", ROLLOUT, iteration)
        ends(of, "a", ROLLOUT, iteration)
        if iteration < 2:
            asks(of, "a", TRAINING, iteration)
            ends(of, "a", TRAINING, iteration)
            synced(of, "a", iteration)
    record = of.scheduler.state.jobs["a"]
    assert record.pin is not None
    of.scheduler.state.moves["a"] = Move(job="a", attempt=1, group="", pin=record.pin)
    asks(of, "a", TRAINING, 2)
    assert asks(of, "a", ROLLOUT, 3) == [], "it would run beside training 2"
    assert ends(of, "a", TRAINING, 2) == []
    assert synced(of, "a", 2) == [("a", ROLLOUT, 3)], "it has saved nothing, so it goes on"


def mixed(world: World, steps: list[tuple[str, int]]) -> None:
    """Jobs of both kinds come, run, fail and are lost."""
    submitted = 0
    for action, number in steps:
        match action:
            case "submit":
                submitted += 1
                spec = job(
                    f"j{submitted}",
                    1 + number % 13,
                    1 + number % 7,
                    slo=1 + (number % 10) / 5,
                    gpus=(1 + number % 8, 1 + number // 8 % 8),
                    host_gib=(1 + number % 300, 1 + number % 400),
                    max_retries=number % 2,
                    profiled=number % 5 > 0,
                    iterations=3 if number % 3 else None,
                    staleness=number // 2 % 2,
                    checkpoint_directory="/c" if number % 4 else None,
                )
                world.submit(spec)
            case _:
                disturb(world, action, number)


@settings(max_examples=60, deadline=None)
@given(streams, st.booleans(), st.booleans(), st.sampled_from([None, published, packed]))
def test_jobs_of_both_kinds_end_whatever_happens_and_replay_gives_the_same_state(steps, loading, tails, placing_as):
    parameters = PAPER if placing_as is None else WEAVE
    with placing(placing_as or published):
        world = World(cluster(*SMALL), loading=loading, tails=tails, parameters=parameters)
        mixed(world, steps)
        rebuilt = recovered(world, parameters)
        assert image(rebuilt) == image(world.scheduler)
        assert derived(rebuilt) == derived(world.scheduler)
        snapshot = msgspec.msgpack.decode(image(world.scheduler), type=Snapshot)
        assert derived(Scheduler.from_snapshot(snapshot)) == derived(world.scheduler)
        world.run()
        assert not any(record.live for record in world.scheduler.state.jobs.values())


@BOTH
def test_many_jobs_of_both_kinds_share_nodes_and_nobody_starves(parameters):
    of = World(cluster(node("r0", devices=4), node("t0", devices=4)), parameters=parameters, iterations=12)
    with placing(packed):
        for number in range(4):
            of.submit(
                job(f"j{number}", 1, 1, slo=9, gpus=(4, 4), host_gib=(10, 10), iterations=12, staleness=number % 2)
            )
        of.run()
    assert all(of.state(f"j{number}") is JobState.FINISHED for number in range(4))
