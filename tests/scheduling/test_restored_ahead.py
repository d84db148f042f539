"""State restored ahead: for whom, where and when, that it is in nobody's way, and that it ends like any other state."""

import msgspec
import pytest
from builders import GIB, SECOND, World, cluster, job
from test_by_slack import asks, ends, table

from slack_policies import packed, placing
from weaverl.domain.cluster import PoolKind
from weaverl.domain.commands import AnyCommand, GrantPermit, PrepareSlot, SetTimer, VacateSlot
from weaverl.domain.events import (
    PermitRequested,
    PhaseEnded,
    PhaseReport,
    RankId,
    SlotPrepared,
    SlotVacated,
    Token,
)
from weaverl.domain.jobs import DeviceMemory, DeviceNeed, JobState, PhaseKind, Placement
from weaverl.scheduling.by_slack import decide
from weaverl.scheduling.rotation import Rotation
from weaverl.scheduling.state import ClusterState, Ending, Parameters

ROLLOUT, TRAINING = PhaseKind.ROLLOUT, PhaseKind.TRAINING
WEAVE = Parameters(policy="weave")


def group(**slots: tuple[int, ...]) -> tuple[Rotation, ClusterState]:
    """As in the tests of groups by slack, with jobs that have had both phases once; nobody restores ahead yet."""
    rotation, state = table(**slots)
    for name in slots:
        for phase in (ROLLOUT, TRAINING):
            assert asks(rotation, state, name, 0, phase) == [name]
            ends(rotation, state, name, 0)
    return rotation, state


def starts_to_restore(state: ClusterState, **memory: DeviceMemory) -> None:
    """From now on under policy weave, by ranks that know how to."""
    state.parameters = WEAVE
    for name, record in state.jobs.items():
        record.spec = msgspec.structs.replace(record.spec, device_memory=memory.get(name, DeviceMemory()))
        for rank in record.ranks.values():
            rank.prepares = True


def decided(rotation: Rotation, state: ClusterState) -> list[AnyCommand]:
    """What is decided now, timers left out, folded as it comes."""
    found = []
    for command in decide(rotation, state):
        match command:
            case GrantPermit():
                state.tokens = command.token.counter
                rotation.granted(command, state.now)
            case PrepareSlot():
                state.tokens = command.token.counter
                rotation.preparing(command)
            case VacateSlot():
                rotation.vacating(command)
            case SetTimer():
                continue
        found.append(command)
    return found


def said(commands: list[AnyCommand]) -> list[str]:
    """In words."""
    words = {GrantPermit: "grant", PrepareSlot: "prepare", VacateSlot: "vacate"}
    return [f"{words[type(command)]} {command.job}" for command in commands]


def answers(rotation: Rotation, command: PrepareSlot | VacateSlot, event: type[SlotPrepared | SlotVacated]) -> None:
    for number in range(command.ranks):
        rank = RankId(command.job, 1, command.role, number)
        told = event(rank=rank, token=command.token, report=PhaseReport(), at=1)
        rotation.slot_prepared(told) if isinstance(told, SlotPrepared) else rotation.slot_vacated(told)


def a_trains_next() -> tuple[Rotation, ClusterState, PrepareSlot]:
    """Both are in their rollouts, apart; the one that began first is expected in training first, and is restored."""
    rotation, state = group(a=(0,), b=(1,))
    assert asks(rotation, state, "a", 10 * SECOND) == ["a"]
    assert asks(rotation, state, "b", 12 * SECOND) == ["b"]
    starts_to_restore(state)
    (prepare,) = decided(rotation, state)
    assert isinstance(prepare, PrepareSlot)
    return rotation, state, prepare


def ask(rotation: Rotation, state: ClusterState, name: str, at: int, phase: PhaseKind = TRAINING) -> list[AnyCommand]:
    """What is decided when a job asks for a phase."""
    pool, state.now = PoolKind(str(phase)), at
    rotation.request(PermitRequested(job=name, attempt=1, role=str(pool), phase=phase, pool=pool, iteration=1, at=at))
    return decided(rotation, state)


def end(rotation: Rotation, state: ClusterState, name: str, at: int) -> list[AnyCommand]:
    """What is decided when a job's phase ends, and its state is off the slots."""
    grant, state.now = rotation.state.permits[name].grant, at
    state.jobs[name].progress.part_us = 10 * SECOND if grant.phase is ROLLOUT else 0
    rank = RankId(name, 1, grant.role, 0)
    report = PhaseReport(body_us=10 * SECOND)
    rotation.phase_ended(
        PhaseEnded(rank=rank, token=grant.token, phase=grant.phase, iteration=1, vacated=True, report=report, at=at)
    )
    return decided(rotation, state)


def test_who_is_expected_next_is_restored_while_the_slots_idle_and_is_granted_them_as_they_are():
    rotation, state, prepare = a_trains_next()
    assert (prepare.job, prepare.role, prepare.pool) == ("a", "training", PoolKind.TRAINING)
    assert prepare.token == Token(state.epoch, state.tokens), "a token of its own, newer than all before"
    assert decided(rotation, state) == [], "once"
    answers(rotation, prepare, SlotPrepared)
    end(rotation, state, "a", 20 * SECOND)
    assert said(ask(rotation, state, "a", 20 * SECOND)) == ["grant a"]
    assert not rotation.state.lingering, "the permit has taken the state over"


def test_who_asks_before_the_restore_is_over_is_granted_the_slots_at_once():
    rotation, state, _ = a_trains_next()
    end(rotation, state, "a", 20 * SECOND)
    assert said(ask(rotation, state, "a", 20 * SECOND)) == ["grant a"]


def test_another_who_asks_first_gets_the_slots_once_the_state_is_off_them():
    rotation, state, prepare = a_trains_next()
    (vacate,) = end(rotation, state, "b", 19 * SECOND)
    assert isinstance(vacate, VacateSlot) and (vacate.job, vacate.token) == ("a", prepare.token)
    assert ask(rotation, state, "b", 19 * SECOND) == []
    answers(rotation, prepare, SlotPrepared)
    assert decided(rotation, state) == [], "the save is not over"
    answers(rotation, vacate, SlotVacated)
    assert said(decided(rotation, state)) == ["grant b"]


def test_state_is_restored_again_for_another_who_is_expected_earlier_by_more_than_a_restore():
    rotation, state, _ = a_trains_next()
    state.now = 15 * SECOND
    state.jobs["a"].profile = msgspec.structs.replace(state.jobs["a"].profile, rollout_mean_seconds=100.0)
    rotation.rings.forget_times()
    (vacate,) = decided(rotation, state)
    assert isinstance(vacate, VacateSlot) and vacate.job == "a"
    answers(rotation, vacate, SlotVacated)
    assert said(decided(rotation, state)) == ["prepare b"]


@pytest.mark.parametrize("why", ["parameter", "policy", "ranks", "ending", "unknown times", "local"])
def test_nothing_is_restored_ahead_where_that_is_off_or_cannot_be(why: str):
    rotation, state = group(a=(0,), b=(1,))
    asks(rotation, state, "a", 10 * SECOND)
    asks(rotation, state, "b", 12 * SECOND)
    starts_to_restore(state)
    for record in state.jobs.values():
        match why:
            case "ranks":
                for rank in record.ranks.values():
                    rank.prepares = False
            case "ending":
                record.ending = Ending(JobState.CANCELLED, "", [])
            case "unknown times":
                record.profile = None
            case "local":
                record.spec = msgspec.structs.replace(record.spec, placement=Placement.LOCAL)
            case "parameter":
                state.parameters = Parameters(policy="weave", hidden_switches=False)
            case "policy":
                state.parameters = Parameters()
    assert decided(rotation, state) == []


def test_what_a_rank_could_not_restore_is_not_asked_for_again_before_its_next_phase_there():
    rotation, state, prepare = a_trains_next()
    answers(rotation, prepare, SlotVacated)
    assert decided(rotation, state) == []
    end(rotation, state, "a", 20 * SECOND)
    assert said(ask(rotation, state, "a", 20 * SECOND)) == ["grant a"]
    assert not rotation.state.declined


def of_training(state_gib: int, working_gib: int) -> DeviceMemory:
    return DeviceMemory(training=DeviceNeed(state_bytes=state_gib * GIB, working_bytes=working_gib * GIB))


@pytest.mark.parametrize(
    ("waiting", "holder", "found"),
    [
        (of_training(20, 60), of_training(30, 30), ["prepare b"]),
        (of_training(21, 60), of_training(30, 30), []),
        (of_training(20, 60), DeviceMemory(), []),
        (DeviceMemory(), of_training(30, 30), []),
    ],
    ids=["fits", "is too large", "holder unknown", "own unknown"],
)
def test_beside_a_holder_state_is_restored_where_both_and_its_work_fit_the_device(waiting, holder, found: list[str]):
    rotation, state = group(a=(0,), b=(1,))
    asks(rotation, state, "a", 10 * SECOND, TRAINING)
    starts_to_restore(state, a=holder, b=waiting)
    assert said(ask(rotation, state, "b", 12 * SECOND)) == found
    after = end(rotation, state, "a", 20 * SECOND)
    assert said(after)[0] == "grant b"
    assert not any(isinstance(one, VacateSlot) for one in after)


def test_a_killed_jobs_restored_state_keeps_its_slots_until_its_death_is_confirmed():
    rotation, state, _ = a_trains_next()
    rotation.silence("a")
    end(rotation, state, "b", 19 * SECOND)
    assert ask(rotation, state, "b", 19 * SECOND) == []
    rotation.forget("a", "t0")
    assert said(decided(rotation, state)) == ["grant b"]


def test_jobs_that_take_turns_are_restored_ahead_and_all_end():
    with placing(packed):
        world = World(cluster(), iterations=8, prepares=100, parameters=WEAVE)
        for name in "abc":
            world.submit(job(name, slo=9.0))
        world.run()
    commands = [command for _, decided in world.log for command in decided]
    assert sum(isinstance(one, PrepareSlot) for one in commands) > 10
    assert {world.state(name) for name in "abc"} == {JobState.FINISHED}
