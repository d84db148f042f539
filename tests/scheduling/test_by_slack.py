"""Groups by slack: who gets free slots, who must wait for how long, and what stays as it is in rounds."""

from collections.abc import Iterator

import msgspec
import pytest
from builders import SECOND, World, cluster, derived, job, node
from hypothesis import given, settings
from hypothesis import strategies as st
from test_lifecycle import SMALL, image, play, recovered, streams

from slack_policies import packed, placing, published
from weaverl.domain.cluster import PoolKind, Slot
from weaverl.domain.commands import AnyCommand, GrantPermit, MoveTail, SetTimer
from weaverl.domain.events import PermitRequested, PhaseEnded, PhaseReport, RankId, TailMoved, TailReached
from weaverl.domain.groups import Group, Pin
from weaverl.domain.jobs import ENDED, JobState, PhaseKind
from weaverl.scheduling.by_slack import MOST_PASSED, decide
from weaverl.scheduling.rotation import Rotation
from weaverl.scheduling.rotation_state import RotationState
from weaverl.scheduling.scheduler import Scheduler, Snapshot
from weaverl.scheduling.state import ClusterState, JobRecord, NodeRecord, Parameters, Progress, RankRecord

ROLLOUT, TRAINING = PhaseKind.ROLLOUT, PhaseKind.TRAINING
WEAVE = Parameters(policy="weave")


@pytest.fixture(autouse=True, scope="module")
def _by_slack() -> Iterator[None]:
    with placing(published):
        yield


def table(**slots: tuple[int, ...]) -> tuple[Rotation, ClusterState]:
    """A group by slack on one rollout node; each job's slots there, and the one training node."""
    of = cluster()
    state = ClusterState(of, Parameters(), {one.name: NodeRecord(one, ready=True) for one in of.nodes})
    pins = {}
    for name, devices in slots.items():
        ranks = {role: RankRecord(RankId(name, 1, role, 0), "r0", registered=True) for role in ("rollout", "training")}
        state.jobs[name] = JobRecord(job(name), 0, profile=job(name).profile, ranks=ranks)
        pins[name] = Pin(tuple(Slot("r0", device) for device in devices), (Slot("t0", 0),))
    group = Group("g1", ("r0",), ("t0",), tuple(slots), by_slack=True)
    return Rotation(RotationState(group), pins), state


def asks(rotation: Rotation, state: ClusterState, name: str, at: int, phase: PhaseKind = ROLLOUT) -> list[str]:
    """Whose phases are granted on a request."""
    state.now = at
    pool = PoolKind(str(phase))
    rotation.request(PermitRequested(job=name, attempt=1, role=str(pool), phase=phase, pool=pool, iteration=0, at=at))
    return decided(rotation, state)


def ends(rotation: Rotation, state: ClusterState, name: str, at: int) -> list[str]:
    """Whose phases are granted when one's has ended."""
    state.now = at
    grant = rotation.state.permits[name].grant
    rotation.phase_ended(
        PhaseEnded(
            rank=RankId(name, 1, grant.role, 0),
            token=grant.token,
            phase=grant.phase,
            iteration=0,
            vacated=True,
            report=PhaseReport(),
            at=at,
        )
    )
    return decided(rotation, state)


def decided(rotation: Rotation, state: ClusterState) -> list[str]:
    granted = []
    for command in decide(rotation, state):
        if isinstance(command, SetTimer):
            _, _, late, since = command.name.split("/")
            rotation.front_watched(late, int(since))
            continue
        assert isinstance(command, GrantPermit)
        state.tokens = command.token.counter
        rotation.granted(command, state.now)
        granted.append(command.job)
    return granted


def test_a_free_slot_is_granted_whoevers_turn_a_ring_would_have_it():
    rotation, state = table(a=(0,), b=(0,))
    assert asks(rotation, state, "a", 1) == ["a"]
    assert asks(rotation, state, "b", 2) == []
    assert ends(rotation, state, "a", 3) == ["b"]
    assert ends(rotation, state, "b", 4) == []
    assert asks(rotation, state, "b", 5) == ["b"], "a is elsewhere, and nobody waits for it"


def test_the_longest_waiting_goes_first_while_nobody_is_in_danger():
    rotation, state = table(a=(0,), b=(0,), c=(0,))
    assert asks(rotation, state, "c", 1) == ["c"]
    asks(rotation, state, "b", 2)
    asks(rotation, state, "a", 3)
    assert ends(rotation, state, "c", 4) == ["b"]


def test_slots_that_a_request_waits_for_are_nobodys_behind_it():
    rotation, state = table(small=(0,), wide=(0, 1), other=(1,), apart=(2,))
    assert asks(rotation, state, "small", 1) == ["small"]
    assert asks(rotation, state, "wide", 2) == []
    assert asks(rotation, state, "other", 3) == [], "slot 1 is free, and the wide job's next"
    assert asks(rotation, state, "apart", 4) == ["apart"]
    assert ends(rotation, state, "small", 5) == ["wide"]
    assert ends(rotation, state, "wide", 6) == ["other"]


def test_a_job_whose_promise_leaves_it_little_room_goes_before_others_that_waited_longer():
    rotation, state = table(a=(0,), b=(0,), c=(0,))
    at = 1000 * SECOND
    for name, wall in (("a", 100), ("b", 390), ("c", 420)):
        state.jobs[name].progress = Progress(iterations=10, solo_us=200 * SECOND, since=at - wall * SECOND)
    assert asks(rotation, state, "a", at) == ["a"]
    for late, name in enumerate("bc"):
        asks(rotation, state, name, at + late)
    assert ends(rotation, state, "a", at + 2) == ["c"], "it has used 420 s of the 400 s that its work allows"


def make_late(state: ClusterState, name: str, at: int) -> None:
    """It has used twice the time that its finished work allows."""
    state.jobs[name].progress = Progress(iterations=10, solo_us=200 * SECOND, since=at - 800 * SECOND)


def one_late(at: int) -> tuple[Rotation, ClusterState]:
    """A late job is in its rollout, the other would train; both share the training node."""
    rotation, state = table(late=(0,), other=(1,))
    asks(rotation, state, "late", at - 1, TRAINING)
    ends(rotation, state, "late", at - 1)
    make_late(state, "late", at)
    assert asks(rotation, state, "late", at) == ["late"]
    assert asks(rotation, state, "other", at) == ["other"]
    return rotation, state


def test_slots_are_kept_free_for_a_late_job_that_will_soon_ask_for_them():
    at = 1000 * SECOND
    rotation, state = one_late(at)
    ends(rotation, state, "other", at + 7 * SECOND)
    assert asks(rotation, state, "other", at + 7 * SECOND, TRAINING) == [], "3 s are less than half of its 10"
    state.jobs["late"].progress.part_us = 10 * SECOND
    assert ends(rotation, state, "late", at + 10 * SECOND) == [], "it asks at once"
    assert asks(rotation, state, "late", at + 10 * SECOND, TRAINING) == ["late"]
    state.jobs["late"].progress.part_us = 0
    assert ends(rotation, state, "late", at + 20 * SECOND) == ["other"]


def test_slots_are_not_kept_for_long_nor_for_a_job_that_is_not_late_nor_from_one_that_is():
    at = 1000 * SECOND
    rotation, state = one_late(at)
    ends(rotation, state, "other", at + 4 * SECOND)
    assert asks(rotation, state, "other", at + 4 * SECOND, TRAINING) == ["other"], "6 s are more than half of its 10"
    for change in ("late is not late", "other is late too"):
        rotation, state = one_late(at)
        if change == "late is not late":
            state.jobs["late"].progress = Progress(iterations=10, solo_us=200 * SECOND, since=at - 10 * SECOND)
        else:
            make_late(state, "other", at)
        ends(rotation, state, "other", at + 7 * SECOND)
        assert asks(rotation, state, "other", at + 7 * SECOND, TRAINING) == ["other"], change


def test_a_late_job_that_does_not_ask_is_waited_for_no_longer_than_the_patience():
    at = 1000 * SECOND
    rotation, state = one_late(at)
    ends(rotation, state, "other", at + 7 * SECOND)
    state.now = at + 7 * SECOND
    rotation.request(
        PermitRequested(
            job="other", attempt=1, role="training", phase=TRAINING, pool=PoolKind.TRAINING, iteration=0, at=state.now
        )
    )
    (timer,) = decide(rotation, state)
    assert isinstance(timer, SetTimer)
    assert timer.at == at + 10 * SECOND + state.parameters.turn_patience_us, "after the end of its rollout"
    _, _, name, since = timer.name.split("/")
    rotation.front_watched(name, int(since))
    assert list(decide(rotation, state)) == [], "it is watched once"
    state.now = timer.at
    rotation.pass_turn(name, int(since))
    assert decided(rotation, state) == ["other"]


def test_a_request_is_passed_so_often_and_then_goes_first():
    rotation, state = table(calm=(0,), hurried=(0,), third=(0,))
    at = 1000 * SECOND
    for name in ("hurried", "third"):
        state.jobs[name].progress = Progress(iterations=10, solo_us=200 * SECOND, since=at - 900 * SECOND)
    state.jobs["calm"].progress = Progress(iterations=10, solo_us=200 * SECOND, since=at - 10 * SECOND)
    asks(rotation, state, "hurried", at)
    asks(rotation, state, "calm", at + 1)
    holders = ["hurried"]
    while holders[-1] != "calm":
        other = "third" if holders[-1] == "hurried" else "hurried"
        asks(rotation, state, other, at + 1 + len(holders))
        holders += ends(rotation, state, holders[-1], at + 1 + len(holders))
    assert len(holders) == 1 + MOST_PASSED + 1
    assert rotation.state.passed == {}


def test_a_tail_is_moved_for_the_next_in_order_and_what_it_keeps_is_given_later():
    rotation, state = table(a=(0, 1, 2, 3), b=(0, 1, 2, 3), c=(0, 1, 2, 3))
    asks(rotation, state, "a", 1)
    asks(rotation, state, "b", 2)
    asks(rotation, state, "c", 3)
    grant, rank = rotation.state.permits["a"].grant, RankId("a", 1, "rollout", 0)
    keep = grant.slots[:1]
    rotation.tail_reached(TailReached(rank=rank, token=grant.token, iteration=0, keep=keep, at=4))
    (move,) = decide(rotation, state)
    assert isinstance(move, MoveTail) and move.keep == keep
    rotation.moving(move, 4)
    rotation.tail_moved(TailMoved(rank=rank, token=grant.token, at=5))
    (partial,) = decide(rotation, state)
    assert isinstance(partial, GrantPermit)
    assert (partial.job, partial.slots, partial.later) == ("b", grant.slots[1:], keep)


def one_of_each_size() -> World:
    world = World(cluster(node("r0"), node("r1"), node("t0")), iterations=6, parameters=WEAVE)
    for name, gpus in (("wide", (16, 8)), ("left", (8, 4)), ("right", (8, 4))):
        world.submit(job(name, 10, 5, slo=9.0, gpus=gpus, host_gib=(50, 50)))
    return world


def test_no_timer_watches_anybody_while_nobody_is_late():
    world = one_of_each_size()
    world.run()
    timers = {
        command.name.split("/")[0] for _, commands in world.log for command in commands if isinstance(command, SetTimer)
    }
    assert timers == {"vacate", "exit"}
    assert {world.state(name) for name in ("wide", "left", "right")} == {JobState.FINISHED}


def test_the_group_stays_by_slack_when_members_come_and_go():
    with placing(packed):
        world = World(cluster(), iterations=2, parameters=WEAVE)
        for name in "abc":
            world.submit(job(name))
    (group,) = world.scheduler.state.groups.values()
    assert (group.members, group.by_slack) == (("a", "b", "c"), True)
    world.register_all()
    while len(world.scheduler.state.groups["g1"].members) == 3:
        world.deliver()
    assert world.scheduler.state.groups["g1"].by_slack


def passes(log: list[tuple[object, list[AnyCommand]]], pins: dict[tuple[str, int], Pin]) -> int:
    """The most that younger requests, cold starts apart, got slots that a granted request was waiting for."""
    most, waiting = 0, {}
    for event, commands in log:
        if isinstance(event, PermitRequested):
            waiting[event.job, event.attempt, event.role, event.phase, event.iteration] = (event.at, 0)
        for command in commands:
            if isinstance(command, GrantPermit):
                key = command.job, command.attempt, command.role, command.phase, command.iteration
                asked_at, passed = waiting.pop(key)
                most = max(most, passed)
                taken = {*command.slots, *command.later}
                for other, (since, so_far) in waiting.items():
                    wants = pins[other[:2]].slots(PoolKind(other[2]))
                    if since < asked_at and taken & set(wants) and command.phase is not PhaseKind.LOADING:
                        waiting[other] = (since, so_far + 1)
    return most


class Watch(World):
    """A world that remembers where each attempt was pinned, and in which each event takes its time."""

    def __init__(self, *arguments, step_us: int, **more) -> None:
        self.pins: dict[tuple[str, int], Pin] = {}
        self.step_us = step_us
        super().__init__(*arguments, **more)

    def send(self, event) -> list[AnyCommand]:
        self.now += self.step_us
        commands = super().send(event)
        for name, record in self.scheduler.state.jobs.items():
            if record.pin is not None:
                self.pins[name, record.attempt] = record.pin
        return commands


@settings(max_examples=60, deadline=None)
@given(
    streams,
    st.sampled_from([published, packed]),
    st.integers(0, 4 * SECOND),
    st.booleans(),
    st.booleans(),
    st.sampled_from([0, 2, 3, 100]),
)
def test_invariants_hold_every_job_ends_and_the_log_rebuilds_the_state(
    steps: list[tuple[str, int]], choose, step_us: int, loading: bool, tails: bool, prepares: int
):
    with placing(choose):
        world = Watch(
            cluster(*SMALL), step_us=step_us, loading=loading, tails=tails, prepares=prepares, parameters=WEAVE
        )
        play(world, steps)
        world.run()
        assert {record.state for record in world.scheduler.state.jobs.values()} <= ENDED
        again = Scheduler(world.scheduler.state.cluster, WEAVE)
        for number, (event, commands) in enumerate(world.log):
            assert again.handle(event) == commands
            if number == len(world.log) // 2:
                thawed = Scheduler.from_snapshot(msgspec.msgpack.decode(image(again), type=Snapshot))
                assert (derived(thawed), image(thawed)) == (derived(again), image(again))
        assert image(recovered(world, WEAVE)) == image(world.scheduler)
        if not any(action == "lose" for action, _ in steps):
            assert passes(world.log, world.pins) <= MOST_PASSED
