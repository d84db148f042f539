"""Policy ``weave``: expected dollars, nodes of both pools, and promises that its forecast keeps."""

from builders import World, cluster, job, node
from hypothesis import given, settings
from hypothesis import strategies as st

from weaverl.scheduling.policies.weave import MOST_MEMBERS
from weaverl.scheduling.state import Parameters

NODES = [node(f"{pool}{number}") for pool in "rt" for number in range(4)]


def world() -> World:
    return World(cluster(*NODES), parameters=Parameters(policy="weave"))


def test_a_training_heavy_job_shares_the_rollout_node_and_gets_a_training_node_of_its_own():
    of = world()
    of.submit(job("a", 10, 80, slo=1.3))
    of.submit(job("b", 10, 80, slo=1.3))
    admitted = of.admitted("b")
    assert admitted.verdicts[-1].kind == "scale training"
    assert admitted.group.rollout_nodes == ("r0",)
    assert admitted.group.training_nodes == ("t0", "t1")


def test_a_long_job_joins_the_group_that_will_be_there_anyway():
    of = world()
    too_large_to_share = (800, 800)
    of.submit(job("short", 50, 20, host_gib=too_large_to_share, iterations=5))
    of.submit(job("long", 50, 20, host_gib=too_large_to_share, iterations=1000))
    assert of.admitted("long").group.name != of.admitted("short").group.name
    of.submit(job("newcomer", 20, 50, slo=2.0, iterations=900))
    assert of.admitted("newcomer").group.name == of.admitted("long").group.name
    assert of.admitted("newcomer").verdicts[-1].kind == "pack"


def test_its_groups_take_turns_by_slack():
    of = world()
    of.submit(job("a", 10, 10))
    assert of.admitted("a").group.by_slack


def test_a_group_takes_so_many_members_and_more_only_where_nothing_else_is_to_be_had():
    for number_of_nodes, sizes in ((20, [MOST_MEMBERS, 1]), (1, [MOST_MEMBERS + 1])):
        nodes = [node(f"{pool}{number}") for pool in "rt" for number in range(number_of_nodes)]
        of = World(cluster(*nodes), parameters=Parameters(policy="weave"))
        for number in range(MOST_MEMBERS + 1):
            of.submit(job(f"j{number}", 10, 1, slo=20.0, host_gib=(10, 10)))
        assert [len(group.members) for group in of.scheduler.state.groups.values()] == sizes
        refused = [verdict.refused for verdict in of.admitted(f"j{MOST_MEMBERS}").verdicts]
        assert f"has {MOST_MEMBERS} members, and is joined only where nothing else can be had" in refused


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 90), st.integers(1, 90), st.sampled_from([1.0, 1.1, 1.5, 2.0]), st.integers(1, 50)),
        min_size=1,
        max_size=6,
    )
)
def test_no_placement_is_forecast_to_break_a_promise(jobs):
    of = world()
    for number, (rollout, training, slo, iterations) in enumerate(jobs):
        of.submit(job(f"j{number}", rollout, training, slo=slo, iterations=iterations))
    for record in of.scheduler.state.jobs.values():
        if record.pin is not None:
            assert record.predicted_slowdown is not None
            assert record.predicted_slowdown <= record.spec.slo + 1e-9


def test_who_shares_a_slot_has_something_in_hand_also_where_no_wait_is_foreseen():
    for slo, num_groups in ((1.005, 2), (1.02, 1)):
        of = world()
        of.submit(job("a", 50, 50, slo=slo))
        of.submit(job("b", 50, 50, slo=slo))
        assert of.admitted("b").predicted_slowdowns["b"] == 1.0
        assert len(of.scheduler.state.groups) == num_groups
