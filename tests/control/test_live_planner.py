"""The planner of a live controller begins to think for good reason, and hands its plan over once."""

import time
from concurrent.futures import wait

import msgspec
import pytest

from weaverl.control.planner import Planner
from weaverl.domain.cluster import Cluster, Pool, PoolKind
from weaverl.domain.commands import LearnProfile, RefusePlan, RegroupJobs
from weaverl.domain.events import PlanProposed
from weaverl.domain.groups import Group
from weaverl.domain.jobs import PhaseProfile
from weaverl.scheduling.state import ClusterState, Parameters

PROFILE = PhaseProfile(rollout_max_seconds=1.0, rollout_mean_seconds=1.0, rollout_cv=0.0, training_seconds=1.0)
DRIFTED = LearnProfile(job="a", profile=PROFILE)
PLAN = PlanProposed(base_version=0, moves=())


def state(policy="weave"):
    pools = [Pool(kind=kind, gpu="none", usd_per_gpu_hour=1.0) for kind in (PoolKind.ROLLOUT, PoolKind.TRAINING)]
    return ClusterState(
        cluster=Cluster(name="small", rollout=pools[0], training=pools[1], nodes=()),
        parameters=Parameters(policy=policy),
        nodes={},
    )


class Thinker:
    def __init__(self):
        self.near, self.reviews = [], []
        self.fails_with = None

    def __call__(self, encoded, near, reviewed_at):
        assert msgspec.msgpack.decode(encoded, type=ClusterState).version == 0
        self.near.append(near)
        self.reviews.append(reviewed_at)
        if self.fails_with is not None:
            raise self.fails_with
        return PLAN


@pytest.fixture
def thinker():
    return Thinker()


@pytest.fixture
def planner(thinker):
    planner = Planner(thinker)
    yield planner
    planner.close()


def plan_of(planner, known):
    """What is thought out; the first look only begins."""
    assert planner.look(known) is None
    until = time.monotonic() + 30.0
    while (plan := planner.look(known)) is None:
        assert time.monotonic() < until
    return plan


def test_nothing_is_thought_of_while_nothing_happens(planner, thinker):
    planner.hear([])
    assert planner.look(state()) is None
    assert planner.look(state()) is None
    assert thinker.near == []


def test_promises_are_looked_at_when_a_job_has_drifted(planner, thinker):
    planner.hear([DRIFTED])
    assert plan_of(planner, state()) is PLAN
    assert planner.look(state()) is None
    assert thinker.near == [()]


def test_reviews_come_in_their_time_whatever_else_is_thought_of(planner, thinker):
    known, step = state(), Parameters().review_us // 2
    for _ in range(5):
        known.now += step
        planner.hear([RegroupJobs(group=Group("g1", (), (), ()))])
        plan_of(planner, known)
    assert thinker.reviews == [None, 0, None, 2 * step, None]
    planner.hear([RefusePlan(base_version=0, reason="overtaken")])
    known.now += step
    plan_of(planner, known)
    planner.hear([RefusePlan(base_version=0, reason="overtaken")])
    plan_of(planner, known)
    assert thinker.reviews[5:] == [4 * step, 4 * step], "what a refused review has looked at is looked at again"


def test_groups_that_have_changed_are_looked_at_and_again_when_the_plan_was_overtaken(planner, thinker):
    planner.hear([RegroupJobs(group=Group("g1", (), (), ())), DRIFTED])
    plan_of(planner, state())
    planner.hear([RefusePlan(base_version=0, reason="overtaken")])
    plan_of(planner, state())
    assert thinker.near == [("g1",), ("g1",)]


def test_a_plan_for_a_promise_that_was_overtaken_is_made_anew(planner, thinker):
    planner.hear([DRIFTED])
    plan_of(planner, state())
    planner.hear([RefusePlan(base_version=0, reason="overtaken")])
    plan_of(planner, state())
    assert thinker.near == [(), ()]


def begin(planner, known):
    """The first look begins; then the thinking is over."""
    assert planner.look(known) is None
    wait([planner._thinking], timeout=30.0)


def test_a_plan_that_fails_is_no_plan_told_once_and_the_next_comes_in_its_time(planner, thinker, caplog):
    known, review_us = state(), Parameters().review_us
    known.now = review_us
    thinker.fails_with = AssertionError("a case nobody thought of")
    begin(planner, known)
    assert [planner.look(known) for _ in range(3)] == [None] * 3
    (told,) = caplog.records
    assert told.exc_info[1] is thinker.fails_with and told.exc_info[2] is not None
    assert thinker.reviews == [0], "not at once again"
    thinker.fails_with = None
    known.now += review_us
    assert plan_of(planner, known) is PLAN
    assert thinker.reviews == [0, review_us]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_who_is_told_to_stop_while_it_thinks_stops(planner, thinker, kind):
    planner.hear([DRIFTED])
    thinker.fails_with = kind()
    begin(planner, state())
    with pytest.raises(kind):
        planner.look(state())


def test_a_policy_that_moves_nobody_has_nothing_thought_of(planner, thinker):
    planner.hear([DRIFTED])
    assert planner.look(state("weave-paper")) is None
    assert thinker.near == []
