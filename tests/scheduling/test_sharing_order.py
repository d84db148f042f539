"""Who is next in the queue of a shared cluster: classes, ageing, urgency, and what tenants have used."""

import msgspec
import pytest
from builders import SECOND, World, cluster, job, node
from hypothesis import given, settings
from hypothesis import strategies as st

from weaverl.domain.commands import AdmitJob
from weaverl.domain.events import JobCancelled, JobSubmitted
from weaverl.domain.jobs import ENDED, JobSpec
from weaverl.domain.sharing import Deadlines, Measure, Sharing
from weaverl.scheduling.index import index_of
from weaverl.scheduling.scheduler import Scheduler, Snapshot
from weaverl.scheduling.sharing.accounts import Account, used_by
from weaverl.scheduling.sharing.order import places
from weaverl.scheduling.sharing.usage import usage_per_weight

HOUR = 3600 * SECOND
LARGE = (900, 900)
"""Host memory in GiB: two such jobs do not share a node."""


def shared(sharing: Sharing, *nodes: object, **more: object) -> World:
    return World(msgspec.structs.replace(cluster(*nodes), sharing=sharing), **more)


def large(name: str, **more: object) -> JobSpec:
    return job(name, host_gib=LARGE, **more)


def order(world: World) -> list[str]:
    sharing = world.scheduler.state.cluster.sharing
    return [place.record.spec.name for place in places(world.scheduler.state, sharing)]


def later(world: World, seconds: float) -> None:
    """Time passes."""
    world.now += round(seconds * SECOND)
    world.scheduler.state.now = world.now


def full(sharing: Sharing) -> World:
    world = shared(sharing)
    world.submit(large("runs", tenant="z"))
    return world


def test_without_sharing_the_queue_is_by_priority_and_arrival_and_nothing_is_kept():
    world = World(cluster())
    for name, priority in (("runs", 0), ("b", 0), ("a", 0), ("c", 1)):
        world.submit(large(name, priority=priority, tenant=name))
    assert index_of(world.scheduler.state).queue() == ["c", "b", "a"]
    assert world.scheduler.state.shares.accounts == {}
    assert not world.timers


def test_of_one_class_the_tenant_with_the_least_usage_per_weight_is_next():
    world = shared(Sharing(tenants={"heavy": 4.0}), node("r0"), node("t0"), node("r1"), node("t1"))
    world.submit(large("h1", tenant="heavy"))
    world.submit(large("l1", tenant="light"))
    later(world, 3600)
    world.submit(large("l2", tenant="light"))
    world.submit(large("h2", tenant="heavy"))
    assert order(world) == ["h2", "l2"], "the same usage, four times the weight"


def test_a_tenant_that_has_used_nothing_goes_before_those_that_have():
    world = full(Sharing())
    later(world, 60)
    world.submit(large("old", tenant="z"))
    world.submit(large("new", tenant="y"))
    assert order(world) == ["new", "old"]


def test_nodes_that_come_free_at_once_are_split_by_weight():
    nodes = [node(f"{pool}{number}") for pool in "rt" for number in range(4)]
    world = shared(Sharing(tenants={"a": 3.0, "b": 1.0}), *nodes)
    for number in range(4):
        world.submit(large(f"blocks-{number}", tenant="z"))
    for number in range(4):
        for tenant in "ab":
            world.submit(large(f"{tenant}{number}", tenant=tenant))
    later(world, 10)
    for number in range(4):
        world.send(JobCancelled(job=f"blocks-{number}"))
    while (world.pending and len(world.scheduler.state.shares.groups) < 4) or "z" in running_tenants(world):
        world.deliver()
    assert sorted(running_tenants(world)) == ["a", "a", "a", "b"]


def running_tenants(world: World) -> list[str]:
    return [record.spec.tenant for record in world.scheduler.state.jobs.values() if record.pin is not None]


def test_an_hour_of_nodes_costs_their_price_and_halves_in_a_half_life():
    world = shared(Sharing(half_life_seconds=1e9))
    world.submit(large("a", tenant="a"))
    later(world, 3600)
    account = world.scheduler.state.shares.accounts["a"]
    used = used_by(account, world.now, 1e15)
    assert used == pytest.approx(8 * 1.85 + 8 * 5.28, rel=1e-4)
    assert used_by(Account(used=10.0, at=0), 7 * HOUR, 7 * HOUR) == 5.0


def test_gpu_hours_count_devices_and_a_shared_node_is_split_among_its_jobs():
    world = shared(Sharing(by=Measure.GPU_HOURS, half_life_seconds=1e9))
    world.submit(job("a", tenant="a"))
    world.submit(job("b", tenant="b"))
    assert len(world.scheduler.state.groups) == 1
    accounts = world.scheduler.state.shares.accounts
    assert (accounts["a"].per_hour, accounts["b"].per_hour) == (8.0, 8.0)


def test_a_higher_class_goes_first_whatever_was_used():
    world = full(Sharing())
    later(world, 60)
    world.submit(large("poor", tenant="y"))
    world.submit(large("rich", tenant="z", priority=1))
    assert order(world) == ["rich", "poor"]


def test_a_waiting_job_rises_by_a_class_for_each_ageing_but_not_above_the_highest():
    world = full(Sharing(ageing_seconds=100.0))
    world.submit(large("low", tenant="y"))
    later(world, 250)
    world.submit(large("high", tenant="y", priority=2))
    levels = {one.record.spec.name: one.level for one in places(world.scheduler.state, Sharing(ageing_seconds=100.0))}
    assert levels == {"low": 4, "high": 4}
    assert order(world) == ["low", "high"]
    later(world, 1000)
    assert max(one.level for one in places(world.scheduler.state, Sharing(ageing_seconds=100.0))) == 4


def test_an_urgent_job_goes_first_in_its_class_and_after_the_next():
    world = full(Sharing(deadlines=Deadlines(first_start_seconds=0.0)))
    world.submit(large("plain", tenant="y"))
    world.submit(large("due", tenant="z", iterations=3, deadline_seconds=1060.0))
    world.submit(large("high", tenant="z", priority=1))
    assert order(world) == ["high", "plain", "due"], "500 s of its 1,000 may still pass"
    later(world, 501)
    assert order(world) == ["high", "due", "plain"]
    later(world, 600)
    assert order(world) == ["high", "plain", "due"], "it cannot be kept any more"


def test_of_urgent_jobs_the_one_that_must_start_first_goes_first():
    world = full(Sharing(deadlines=Deadlines(first_start_seconds=0.0)))
    world.submit(large("late", tenant="x", iterations=3, deadline_seconds=2000.0))
    world.submit(large("soon", tenant="y", iterations=3, deadline_seconds=1900.0))
    later(world, 1500)
    assert order(world) == ["soon", "late"]


@settings(max_examples=40, deadline=None)
@given(
    priority=st.integers(0, 3),
    stream=st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from("abc"), st.integers(1, 120)), min_size=30, max_size=60
    ),
    deadlines=st.booleans(),
)
def test_nobody_starves_under_a_stream_of_jobs_of_higher_classes(priority, stream, deadlines):
    """A job waits for its rise to the highest class, and then until each other tenant has had its turn."""
    sharing = Sharing(
        half_life_seconds=600.0,
        ageing_seconds=200.0,
        deadlines=Deadlines(first_start_seconds=0.0) if deadlines else None,
    )
    world = full(sharing)
    world.submit(large("patient", tenant="p", priority=-priority, iterations=3))
    waited_behind = 0
    for number, (other, tenant, gap) in enumerate(stream * 3):
        due = 61.0 + gap if deadlines and number % 2 else None
        world.submit(large(f"s{number}", tenant=tenant, priority=other, iterations=3, deadline_seconds=due))
        later(world, gap)
        running = [name for name, record in world.scheduler.state.jobs.items() if record.pin is not None]
        for name in running:
            if world.scheduler.state.jobs[name].ending is None:
                world.send(JobCancelled(job=name))
        while any(record.ending is not None for record in world.scheduler.state.jobs.values()):
            world.deliver()
        if world.scheduler.state.jobs["patient"].admitted_at is not None:
            return
        rise_us = (3 + priority + 1) * 200 * SECOND
        if world.now - world.scheduler.state.jobs["patient"].submitted_at > rise_us:
            waited_behind += 1
    assert waited_behind <= 8, "once at the top, each of three tenants goes before it a few times at most"


def test_usage_is_the_same_from_a_snapshot_and_from_the_log():
    sharing = Sharing(tenants={"a": 2.0}, half_life_seconds=50.0)
    world = shared(sharing, node("r0"), node("t0"), node("r1"), node("t1"))
    for number in range(6):
        world.submit(large(f"j{number}", tenant="ab"[number % 2]))
        later(world, 7)
    world.run()
    replayed = Scheduler(msgspec.structs.replace(world.scheduler.state.cluster))
    for event, commands in world.log:
        replayed.replay(event, tuple(commands))
    data = msgspec.msgpack.encode(world.scheduler.snapshot())
    read = Scheduler.from_snapshot(msgspec.msgpack.decode(data, type=Snapshot))
    assert replayed.state.shares == world.scheduler.state.shares == read.state.shares
    assert [usage_per_weight(one.state, sharing, "a") for one in (replayed, read)] == [
        usage_per_weight(world.scheduler.state, sharing, "a")
    ] * 2


@settings(max_examples=30, deadline=None)
@given(
    jobs=st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(0, 2), st.booleans(), st.integers(0, 50)), min_size=1, max_size=12
    )
)
def test_any_stream_of_jobs_comes_to_an_end_and_an_idle_cluster_refuses_nobody(jobs):
    world = shared(Sharing(tenants={"a": 3.0}, ageing_seconds=20.0, deadlines=Deadlines(first_start_seconds=1.0)))
    for number, (tenant, priority, is_due, gap) in enumerate(jobs):
        due = 62.0 + gap if is_due else None
        spec = large(f"j{number}", tenant=tenant, priority=priority, iterations=3, deadline_seconds=due)
        idle = not world.scheduler.state.groups
        commands = world.send(JobSubmitted(spec=spec, request=str(number)))
        assert not idle or any(isinstance(command, AdmitJob) for command in commands)
        for _ in range(gap):
            if world.pending:
                world.deliver()
    world.run()
    assert all(record.state in ENDED for record in world.scheduler.state.jobs.values())
