"""The exhaustive optimum: cheaper than no policy may be, and refused where it cannot be searched."""

import time

import msgspec
import pytest
from builders import GIB, World, cluster, job, node
from hypothesis import given, settings
from hypothesis import strategies as st

from weaverl.domain.cluster import PoolKind, SwitchCost
from weaverl.domain.jobs import HostMemory, JobSpec, JobState
from weaverl.errors import UsageError
from weaverl.scheduling.policies.optimal import MOST_JOBS, Plan, optimal_plan

ROLLOUT, TRAINING = 8 * 1.85, 8 * 5.28


def nodes(number: int, host_gib: int = 1536) -> list:
    return [node(f"{pool}{place}", host_gib=host_gib) for pool in "rt" for place in range(number)]


def timed(name: str, rollout: float, training: float, sync: float, *, slo: float) -> JobSpec:
    spec = job(name, rollout, training, slo=slo)
    return msgspec.structs.replace(spec, profile=msgspec.structs.replace(spec.profile, sync_seconds=float(sync)))


def members(plan: Plan) -> list[set[str]]:
    return [set(group.members) for group in plan.groups]


def test_complementary_jobs_are_put_together_whatever_the_order_they_came_in():
    jobs = [job("a", 30, 10, slo=1.1), job("b", 30, 10, slo=1.1), job("c", 10, 30, slo=1.1), job("d", 10, 30, slo=1.1)]
    plan = optimal_plan(cluster(*nodes(4)), jobs)
    assert plan.usd_per_hour == pytest.approx(2 * (ROLLOUT + TRAINING))
    assert all({"a", "b"} & group and {"c", "d"} & group for group in members(plan))
    assert plan.slowdowns == dict.fromkeys("abcd", 1.0)


def test_rollout_heavy_jobs_share_a_training_node_and_have_rollout_nodes_of_their_own():
    plan = optimal_plan(cluster(*nodes(3)), [job(name, 30, 5, slo=1.2) for name in "abc"])
    assert plan.usd_per_hour == pytest.approx(3 * ROLLOUT + TRAINING)
    assert len({plan.pins[name].rollout[0].node for name in "abc"}) == 3


def test_training_nodes_are_opened_only_where_that_is_asked_for():
    jobs = [job(name, 5, 30, slo=1.2) for name in "abc"]
    assert optimal_plan(cluster(*nodes(3)), jobs).usd_per_hour == pytest.approx(3 * (ROLLOUT + TRAINING))
    scaled = optimal_plan(cluster(*nodes(3)), jobs, scale_training=True)
    assert scaled.usd_per_hour == pytest.approx(ROLLOUT + 3 * TRAINING)


def test_host_memory_keeps_jobs_apart():
    jobs = [job(name, 10, 10, host_gib=(100, 200)) for name in "ab"]
    assert len(optimal_plan(cluster(*nodes(2, host_gib=399)), jobs).groups) == 2
    assert len(optimal_plan(cluster(*nodes(2, host_gib=400)), jobs).groups) == 1


def test_an_order_of_turns_is_found_that_the_order_of_arrival_would_not_give():
    """These three take 16.5 seconds a round in the order of arrival, and 14 in the other."""
    jobs = [timed("a", 3, 8, 3, slo=1.0), timed("b", 3, 2, 9, slo=1.0), timed("c", 8, 1, 1, slo=1.4)]
    plan = optimal_plan(cluster(*nodes(1)), jobs)
    assert plan.groups[0].members == ("a", "c", "b")
    assert plan.slowdowns == {"a": 1.0, "b": 1.0, "c": 1.4}


def test_what_it_cannot_search_is_refused_with_what_can_be_done():
    many = [job(f"j{place}") for place in range(MOST_JOBS + 1)]
    with pytest.raises(UsageError, match=r"11 jobs: .* up to 10; give fewer"):
        optimal_plan(cluster(*nodes(20)), many)
    with pytest.raises(UsageError, match="job a has no profile"):
        optimal_plan(cluster(), [job("a", profiled=False)])
    with pytest.raises(UsageError, match=r"job a asks for .* whole nodes only"):
        optimal_plan(cluster(), [job("a", gpus=(4, 8))])
    with pytest.raises(UsageError, match="2 jobs do not fit at once into 1 rollout and 1 training nodes"):
        optimal_plan(cluster(), [job("a", slo=1.0), job("b", 10, 12, slo=1.0)])
    with pytest.raises(UsageError, match="rollout nodes differ"):
        optimal_plan(cluster(node("r0"), node("r1", devices=4), node("t0")), [job("a")])


def test_eight_jobs_take_seconds():
    jobs = [job(f"j{place}", 10 + 3 * place, 30 - 3 * place, slo=1.2 + place / 10) for place in range(8)]
    begun = time.process_time()
    plan = optimal_plan(cluster(*nodes(8), switch=SwitchCost(rollout_seconds=0.1, training_seconds=0.5)), jobs)
    assert time.process_time() - begun < 10
    assert sorted(name for group in plan.groups for name in group.members) == sorted(one.name for one in jobs)


specs = st.lists(
    st.builds(
        lambda rollout, training, slo, gpus, memory: msgspec.structs.replace(
            job("", rollout, training, slo=slo, gpus=gpus),
            host_memory=HostMemory(rollout_bytes=memory * GIB, training_bytes=memory * GIB),
        ),
        st.integers(1, 40),
        st.integers(1, 40),
        st.sampled_from([1.0, 1.2, 1.5, 2.0]),
        st.sampled_from([(8, 8), (8, 8), (16, 8)]),
        st.sampled_from([100, 500, 900]),
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=40, deadline=None)
@given(specs)
def test_admitting_the_jobs_one_by_one_never_costs_less(found: list):
    of = cluster(*nodes(10), switch=SwitchCost(rollout_seconds=0.5, training_seconds=1.0))
    jobs = [msgspec.structs.replace(spec, name=f"j{place}") for place, spec in enumerate(found)]
    world = World(of)
    for spec in jobs:
        world.submit(spec)
        assert world.state(spec.name) is JobState.STARTING
    state = world.scheduler.state
    plan = optimal_plan(of, jobs)
    assert plan.usd_per_hour <= sum(state.usd_per_hour(group.nodes) for group in state.groups.values()) + 1e-9
    check_plan(plan, {spec.name: spec for spec in jobs})


def check_plan(plan: Plan, jobs: dict) -> None:
    """Nodes belong to one group, memory is kept, and so is every promise as the round model of its pins has it."""
    owned = [name for group in plan.groups for name in group.nodes]
    assert len(owned) == len(set(owned))
    for group in plan.groups:
        for pool in PoolKind:
            for name in group.rollout_nodes if pool is PoolKind.ROLLOUT else group.training_nodes:
                pinned = [jobs[one] for one in group.members if name in plan.pins[one].nodes(pool)]
                assert pinned, f"{name} is paid for and not used"
                assert sum(one.host_memory.rollout_bytes for one in pinned) <= 1536 * GIB
    assert all(plan.slowdowns[name] <= spec.slo + 1e-6 for name, spec in jobs.items())
