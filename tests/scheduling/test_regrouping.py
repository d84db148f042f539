"""The best regrouping: what an enumeration without bounds finds, and never dearer than the groups as they are."""

from collections.abc import Iterator, Sequence
from itertools import combinations, product

import msgspec
import pytest
from builders import World, cluster, job, node
from hypothesis import given, settings
from hypothesis import strategies as st

from weaverl.domain.cluster import SwitchCost
from weaverl.domain.jobs import HostMemory
from weaverl.errors import UsageError
from weaverl.scheduling.expected_dollars import course_of
from weaverl.scheduling.forecast import least_slowdowns
from weaverl.scheduling.objectives import HORIZON_US, later_usd
from weaverl.scheduling.policies import weave
from weaverl.scheduling.policies.joint_work import Layout, _pinned, played
from weaverl.scheduling.policies.layouts import Places, members_of, renumbered
from weaverl.scheduling.policies.regrouping import (
    MOST_JOBS,
    Question,
    Regrouping,
    as_placed,
    best_regrouping,
    question_of,
)
from weaverl.scheduling.policies.weave import broken
from weaverl.scheduling.state import Parameters

GIB = 2**30
NODES = [node(f"{pool}{number}") for pool in "rt" for number in range(12)]
SWITCH = SwitchCost(rollout_seconds=0.5, training_seconds=1.0)


def world(*specs) -> World:
    of = World(cluster(*NODES, switch=SWITCH), parameters=Parameters(policy="weave"))
    for number, spec in enumerate(specs):
        of.submit(msgspec.structs.replace(spec, name=f"j{number}"))
    return of


def spread(spec, cv: float):
    profile = msgspec.structs.replace(
        spec.profile, rollout_max_seconds=1.5 * spec.profile.rollout_max_seconds, rollout_cv=cv, rollout_p80=0.7
    )
    return msgspec.structs.replace(spec, profile=profile)


jobs = st.builds(
    lambda rollout, training, slo, gpus, gib, iterations, cv: msgspec.structs.replace(
        spread(job("", rollout, training, slo=slo, gpus=gpus, iterations=iterations), cv),
        host_memory=HostMemory(rollout_bytes=gib * GIB, training_bytes=gib * GIB),
    ),
    st.integers(5, 40),
    st.integers(5, 40),
    st.sampled_from([1.0, 1.2, 1.5, 2.0]),
    st.sampled_from([(8, 8), (8, 8), (16, 8), (8, 16)]),
    st.sampled_from([100, 100, 700]),
    st.integers(5, 100),
    st.sampled_from([0.0, 0.3]),
)


def test_two_jobs_that_came_to_nodes_of_their_own_had_better_share_them():
    of = world(job("", 10, 10, slo=2.0, iterations=50), job("", 10, 10, slo=2.0, iterations=50))
    question = question_of(of.scheduler.state)
    alone = tuple(played([worker], question.kinds, Layout(((0,),), ((0,),))).usd for worker in question.workers)
    best = best_regrouping(question)
    assert [one.jobs for one in best.groups] == [(0, 1)]
    assert best.usd < sum(alone)


def test_jobs_without_room_for_a_neighbour_stay_alone():
    of = world(*(job("", 10, 10, slo=1.0, iterations=9) for _ in range(3)))
    question = question_of(of.scheduler.state)
    best = best_regrouping(question)
    assert sorted(one.jobs for one in best.groups) == [(0,), (1,), (2,)]
    assert best.usd == pytest.approx(as_placed(question).usd)


def test_the_dollars_of_groups_as_they_are_are_those_that_weave_counts():
    of = world(job("", 10, 80, slo=1.3), job("", 10, 80, slo=1.3), job("", 40, 10, slo=1.8, gpus=(16, 8)))
    state = of.scheduler.state
    by_weave = sum(weave.company_of(state, group).usd for group in state.groups.values())
    assert as_placed(question_of(state)).usd == pytest.approx(by_weave)


def test_who_outlives_a_neighbour_is_slowed_until_that_one_ends_and_counts_so():
    of = world(job("", 10, 10, slo=2.0, iterations=50), job("", 10, 10, slo=2.0, iterations=90))
    state = of.scheduler.state
    question, (group,) = question_of(state), state.groups.values()
    slowdowns = played(question.workers, question.kinds, question.groups[0].layout).slowdowns
    assert min(slowdowns.values()) > 1.0
    company = weave.company_of(state, group)
    as_slow_to_its_end = [stay.left_us * slowdowns[stay.member.job] for stay in company.stays]
    assert max(company.until_us.values()) < max(as_slow_to_its_end)
    assert as_placed(question).usd == pytest.approx(company.usd)


def test_what_it_cannot_search_is_refused_with_what_can_be_done():
    many = world(*(job("", slo=1.0) for _ in range(MOST_JOBS + 1)))
    with pytest.raises(UsageError, match=r"9 jobs: .* up to 8; give fewer"):
        best_regrouping(question_of(many.scheduler.state))
    with pytest.raises(UsageError, match="job j0 has no profile"):
        question_of(world(job("", profiled=False)).scheduler.state)
    with pytest.raises(UsageError, match=r"job j0 asks for .* whole nodes only"):
        question_of(world(job("", gpus=(4, 8))).scheduler.state)


@settings(max_examples=20, deadline=None)
@given(st.lists(jobs, min_size=2, max_size=3))
def test_an_enumeration_without_bounds_finds_nothing_cheaper(specs):
    question = question_of(world(*specs).scheduler.state)
    best = best_regrouping(question)
    check(question, best)
    assert best.usd == pytest.approx(naive(question), rel=1e-9)


@settings(max_examples=5, deadline=None)
@given(st.lists(jobs.filter(lambda spec: spec.rollout_gpus == spec.training_gpus), min_size=4, max_size=4))
def test_nor_among_four_jobs(specs):
    question = question_of(world(*specs).scheduler.state)
    assert best_regrouping(question).usd == pytest.approx(naive(question), rel=1e-9)


@settings(max_examples=10, deadline=None)
@given(st.lists(jobs, min_size=1, max_size=4))
def test_it_never_costs_more_than_the_groups_as_they_are(specs):
    question = question_of(world(*specs).scheduler.state)
    best = best_regrouping(question)
    check(question, best)
    assert best.usd <= as_placed(question).usd * (1 + 1e-12)


def check(question: Question, best: Regrouping) -> None:
    """Every job is in one group, memory is kept, and what is said of it is what its play says."""
    assert sorted(number for one in best.groups for number in one.jobs) == list(range(len(question.workers)))
    for one in best.groups:
        workers = [question.workers[number] for number in one.jobs]
        for pool, places in enumerate(one.layout):
            for members in members_of(places):
                on = [worker for number, worker in enumerate(workers) if members >> number & 1]
                assert sum(worker.host_bytes[pool] for worker in on) <= question.kinds[pool].usable_bytes
        found = played(workers, question.kinds, one.layout)
        assert one.usd >= found.usd * (1 - 1e-12)


def naive(question: Question) -> float:
    """The least dollars of all partitions, each group on all its layouts, all of them played."""
    as_it_is = {one.jobs: one.usd for one in question.groups}
    for one in question.groups:
        for number in range(1, len(one.jobs)):
            for jobs_left in combinations(one.jobs, number):
                as_it_is[jobs_left] = usd_where_they_are(question, jobs_left)

    def least(subset: tuple[int, ...]) -> float:
        found = (usd_of(question, subset, layout) for layout in all_layouts(question, subset))
        return min([as_it_is.get(subset, float("inf")), *found])

    return min(sum(map(least, partition)) for partition in partitions(range(len(question.workers))))


def usd_where_they_are(question: Question, subset: tuple[int, ...]) -> float:
    workers = [question.workers[number] for number in subset]
    pins = [worker.stay.member.pin for worker in workers]
    nodes = [[list(dict.fromkeys(slot.node for slot in slots)) for slots in (p.rollout, p.training)] for p in pins]
    layout = Layout(*(renumbered([one[pool] for one in nodes]) for pool in (0, 1)))
    return played(workers, question.kinds, layout).usd


def usd_of(question: Question, subset: tuple[int, ...], layout: Layout) -> float:
    """As weave judges: what a bound rules out is not played, and what is played costs its bound at least."""
    workers = [question.workers[number] for number in subset]
    stays = [_pinned(worker.stay, question.kinds, *places) for worker, *places in zip(workers, *layout, strict=True)]
    slos = {one.member.job: max(one.allowed, 1.0) for one in stays}
    tails = {one.member.job: one.profile.rollout_p80 for one in stays}
    least = least_slowdowns([stay.member for stay in stays], slos, tails)
    if broken(stays, least):
        return float("inf")
    found = played(workers, question.kinds, layout)
    course = course_of(stays, least, HORIZON_US)
    bound = later_usd(stays, course.left_us)
    for kind, places in zip(question.kinds, layout, strict=True):
        for members in members_of(places):
            on = [end for number, end in enumerate(course.ends_us) if members >> number & 1]
            bound += kind.usd_per_hour * max(on) / 3600e6
    return float("inf") if found.refused else max(found.usd, bound)


def all_layouts(question: Question, subset: tuple[int, ...]) -> Iterator[Layout]:
    workers = [question.workers[number] for number in subset]
    sides = [list(all_places(question, workers, pool)) for pool in (0, 1)]
    yield from (layout for layout in map(Layout._make, product(*sides)) if is_linked(layout))


def is_linked(layout: Layout) -> bool:
    """Whether all share nodes, also through others: else they are several groups."""
    near, left = {0}, set(range(1, len(layout.rollout)))
    while found := {job for job in left for other in near for of in layout if not set(of[job]).isdisjoint(of[other])}:
        near, left = near | found, left - found
    return not left


def all_places(question: Question, workers: Sequence, pool: int) -> Iterator[Places]:
    """Every choice of nodes for every job, out of as many as all could use; names do not matter."""
    most = sum(worker.num_nodes[pool] for worker in workers)
    seen = set()
    for chosen in product(*(combinations(range(most), worker.num_nodes[pool]) for worker in workers)):
        places = renumbered([[str(place) for place in places] for places in chosen])
        if places in seen:
            continue
        seen.add(places)
        held = [
            sum(worker.host_bytes[pool] for number, worker in enumerate(workers) if members >> number & 1)
            for members in members_of(places)
        ]
        if max(held) <= question.kinds[pool].usable_bytes:
            yield places


def partitions(numbers: Sequence[int]) -> Iterator[list[tuple[int, ...]]]:
    if not numbers:
        yield []
        return
    first, others = numbers[0], list(numbers[1:])
    for size in range(len(others) + 1):
        for beside in combinations(others, size):
            rest = [number for number in others if number not in beside]
            for partition in partitions(rest):
                yield [(first, *beside), *partition]
