"""What work costs in the cluster as it is, and what is counted to the horizon and beyond."""

from math import inf

import msgspec
import pytest
from builders import World, cluster, job, node
from hypothesis import given
from hypothesis import strategies as st
from test_objectives import stay

from weaverl.domain.events import JobCancelled
from weaverl.domain.jobs import JobState
from weaverl.scheduling.expected_dollars import course_of
from weaverl.scheduling.objectives import HORIZON_US, ahead_of, later_usd
from weaverl.scheduling.policies import weave
from weaverl.scheduling.prices import price_of_work
from weaverl.scheduling.scheduler import Scheduler
from weaverl.scheduling.state import Parameters, Spending
from weaverl.scheduling.trial_moves import without_record


def world() -> World:
    nodes = [node(f"{pool}{number}") for pool in "rt" for number in range(3)]
    return World(cluster(*nodes), parameters=Parameters(policy="weave"))


def price_in(of: World) -> float:
    return price_of_work(of.scheduler.state.spending)


def test_work_costs_what_it_is_worth_where_everybody_is_alone():
    of = world()
    assert price_in(of) == 1.0, "where nothing runs"
    of.submit(job("a", 10, 80, slo=1.0))
    of.submit(job("b", 10, 80, slo=1.0))
    assert len(of.scheduler.state.groups) == 2
    assert price_in(of) == pytest.approx(1.0)


def test_shared_nodes_make_it_cheaper_and_slowdowns_dearer():
    of = world()
    for name in ("a", "b"):
        of.submit(job(name, 20, 20, slo=2.0))
    (group,) = of.scheduler.state.groups.values()
    slowdowns = [of.scheduler.state.jobs[name].predicted_slowdown for name in "ab"]
    assert group.members == ("a", "b")
    assert price_in(of) == pytest.approx(1.0 / sum(1.0 / one for one in slowdowns))
    assert 0.5 <= price_in(of) < 0.75


def test_it_follows_who_leaves_and_not_what_is_only_tried():
    of = world()
    for name in ("a", "b"):
        of.submit(job(name, 20, 20, slo=2.0))
    of.register_all()
    before, state = price_in(of), of.scheduler.state
    trial = without_record(state, state.jobs["a"])
    assert price_of_work(trial.spending) == before
    of.send(JobCancelled(job="a"))
    while of.state("a") is JobState.STOPPING:
        of.deliver()
    assert before < price_in(of) <= 1.0
    of.run()
    assert price_in(of) == 1.0
    assert not of.scheduler.state.spending.groups


def test_a_state_from_before_prices_were_kept_has_them_once_it_is_read():
    of = world()
    for name in ("a", "b"):
        of.submit(job(name, 20, 20, slo=2.0))
    snapshot = of.scheduler.snapshot()
    old = msgspec.structs.replace(snapshot, cluster=msgspec.structs.replace(snapshot.cluster, spending=Spending()))
    assert Scheduler.from_snapshot(old).state.spending == of.scheduler.state.spending


@pytest.mark.parametrize(("slowdown", "pays"), [(1.8, True), (2.2, False)])
def test_in_a_quiet_cluster_sharing_pays_only_if_it_would_to_the_end(slowdown, pays):
    """On one pair of nodes two jobs cost less than on two if each is slowed to less than 2, however far is seen."""
    of = world()
    for name in ("a", "b"):
        of.submit(job(name, 10, 80, slo=1.0, iterations=2000))
    state = of.scheduler.state
    apart = [weave.company_of(state, group) for group in state.groups.values()]
    first, second = (one.stays[0] for one in apart)
    assert first.left_us > 3 * HORIZON_US
    assert first.work_price == 1.0
    beside = msgspec.structs.replace(second.member, pin=first.member.pin)
    shared = ahead_of(state, [first, second._replace(member=beside)], {"a": slowdown, "b": slowdown})
    assert (shared.usd < sum(one.usd for one in apart)) is pays


members = st.lists(st.tuples(st.integers(1, 1000), st.floats(1.0, 5.0), st.floats(0.0, 2.0)), min_size=1, max_size=5)


@given(members, st.floats(1.0, 3000.0))
def test_who_goes_on_beyond_the_horizon_has_its_work_left(some, horizon):
    stays = [stay(f"j{place}", left) for place, (left, _, _) in enumerate(some)]
    slowdowns = {f"j{place}": slowdown for place, (_, slowdown, _) in enumerate(some)}
    whole, course = course_of(stays, slowdowns), course_of(stays, slowdowns, horizon)
    assert course_of(stays, slowdowns, inf) == whole
    for end, left, at_last, one in zip(*course, whole.ends_us, stays, strict=True):
        assert end == pytest.approx(min(at_last, horizon))
        assert 0.0 <= left <= one.left_us
        if at_last < horizon * (1 - 1e-9):
            assert left == 0.0
        else:
            slowest = slowdowns[one.member.job]
            assert one.left_us - horizon * (1 + 1e-9) <= left <= one.left_us - horizon / slowest * (1 - 1e-9) + 1e-6


@given(members, st.floats(1.0, 3000.0))
def test_slower_is_never_cheaper(some, horizon):
    """What bounds of slowdowns give are bounds of dollars."""
    stays = [stay(f"j{place}", left) for place, (left, _, _) in enumerate(some)]
    courses = [
        course_of(stays, {f"j{place}": one[1] + worse * one[2] for place, one in enumerate(some)}, horizon)
        for worse in (0.0, 1.0)
    ]
    for ends in zip(*(one.ends_us for one in courses), strict=True):
        assert ends[0] <= ends[1] * (1 + 1e-9)
    assert later_usd(stays, courses[0].left_us) <= later_usd(stays, courses[1].left_us) * (1 + 1e-9) + 1e-9
