"""Faults and ends, and recovery from the log, seen through the one door."""

import msgspec
from builders import GIB, World, check_invariants, cluster, derived, job, node
from hypothesis import given, settings
from hypothesis import strategies as st

from weaverl.channel.wire import decode_fact, encode_fact
from weaverl.domain.commands import KillJob
from weaverl.domain.events import (
    AgentReported,
    ControllerStarted,
    DeathConfirmed,
    JobCancelled,
    NodeLost,
    PhaseEnded,
    ProcessExited,
    RankId,
    StartFailed,
    TimerFired,
)
from weaverl.domain.facts import SCHEMA, Fact
from weaverl.domain.jobs import ENDED, DeviceMemory, DeviceNeed, JobState
from weaverl.scheduling.scheduler import Scheduler, Snapshot
from weaverl.scheduling.state import Parameters


def kills(world: World) -> list[tuple[str, int, str]]:
    return [(c.job, c.attempt, c.node) for _, commands in world.log for c in commands if isinstance(c, KillJob)]


def test_a_failed_job_with_retries_left_is_submitted_again_as_a_new_attempt():
    world = World(cluster())
    world.submit(job("a", max_retries=1))
    world.register_all()
    world.kill_rank(RankId("a", 1, "training", 0), "t0")
    world.run()
    record = world.scheduler.state.jobs["a"]
    assert (record.attempt, record.retries, record.state) == (2, 1, JobState.FINISHED)


def test_it_is_known_when_a_placed_job_has_last_ended():
    world = World(cluster(node("r0"), node("t0")))
    world.submit(job("a", slo=1.0))
    world.submit(job("waits", 30.0, 30.0, slo=1.0))
    world.send(JobCancelled(job="waits"))
    assert (world.state("waits"), world.scheduler.state.ended_at) == (JobState.CANCELLED, None)
    world.register_all()
    world.run()
    assert world.scheduler.state.ended_at == world.scheduler.state.jobs["a"].ended_at is not None


def test_retries_are_bounded():
    world = World(cluster())
    world.submit(job("a", max_retries=1))
    for attempt in (1, 2):
        world.register_all()
        world.kill_rank(RankId("a", attempt, "rollout", 0), "r0")
        while world.pending and world.state("a") is JobState.STOPPING:
            world.deliver()
    assert world.state("a") is JobState.FAILED


def test_a_rank_that_does_not_start_fails_the_job_with_the_reason():
    world = World(cluster())
    world.submit(job("a"))
    world.send(StartFailed(rank=RankId("a", 1, "rollout", 0), node="r0", reason="python3: not found"))
    world.run()
    assert world.scheduler.state.jobs["a"].reason == "a/rollout-0 did not start: python3: not found"


def exited(role: str, exit_code: int, last_line: str, *, stopped: bool = False) -> ProcessExited:
    node = "t0" if role == "training" else "r0"
    rank = RankId("a", 1, role, 0)
    return ProcessExited(rank=rank, node=node, exit_code=exit_code, last_lines=(last_line,), stopped=stopped)


def test_a_killed_rank_is_the_reason_although_the_exit_of_one_that_lost_it_was_heard_of_first():
    world = World(cluster())
    world.submit(job("a"))
    world.register_all()
    world.send(exited("driver", 1, "Connection closed by peer"))
    assert world.scheduler.state.jobs["a"].reason == "a/driver-0 exited with code 1"
    world.send(exited("training", -9, "last words"))
    world.send(exited("rollout", -6, "aborted by its watchdog"))
    world.run()
    record = world.scheduler.state.jobs["a"]
    assert record.reason.startswith("a/training-0 was ended by signal 9 (SIGKILL")
    assert record.last_lines == ("last words",)


def test_a_rank_that_we_killed_is_not_the_reason_of_a_failure():
    world = World(cluster())
    world.submit(job("a"))
    world.register_all()
    world.send(exited("driver", 1, "boom"))
    world.send(exited("training", -9, "hung", stopped=True))
    world.send(exited("rollout", -15, "told to end"))
    world.run()
    assert world.scheduler.state.jobs["a"].reason == "a/driver-0 exited with code 1"


def test_a_rank_that_outlives_the_others_is_stopped_and_the_job_is_finished():
    world = World(cluster(), iterations=0)
    world.submit(job("a"))
    world.register_all()
    hung = next(e for e in world.pending if isinstance(e, ProcessExited) and e.rank.role == "rollout")
    world.pending.remove(hung)
    world.run()
    assert world.state("a") is JobState.FINISHED
    assert "rollout-0 still ran after the others had ended" in world.scheduler.state.jobs["a"].reason


def test_nothing_is_granted_in_a_new_epoch_before_the_agents_have_reported():
    world = World(cluster())
    world.submit(job("a"))
    world.register_all()
    world.send(ControllerStarted(epoch=2))
    world.deliver()
    assert not world.grants()
    for record in list(world.scheduler.state.nodes.values()):
        alive = tuple(rank for key, ranks in world.alive.items() if key[2] == record.node.name for rank in ranks)
        world.send(AgentReported(epoch=2, node=record.node, alive=alive))
    assert world.grants()[0].token.epoch == 2
    world.run()
    assert world.state("a") is JobState.FINISHED


def test_a_report_of_an_earlier_epoch_makes_no_node_ready():
    world = World(cluster())
    world.send(ControllerStarted(epoch=2))
    world.send(AgentReported(epoch=1, node=world.scheduler.state.nodes["r0"].node))
    assert not world.scheduler.state.nodes["r0"].ready


def test_a_lost_nodes_slots_are_in_quarantine_until_its_agent_reports():
    world = World(cluster())
    world.submit(job("a"))
    world.register_all()
    world.send(NodeLost(node="r0", reason="no beat"))
    while world.pending:
        world.deliver()
    assert not world.grants()
    alive = tuple(world.alive[("a", 1, "r0")])
    world.send(AgentReported(epoch=1, node=world.scheduler.state.nodes["r0"].node, alive=alive))
    world.run()
    assert world.state("a") is JobState.FINISHED


def test_a_node_that_stays_away_fails_its_jobs_and_holds_up_nobody():
    world = World(cluster(node("r0"), node("r1"), node("t0")))
    world.submit(job("a", slo=1.0, max_retries=1, host_gib=(100, 100)))
    world.register_all()
    world.send(NodeLost(node="r0", reason="no beat"))
    timer = next(t for t in world.timers if t[1].startswith("node/r0/"))
    world.timers = [timer]
    world.fire_next_timer()
    confirmation = next(e for e in world.pending if isinstance(e, DeathConfirmed) and e.node == "r0")
    world.pending.remove(confirmation)
    world.run()
    record = world.scheduler.state.jobs["a"]
    assert (record.state, record.attempt) == (JobState.FINISHED, 2)


def test_a_returning_node_is_used_only_after_its_old_processes_are_dead():
    world = World(cluster())
    world.submit(job("a"))
    world.register_all()
    world.send(NodeLost(node="r0", reason="no beat"))
    world.timers = [next(t for t in world.timers if t[1].startswith("node/r0/"))]
    world.fire_next_timer()
    confirmation = next(e for e in world.pending if isinstance(e, DeathConfirmed) and e.node == "r0")
    world.pending.remove(confirmation)
    world.run()
    assert world.state("a") is JobState.FAILED
    old = (RankId("a", 1, "rollout", 0),)
    world.send(AgentReported(epoch=1, node=world.scheduler.state.nodes["r0"].node, alive=old))
    world.submit(job("b"))
    assert world.state("b") is JobState.QUEUED
    world.send(confirmation)
    assert world.state("b") is JobState.STARTING


def test_cancelling_while_stopping_changes_nothing():
    world = World(cluster())
    world.submit(job("a"))
    world.send(JobCancelled(job="a", request="x"))
    before = len(kills(world))
    world.send(JobCancelled(job="a", request="y"))
    assert len(kills(world)) == before
    world.run()
    assert world.state("a") is JobState.CANCELLED


def recovered(world: World, parameters: Parameters = Parameters()) -> Scheduler:
    fresh = Scheduler(world.scheduler.state.cluster, parameters)
    for event, commands in world.log:
        fact = Fact(schema=SCHEMA, code="0", policy="weave-paper", event=event, commands=tuple(commands))
        read = decode_fact(encode_fact(fact))
        fresh.replay(read.event, read.commands)
    return fresh


def image(scheduler: Scheduler) -> bytes:
    return msgspec.msgpack.encode(scheduler.snapshot())


streams = st.lists(
    st.tuples(
        st.sampled_from(["submit", "deliver", "deliver", "deliver", "deliver", "kill", "cancel", "lose", "timer"]),
        st.integers(0, 1_000),
    ),
    max_size=120,
)


def need(gib: int) -> DeviceNeed:
    """State that takes so much of a device of 80 GiB, and as much again to work with."""
    return DeviceNeed(state_bytes=gib * GIB, working_bytes=gib * GIB)


DEVICES = (
    DeviceMemory(),
    DeviceMemory(rollout=need(10), training=need(30)),
    DeviceMemory(rollout=need(30), training=need(20)),
)


def play(world: World, steps: list[tuple[str, int]]) -> None:
    submitted = 0
    for action, number in steps:
        match action:
            case "submit":
                submitted += 1
                gpus = (1 + number % 8, 1 + number // 8 % 8)
                spec = job(
                    f"j{submitted}",
                    1 + number % 13,
                    1 + number % 7,
                    slo=1 + (number % 10) / 5,
                    gpus=gpus,
                    host_gib=(1 + number % 300, 1 + number % 400),
                    max_retries=number % 2,
                    profiled=number % 5 > 0,
                    iterations=3 if number % 3 else None,
                    device_memory=DEVICES[number % len(DEVICES)],
                )
                world.submit(spec)
            case _:
                disturb(world, action, number)


def disturb(world: World, action: str, number: int) -> None:
    """Deliver an event out of turn, cancel, kill, lose a node or let a timer fire, where there is one."""
    live = sorted(name for name, record in world.scheduler.state.jobs.items() if record.live)
    match action:
        case "deliver" if world.pending:
            world.deliver(number % len(world.pending))
        case "cancel" if live:
            world.send(JobCancelled(job=live[number % len(live)], request="c"))
        case "kill" if world.alive:
            key = sorted(world.alive)[number % len(world.alive)]
            if world.alive[key]:
                world.kill_rank(world.alive[key][number % len(world.alive[key])], key[2])
        case "lose":
            name = sorted(world.scheduler.state.nodes)[number % len(world.scheduler.state.nodes)]
            world.send(NodeLost(node=name, reason="test"))
            back = world.scheduler.state.nodes[name].node
            alive = tuple(rank for key, ranks in sorted(world.alive.items()) if key[2] == name for rank in ranks)
            world.send(AgentReported(epoch=1, node=back, alive=alive))
        case "timer" if world.timers:
            _, name = world.timers.pop(number % len(world.timers))
            if name.startswith("turn/"):
                world.send(TimerFired(name=name))


SMALL = (node("r0", devices=4), node("r1", devices=4), node("t0", devices=4, host_gib=700), node("t1", devices=4))


@settings(max_examples=120, deadline=None)
@given(streams)
def test_invariants_hold_and_every_job_ends_whatever_the_order_of_events(steps: list[tuple[str, int]]):
    world = World(cluster(*SMALL))
    play(world, steps)
    world.run()
    assert {record.state for record in world.scheduler.state.jobs.values()} <= ENDED
    assert not world.scheduler.state.groups


@settings(max_examples=60, deadline=None)
@given(streams)
def test_the_log_rebuilds_the_same_state_and_the_same_events_give_the_same_commands(steps: list[tuple[str, int]]):
    world = World(cluster(*SMALL))
    play(world, steps)
    rebuilt = recovered(world)
    assert image(rebuilt) == image(world.scheduler)
    again = Scheduler(world.scheduler.state.cluster)
    for event, commands in world.log:
        assert again.handle(event) == commands
    thawed = Scheduler.from_snapshot(msgspec.msgpack.decode(image(rebuilt), type=Snapshot))
    check_invariants(thawed)
    assert image(thawed) == image(world.scheduler)
    assert derived(thawed) == derived(world.scheduler)


def test_a_repeated_end_of_a_phase_changes_nothing():
    world = World(cluster())
    world.submit(job("a"))
    while not world.grants():
        world.deliver()
    ended = next(e for e in world.pending if isinstance(e, PhaseEnded))
    world.deliver(world.pending.index(ended))
    before = image(world.scheduler)
    world.scheduler.handle(msgspec.structs.replace(ended, at=world.now))
    assert image(world.scheduler) == before


def test_what_is_said_of_a_job_that_was_never_admitted_changes_nothing():
    world = World(cluster())
    world.submit(job("a"))
    world.submit(job("b", rollout=1000.0, training=1000.0, slo=1.0))
    assert world.state("b") is JobState.QUEUED
    rank = RankId("b", 1, "rollout", 0)
    for event in (
        StartFailed(rank=rank, node="r0", reason="no"),
        ProcessExited(rank=rank, node="r0", exit_code=1),
        DeathConfirmed(job="b", attempt=1, node="r0"),
    ):
        assert world.send(event) == []
    assert world.state("b") is JobState.QUEUED


def test_a_job_retried_away_from_a_gone_node_gets_permits_and_holds_up_nobody():
    world = World(cluster(node("r0"), node("r1"), node("r2"), node("t0")), iterations=3)
    world.submit(job("a", 30, 5, slo=1.2, max_retries=1))
    world.submit(job("b", 30, 5, slo=1.2))
    assert [group.members for group in world.scheduler.state.groups.values()] == [("a", "b")]
    world.register_all()
    while not world.grants():
        world.deliver()
    assert world.grants()[0].job == "a"
    world.send(NodeLost(node="r0", reason="no beat"))
    world.timers = [next(t for t in world.timers if t[1].startswith("node/r0/"))]
    world.fire_next_timer()
    lost = [e for e in world.pending if isinstance(e, DeathConfirmed) and e.node == "r0"]
    world.pending = type(world.pending)(event for event in world.pending if event not in lost)
    world.occupants = {slot: one for slot, one in world.occupants.items() if slot.node != "r0"}
    world.run()
    records = world.scheduler.state.jobs
    assert (records["a"].attempt, records["a"].state) == (2, JobState.FINISHED)
    assert records["b"].state is JobState.FINISHED


def test_a_job_cancelled_while_a_failed_attempt_stops_is_not_tried_again():
    world = World(cluster())
    world.submit(job("a", max_retries=3))
    world.register_all()
    world.kill_rank(RankId("a", 1, "rollout", 0), "r0")
    world.send(JobCancelled(job="a", request="x"))
    world.run()
    record = world.scheduler.state.jobs["a"]
    assert (record.attempt, record.state) == (1, JobState.CANCELLED)


def test_a_member_that_joins_changes_the_predictions_of_the_others():
    world = World(cluster())
    world.submit(job("a", 10, 5, slo=9.0))
    world.submit(job("b", 6, 5, slo=9.0))
    predictions = {name: record.predicted_slowdown for name, record in world.scheduler.state.jobs.items()}
    assert predictions == {"a": 16 / 15, "b": 16 / 11}
