"""Arrivals, admission, queue and departures, seen through the one door."""

import pytest
from builders import SECOND, World, cluster, job, node

from weaverl.domain.commands import AdmitJob, QueueJob, RefuseRequest
from weaverl.domain.events import JobCancelled, NodeLost, RankId
from weaverl.domain.jobs import JobState, PhaseKind, Placement
from weaverl.scheduling.backfilling import MOST_PASSED_FOR_DOLLARS_US
from weaverl.scheduling.state import Parameters


def kinds(world: World, name: str) -> list[tuple[str, str]]:
    return [(v.kind, v.refused) for v in world.scheduler.state.jobs[name].verdicts]


def test_a_second_job_with_a_complementary_profile_is_packed_for_nothing():
    world = World(cluster())
    world.submit(job("a", 10, 10))
    world.submit(job("b", 10, 10))
    admitted = world.admitted("b")
    assert admitted.group.members == ("a", "b")
    assert admitted.verdicts[-1].added_usd_per_hour == 0.0
    assert admitted.predicted_slowdowns == {"a": 1.0, "b": 1.0}


def test_two_rollout_heavy_jobs_share_training_nodes_only():
    world = World(cluster(node("r0"), node("r1"), node("t0")))
    world.submit(job("a", 30, 5, slo=1.2))
    world.submit(job("b", 30, 5, slo=1.2))
    admitted = world.admitted("b")
    assert kinds(world, "b") == [
        ("pack", "would slow a to 1.71x, its SLO is 1.20x"),
        ("scale rollout", ""),
    ]
    assert admitted.group.rollout_nodes == ("r0", "r1")
    assert admitted.group.training_nodes == ("t0",)
    assert admitted.verdicts[-1].added_usd_per_hour == pytest.approx(8 * 1.85)


def test_a_job_whose_promise_cannot_be_kept_in_company_is_isolated():
    world = World(cluster(node("r0"), node("t0"), node("r1"), node("t1")))
    world.submit(job("a", 10, 12, slo=1.0))
    world.submit(job("b", 10, 12, slo=1.0))
    assert world.admitted("b").group.name == "g2"


def test_host_memory_is_a_hard_limit_and_the_reason_says_how_much_is_lacking():
    world = World(cluster(node("r0", host_gib=300), node("t0", host_gib=300)))
    world.submit(job("a", host_gib=(120, 180)))
    world.submit(job("b", host_gib=(120, 180)))
    assert world.state("b") is JobState.QUEUED
    assert ("pack", "needs 180 GiB on t0, 120 GiB free") in kinds(world, "b")


@pytest.mark.parametrize(("gpus", "asked"), [((8, 8), "8 rollout devices"), ((1, 8), "1 rollout device")])
def test_a_dozen_refusals_are_told_in_full_and_the_others_counted_by_reason(gpus: tuple[int, int], asked: str):
    world = World(cluster(*(node(f"{pool}{place:02}", host_gib=300) for pool in "rt" for place in range(20))))
    for place in range(20):
        world.submit(job(f"j{place}", 10, 12, slo=1.0, host_gib=(50, 100) if place < 15 else (200, 200)))
    world.submit(job("late", slo=1.0, gpus=gpus, host_gib=(150, 50)))
    verdicts = world.scheduler.state.jobs["late"].verdicts
    assert [(v.kind, v.group) for v in verdicts[:12]] == [("pack", f"g{place}") for place in range(1, 13)]
    assert [(v.kind, v.group, v.refused) for v in verdicts[12:]] == [
        ("isolate", "g21", f"needs {asked}, 0 to be had"),
        ("pack", "5 more", "too little host memory, or too few devices"),
        ("pack", "3 more", "would slow a job past its SLO"),
    ]


def test_a_saturated_group_is_pruned():
    world = World(cluster())
    for name in ("a", "b", "c"):
        world.submit(job(name, slo=9.0))
    assert world.state("c") is JobState.QUEUED
    assert kinds(world, "c")[0] == ("pack", "saturated: its busiest device has no bubble left")


def test_a_queued_job_starts_when_another_departs():
    world = World(cluster())
    for name in ("a", "b", "c"):
        world.submit(job(name, slo=9.0))
    world.run()
    assert world.state("c") is JobState.FINISHED


def test_departure_gives_unused_nodes_back():
    world = World(cluster(node("r0"), node("r1"), node("t0")))
    world.submit(job("a", 30, 5, slo=1.2))
    world.submit(job("b", 30, 5, slo=1.2))
    world.send(JobCancelled(job="a", request="x"))
    while world.state("a") is not JobState.CANCELLED:
        world.deliver()
    group = world.scheduler.state.groups["g1"]
    assert (group.rollout_nodes, group.members) == (("r1",), ("b",))


def test_more_gpus_than_the_pool_has_are_refused_with_the_numbers():
    world = World(cluster())
    commands = world.submit(job("big", gpus=(12, 8)))
    assert [c.reason for c in commands if isinstance(c, RefuseRequest)] == [
        "job big asks 12 rollout GPUs, the pool has 8: ask fewer"
    ]
    assert "big" not in world.scheduler.state.jobs


def test_a_living_name_is_refused_and_an_ended_one_may_be_used_again():
    world = World(cluster())
    world.submit(job("a"))
    (refusal,) = world.submit(job("a"))
    assert "job a is starting already" in refusal.reason
    world.run()
    world.submit(job("a"))
    assert world.scheduler.state.jobs["a"].attempt == 2


def test_an_unknown_job_cannot_be_cancelled():
    (refusal,) = World(cluster()).send(JobCancelled(job="ghost", request="x"))
    assert "ghost is not known here" in refusal.reason


def test_a_job_without_a_profile_is_alone_until_two_iterations_gave_one():
    world = World(cluster(), iterations=6)
    world.submit(job("a", profiled=False))
    world.submit(job("b"))
    assert world.admitted("a").profiling
    assert kinds(world, "b")[0] == ("pack", "a is being profiled there")
    world.run()
    learned = world.scheduler.state.jobs["a"].profile
    assert learned is not None and learned.rollout_max_seconds == 5.0
    admitted = next(e.at for e, commands in world.log for c in commands if isinstance(c, AdmitJob) and c.job == "b")
    ended = [g for g in world.grants() if g.job == "a" and g.phase is PhaseKind.ROLLOUT]
    assert [e.at for e, commands in world.log for c in commands if c is ended[2]] <= [admitted]
    assert world.state("b") is JobState.FINISHED


def test_queue_goes_by_priority_then_arrival():
    world = World(cluster())
    world.submit(job("running", slo=1.0, gpus=(8, 8), host_gib=(1000, 1000)))
    for name, priority in (("early", 0), ("urgent", 5), ("late", 0)):
        world.submit(job(name, slo=1.0, priority=priority, host_gib=(1000, 1000)))
    world.run()
    admissions = [c.job for _, commands in world.log for c in commands if isinstance(c, AdmitJob)]
    assert admissions == ["running", "urgent", "early", "late"]


def test_a_later_job_passes_only_if_the_first_in_the_queue_starts_no_later():
    nodes = [node(name, host_gib=100) for name in ("r0", "r1", "t0", "t1")]
    world = World(cluster(*nodes))
    world.submit(job("running", slo=1.0, host_gib=(60, 60), iterations=10))
    world.submit(job("first", gpus=(16, 16), slo=1.0, host_gib=(60, 60)))
    world.submit(job("short", 5, 5, slo=1.0, host_gib=(60, 60), iterations=2))
    world.submit(job("long", slo=1.0, host_gib=(30, 30), iterations=1000))
    assert world.state("first") is JobState.QUEUED
    assert world.state("short") is JobState.STARTING
    assert world.state("long") is JobState.QUEUED
    assert kinds(world, "long")[-1][1] == "would delay first, which is before it in the queue"


def nearly_done(tick_us: int = 2 * SECOND) -> World:
    """A job with two iterations of 20 s left holds one node of each pool; a second one is free, and wide needs both."""
    world = World(cluster(node("r0"), node("t0"), node("r1"), node("t1")), iterations=40)
    world.tick_us = tick_us
    world.submit(job("a", slo=1.0, iterations=40, checkpoint_directory="here", max_retries=1))
    while world.scheduler.state.jobs["a"].iterations_done < 38:
        world.deliver()
    return world


@pytest.mark.parametrize("policy", ["weave-paper", "weave", "solo"])
def test_a_retried_job_is_expected_to_end_when_what_is_left_is_done(policy: str):
    world = nearly_done()
    world.scheduler.state.parameters = Parameters(policy=policy)
    world.kill_rank(RankId("a", 1, "training", 0), "t0")
    while world.state("a") is not JobState.RUNNING:
        world.deliver()
    world.submit(job("wide", slo=1.0, gpus=(16, 16), iterations=2))
    world.submit(job("long", slo=1.0, iterations=20))
    assert kinds(world, "long")[-1][1] == "would delay wide, which is before it in the queue"
    world.submit(job("brief", slo=1.0, iterations=2))
    assert world.state("brief") is JobState.STARTING


def test_an_overdue_job_is_expected_to_end_when_what_is_left_is_done():
    world = nearly_done(tick_us=100 * SECOND)
    world.submit(job("wide", slo=1.0, gpus=(16, 16), iterations=2))
    world.submit(job("long", slo=1.0, iterations=20))
    world.submit(job("brief", slo=1.0, iterations=1))
    assert [world.state(name) for name in ("wide", "long", "brief")] == [
        JobState.QUEUED,
        JobState.QUEUED,
        JobState.STARTING,
    ]


def test_a_job_that_is_stopping_is_expected_to_end_at_once():
    world = World(cluster(node("r0"), node("t0"), node("r1"), node("t1")))
    world.submit(job("a", slo=1.0, iterations=1000))
    world.register_all()
    world.submit(job("wide", slo=1.0, gpus=(16, 16)))
    world.send(JobCancelled(job="a"))
    world.submit(job("later", slo=1.0, iterations=2))
    assert (world.state("a"), world.state("later")) == (JobState.STOPPING, JobState.QUEUED)


def test_what_is_expected_of_the_first_is_as_old_as_what_is_expected_of_who_would_pass_it():
    world = nearly_done()
    world.submit(job("wide", slo=1.0, gpus=(16, 16), iterations=2))
    world.submit(job("long", slo=1.0, iterations=20))
    world.deliver()
    world.submit(job("brief", slo=1.0, iterations=1))
    assert world.state("brief") is JobState.STARTING


@pytest.mark.parametrize("policy", ["weave-paper", "weave", "solo"])
def test_a_job_that_has_waited_for_a_week_is_passed_only_where_it_could_not_start_anyway(policy: str):
    nodes = [node(f"{pool}{place}") for pool in "rt" for place in range(3)]
    world = World(cluster(*nodes), parameters=Parameters(policy=policy))
    world.submit(job("a", slo=1.0, iterations=1000))
    world.submit(job("wide", slo=1.0, gpus=(24, 24), iterations=2))
    wide = world.scheduler.state.jobs["wide"]
    wide.submitted_at = wide.queued_at = -MOST_PASSED_FOR_DOLLARS_US
    world.submit(job("brief", slo=1.0, iterations=1))
    assert kinds(world, "brief")[-1][1] == "would delay wide, which is before it in the queue"
    world.send(NodeLost(node="t2"))
    world.submit(job("other", slo=1.0, iterations=1))
    assert JobState.STARTING in (world.state("brief"), world.state("other"))


def test_many_that_do_not_fit_are_told_once_and_starve_nobody_small():
    world = World(cluster(node("r0", host_gib=200), node("t0", host_gib=200)))
    world.submit(job("running", host_gib=(100, 100), iterations=10))
    for number in range(60):
        world.submit(job(f"big-{number}", host_gib=(150, 150), iterations=10))
    world.submit(job("small", 1, 1, slo=20.0, host_gib=(10, 10), iterations=3))
    assert world.state("small") is JobState.STARTING
    told = [c.job for _, commands in world.log for c in commands if isinstance(c, QueueJob)]
    assert len(told) == len(set(told)) == 60


def test_a_local_job_gets_both_pools_on_one_host():
    nodes = [node("r0", devices=1, host="x"), node("r1", devices=1, host="y"), node("t1", devices=1, host="y")]
    world = World(cluster(*nodes))
    world.submit(job("solo", gpus=(1, 1), placement=Placement.LOCAL))
    pin = world.admitted("solo").pin
    assert (pin.rollout[0].node, pin.training[0].node) == ("r1", "t1")
    world.run()
    assert world.state("solo") is JobState.FINISHED


def test_devices_of_one_node_are_shared_in_space():
    world = World(cluster(node("r0"), node("t0")))
    for name in ("a", "b"):
        world.submit(job(name, gpus=(4, 4), slo=1.0))
    slots = [{str(slot) for slot in world.admitted(name).pin.rollout} for name in ("a", "b")]
    assert not slots[0] & slots[1]
