"""Recovery from snapshot and trimmed log gives the very scheduler that was lost."""

import sys
import threading
import time
from pathlib import Path
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent.parent / "scheduling"))

from builders import World, cluster, job, node

from weaverl.channel import names
from weaverl.channel.memory import InMemoryStore
from weaverl.channel.sender import Sender
from weaverl.channel.store import START, Append, Put
from weaverl.channel.wire import WireError, decode_fact
from weaverl.cli.live_timeline import live_timeline
from weaverl.control.controller import BEAT_PATIENCE_SECONDS, TIMER_GRACE_SECONDS, Controller
from weaverl.control.recovery import recover
from weaverl.domain.commands import AnyCommand, VacateSlot
from weaverl.domain.events import AgentReported, AnyEvent, ControllerStarted, JobSubmitted, NodeLost, SlotVacated
from weaverl.domain.facts import Fact
from weaverl.domain.jobs import JobState
from weaverl.errors import FencedError
from weaverl.scheduling.state import ClusterState

CLUSTER = cluster(node("r0"), node("r1"), node("t0"))


class Driven(World):
    """A world whose events go through a controller on a store in memory. The controller can be killed and followed."""

    def __init__(self, *, iterations: int = 2, loading: bool = False, snapshot_every: int = 7) -> None:
        self.store = InMemoryStore()
        self.sender = Sender(self.store, "world")
        self.snapshot_every = snapshot_every
        self.take_over()
        super().__init__(CLUSTER, iterations=iterations, loading=loading)

    def take_over(self) -> None:
        self.controller = Controller(self.store, CLUSTER, "host/home", snapshot_every=self.snapshot_every)
        assert self.controller.take_over(threading.Event())

    def restart(self) -> None:
        """Another controller, and the agents report to it."""
        self.take_over()
        for of in CLUSTER.nodes:
            alive = [rank for (_, _, home), ranks in self.alive.items() if home == of.name for rank in ranks]
            self.send(AgentReported(epoch=0, node=of, alive=tuple(alive)))

    @property
    def scheduler(self) -> "Through":
        return Through(self)

    @scheduler.setter
    def scheduler(self, built: object) -> None:
        """The world's own is not used."""

    @property
    def state_now(self) -> ClusterState:
        return self.controller._recovered.scheduler.state

    def snapshot(self) -> object:
        return msgspec.to_builtins(self.controller._recovered.scheduler.snapshot())

    def recovered_snapshot(self) -> object:
        return msgspec.to_builtins(recover(self.store, CLUSTER).scheduler.snapshot())

    def facts(self) -> list[Fact]:
        return [decode_fact(entry.data) for entry in self.store.read(names.LOG, START, limit=10**6)]


class Through:
    """What the world takes for its scheduler: events go into the store, and come back decided in the log."""

    def __init__(self, driven: Driven) -> None:
        self._driven = driven
        self.state = driven.state_now
        self.rotation = driven.controller._recovered.scheduler.rotation

    def handle(self, event: AnyEvent) -> list[AnyCommand]:
        if isinstance(event, ControllerStarted):
            return []
        if isinstance(event, AgentReported):
            event = msgspec.structs.replace(event, epoch=self.state.epoch)
        store, after = self._driven.store, self._driven.store.last_position(names.LOG)
        self._driven.sender.send(event)
        self._driven.controller.turn()
        (decided,) = [decode_fact(entry.data) for entry in store.read(names.LOG, after)]
        return list(decided.commands)


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 4), st.sampled_from([1, 7, 50]))
def test_snapshot_and_trimmed_log_give_back_the_live_scheduler(random: Random, num_jobs: int, every: int):
    world = Driven(snapshot_every=every, loading=True)
    for number in range(num_jobs):
        gpus = random.choice([(8, 8), (16, 8), (4, 4)])
        world.submit(job(f"j{number}", profiled=random.random() < 0.5, gpus=gpus, max_retries=1))
    for _ in range(60):
        alive = [(rank, home) for (_, _, home), ranks in world.alive.items() for rank in ranks]
        chance = random.random()
        if chance < 0.05 and alive:
            world.kill_rank(*random.choice(alive))
        elif chance < 0.1:
            assert world.recovered_snapshot() == world.snapshot()
            world.restart()
        elif world.pending:
            world.deliver(random.randrange(len(world.pending)))
        elif world.timers:
            world.fire_next_timer()
    assert world.recovered_snapshot() == world.snapshot()
    assert len(world.facts()) <= 2 * every + 2


def test_a_timeline_whose_beginning_was_dropped_says_so_and_still_knows_its_jobs():
    world = Driven(snapshot_every=7, iterations=8)
    header, _ = live_timeline(world.store, CLUSTER)
    assert not header.partial
    world.submit(job("old"))
    for _ in range(40):
        world.deliver()
    header, timeline = live_timeline(world.store, CLUSTER)
    assert {one.job for one in timeline.intervals} == {"old"}
    (known,) = header.jobs
    assert (header.partial, known.name) == (True, "old")
    assert [(pin.attempt, len(pin.rollout)) for pin in known.pins] == [(1, 8)]


def test_each_controller_leads_in_a_higher_epoch_and_fences_the_one_before():
    driven = Driven()
    first = driven.controller
    driven.take_over()
    assert driven.state_now.epoch > first._recovered.scheduler.state.epoch
    first._renewal_due = 0.0
    with pytest.raises(FencedError):
        first.turn()


def test_a_record_of_a_newer_schema_stops_the_controller_with_a_clear_message():
    driven = Driven()
    newer = msgspec.msgpack.encode({"schema": 99, "code": "9", "policy": "p", "event": {}, "commands": []})
    driven.sender.commit([Append(names.LOG, newer)])
    with pytest.raises(WireError, match="upgrade weaverl"):
        driven.take_over()


def test_a_snapshot_of_a_newer_schema_stops_the_controller_with_a_clear_message():
    driven = Driven()
    driven.sender.commit([Put(names.SNAPSHOT, msgspec.msgpack.encode({"schema": 99}))])
    with pytest.raises(WireError, match="schema 99"):
        driven.take_over()


def test_an_unreadable_event_is_passed_over_once(caplog: pytest.LogCaptureFixture):
    driven = Driven()
    driven.sender.commit([Append(names.EVENTS, b"rubbish")])
    driven.sender.send(JobSubmitted(spec=job("a"), request="r"))
    driven.controller.turn()
    assert "a" in driven.state_now.jobs
    assert len([one for one in caplog.records if "is passed over" in one.getMessage()]) == 1
    driven.take_over()
    driven.controller.turn()
    assert len([one for one in caplog.records if "is passed over" in one.getMessage()]) == 1
    assert driven.store.read(names.EVENTS, START) == []


@pytest.mark.parametrize("grace_seconds", [0.0, TIMER_GRACE_SECONDS])
def test_a_timer_does_not_strike_before_what_was_said_while_nobody_led_is_heard(
    monkeypatch: pytest.MonkeyPatch, grace_seconds: float
):
    """A job is told to vacate; the controller is away for an hour, in which the job has vacated in good time."""
    world = Driven(iterations=3)
    world.submit(job("a"))
    world.register_all()
    world.submit(job("b"))
    while not any(isinstance(command, VacateSlot) for _, commands in world.log for command in commands):
        world.deliver()
    assert any(name.startswith("vacate/") for name in world.controller._recovered.timers)
    for event in list(world.pending):
        if isinstance(event, SlotVacated):
            world.sender.send(event)
    wall = time.time_ns
    monkeypatch.setattr("weaverl.control.clock.time.time_ns", lambda: wall() + 3600 * 10**9)
    monkeypatch.setattr("weaverl.control.controller.TIMER_GRACE_SECONDS", grace_seconds)
    world.take_over()
    due = world.controller._clock.now() + (grace_seconds - 5) * 1e6
    timers = world.controller._recovered.timers
    assert timers and all(at > due for at in timers.values())
    world.controller.turn()
    assert {record.state for record in world.state_now.jobs.values()} <= {JobState.STARTING, JobState.RUNNING}


def test_time_never_falls_when_the_wall_clock_does(monkeypatch: pytest.MonkeyPatch):
    driven = Driven()
    before = driven.state_now.now
    monkeypatch.setattr("weaverl.control.clock.time.time_ns", lambda: 10**9)
    driven.take_over()
    assert driven.state_now.now > before


def test_a_node_whose_agent_never_came_back_to_a_new_controller_is_lost(monkeypatch: pytest.MonkeyPatch):
    """Agent and controller died together: nobody ever said that the node is ready, and still it must be given up."""
    driven, now = Driven(), [1000.0]
    monkeypatch.setattr("weaverl.control.controller.time.monotonic", lambda: now[0])
    driven.take_over()
    for _ in range(round(BEAT_PATIENCE_SECONDS) + 3):
        now[0] += 1.0
        driven.controller.turn()
    nodes = driven.state_now.nodes
    assert all(record.lost_at is not None for record in nodes.values())
    assert {name.split("/")[0] for name in driven.controller._recovered.timers} == {"node"}
    lost = [fact for fact in driven.facts() if isinstance(fact.event, NodeLost)]
    assert len(lost) == len(nodes)


def test_a_node_that_beats_and_is_not_ready_is_asked_to_report(monkeypatch: pytest.MonkeyPatch):
    driven, now = Driven(), [1000.0]
    monkeypatch.setattr("weaverl.control.controller.time.monotonic", lambda: now[0])
    driven.take_over()
    calls = []
    for beat in range(4):
        driven.sender.commit([Put(names.node_beat("r0"), str(beat).encode())])
        now[0] += 1.1
        driven.controller.turn()
        calls.append(driven.store.get(names.roll_call("r0")))
    assert calls[-1] is not None and calls[-1] != calls[-2]
    assert driven.store.get(names.roll_call("t0")) is None
    epoch = driven.state_now.epoch
    driven.send(AgentReported(epoch=epoch, node=node("r0")))
    driven.sender.commit([Put(names.node_beat("r0"), b"x")])
    last = driven.store.get(names.roll_call("r0"))
    now[0] += 1.1
    driven.controller.turn()
    assert driven.store.get(names.roll_call("r0")) == last


def test_patience_starts_again_after_the_controller_itself_was_away(monkeypatch: pytest.MonkeyPatch):
    driven, now = Driven(), [1000.0]
    monkeypatch.setattr("weaverl.control.controller.time.monotonic", lambda: now[0])
    driven.take_over()
    for _ in range(3):
        driven.controller.turn()
        now[0] += 60.0
    assert all(record.lost_at is None for record in driven.state_now.nodes.values())
