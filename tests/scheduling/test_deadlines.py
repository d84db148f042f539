"""Deadlines become bounds on the slowdown at admission; those that cannot be met are said at once."""

import msgspec
import pytest
from builders import SECOND, World, cluster, job, node

from weaverl.domain.commands import RefuseRequest
from weaverl.domain.sharing import Deadlines, Sharing
from weaverl.scheduling.expected_dollars import stay_of
from weaverl.scheduling.sharing.promises import bound_of, could_pause, latest_start
from weaverl.scheduling.state import Parameters

TWO = (node("r0"), node("t0"), node("r1"), node("t1"))


def shared(*nodes: object, first_start: float = 20.0, policy: str = "weave-paper") -> World:
    sharing = Sharing(deadlines=Deadlines(first_start_seconds=first_start))
    return World(msgspec.structs.replace(cluster(*nodes), sharing=sharing), parameters=Parameters(policy=policy))


def test_the_bound_is_what_is_left_over_the_work_that_is_left():
    world = shared()
    world.submit(job("a", iterations=10, deadline_seconds=320.0))
    assert world.scheduler.state.jobs["a"].bound == pytest.approx((320 - 20) / 200)
    assert world.scheduler.state.jobs["a"].slo == pytest.approx(1.5)


def test_a_deadline_that_the_slo_keeps_anyway_is_no_bound():
    world = shared()
    world.submit(job("a", iterations=10, deadline_seconds=500.0))
    assert world.scheduler.state.jobs["a"].bound is None
    assert world.scheduler.state.jobs["a"].slo == 2.0


@pytest.mark.parametrize("policy", ["weave-paper", "weave"])
def test_nobody_joins_who_would_make_a_job_late_for_its_deadline(policy):
    """Two jobs of (10, 5) take 20 s a round, 1.33 times as long as one alone."""
    slowdowns = []
    for due in (None, 10 * 15.0 * 1.2 + 20):
        world = shared(*TWO, policy=policy)
        world.submit(job("due", training=5.0, iterations=10, deadline_seconds=due))
        world.submit(job("b", training=5.0, iterations=10))
        slowdowns.append(world.scheduler.state.jobs["due"].predicted_slowdown)
    assert slowdowns[0] > 1.3 or policy == "weave", "which packs nobody here"
    assert slowdowns[1] <= 1.2


def test_a_deadline_that_cannot_be_met_alone_is_refused_with_the_numbers_and_a_remedy():
    world = shared()
    (command,) = world.submit(job("a", iterations=10, deadline_seconds=210.0))
    assert isinstance(command, RefuseRequest)
    assert command.reason == (
        "job a cannot end by its deadline of 3.5 min even alone: 10 iterations take 3.3 min, the first start 20 s: "
        "give it 3.7 min, or fewer iterations"
    )
    assert not world.scheduler.state.jobs


@pytest.mark.parametrize("more", [{"iterations": None}, {"profiled": False}])
def test_a_deadline_of_unknown_work_binds_nobody(more):
    world = shared()
    world.submit(job("a", **({"iterations": 10, "deadline_seconds": 1.0} | more)))
    assert world.scheduler.state.jobs["a"].bound is None


def test_without_deadlines_in_the_sharing_a_deadline_is_only_recorded():
    world = World(msgspec.structs.replace(cluster(), sharing=Sharing()))
    world.submit(job("a", iterations=10, deadline_seconds=1.0))
    record = world.scheduler.state.jobs["a"]
    assert record.bound is None
    assert latest_start(world.scheduler.state, record) is None


def test_a_job_whose_deadline_has_become_impossible_is_placed_as_others_are():
    world = shared()
    world.submit(job("runs", host_gib=(900, 900), iterations=3))
    world.submit(job("due", host_gib=(900, 900), iterations=3, deadline_seconds=85.0))
    world.now += 100 * SECOND
    world.run()
    record = world.scheduler.state.jobs["due"]
    assert record.ended_at is not None
    assert record.bound is None


def test_the_wait_in_the_queue_makes_the_bound_tighter():
    world = shared()
    world.submit(job("runs", host_gib=(900, 900), iterations=3))
    world.submit(job("due", host_gib=(900, 900), iterations=10, deadline_seconds=320.0))
    state = world.scheduler.state
    state.now += 40 * SECOND
    assert bound_of(state, state.jobs["due"]) == pytest.approx(1.3, rel=1e-4)
    assert latest_start(state, state.jobs["due"]) == pytest.approx(100 * SECOND, rel=1e-4)


def test_a_promise_that_one_more_cold_start_would_break_forbids_a_pause():
    world = shared()
    world.submit(job("a", iterations=10, slo=1.5, checkpoint_directory="here"))
    world.register_all()
    record = world.scheduler.state.jobs["a"]
    for start, able in ((60, True), (100, False)):
        record.start_us = start * SECOND
        assert could_pause(world.scheduler.state, record) is able, (
            "100 s may be lost, the iteration's 20 s are kept back"
        )


def test_policy_weave_watches_the_bound_as_it_does_an_slo():
    world = shared(policy="weave")
    world.submit(job("a", iterations=10, deadline_seconds=320.0))
    world.submit(job("b", iterations=10, host_gib=(900, 900)))
    assert stay_of(world.scheduler.state, world.scheduler.state.jobs["a"]).allowed == pytest.approx(1.5)
