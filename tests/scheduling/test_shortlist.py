"""Policy ``weave`` among very many groups: bounds that rule out nobody who could take a job, and what is told."""

import msgspec
from builders import SECOND, World, cluster, job, node
from hypothesis import given, settings
from hypothesis import strategies as st

from weaverl.domain.events import DeathConfirmed, JobCancelled
from weaverl.scheduling.admission import CLOSED, NO_ROOM, Told
from weaverl.scheduling.group_rows import SATURATED
from weaverl.scheduling.index import index_of
from weaverl.scheduling.policies import shortlist, weave
from weaverl.scheduling.scheduler import Scheduler, Snapshot
from weaverl.scheduling.state import Parameters

LARGE = (800, 800)
"""Host memory in GiB of which a node holds one job's."""

ALL = (1000, 100_000)

JOBS = st.lists(
    st.tuples(
        st.integers(1, 90),
        st.integers(1, 90),
        st.sampled_from([1.0, 1.1, 1.5, 2.0, 9.0]),
        st.integers(1, 50),
        st.sampled_from([(8, 8), (16, 8), (8, 16), (4, 8)]),
        st.sampled_from([(100, 100), (100, 900), (900, 100), (1400, 1500)]),
    ),
    min_size=1,
    max_size=9,
)


def world(num_nodes: int) -> World:
    nodes = [node(f"{pool}{number:03}") for pool in "rt" for number in range(num_nodes)]
    return World(cluster(*nodes), parameters=Parameters(policy="weave"))


def filled(num_groups: int, num_free: int = 0) -> World:
    """Groups of one job each, that no other large one fits into."""
    of = world(num_groups + num_free)
    for number in range(num_groups):
        of.submit(job(f"j{number}", 10 + number % 7, 40, slo=1.5, host_gib=LARGE, iterations=20 + number))
    assert len(of.scheduler.state.groups) == num_groups
    return of


def submitted(jobs, num_nodes: int) -> World:
    of = world(num_nodes)
    for number, (rollout, training, slo, iterations, gpus, host_gib) in enumerate(jobs):
        more = {"slo": slo, "iterations": iterations, "gpus": gpus, "host_gib": host_gib}
        of.submit(job(f"j{number}", rollout, training, **more))
    return of


@settings(max_examples=60, deadline=None)
@given(JOBS, st.integers(2, 6))
def test_no_group_is_ruled_out_that_has_a_way_in(jobs, num_nodes):
    *jobs, (rollout, training, slo, iterations, gpus, host_gib) = jobs
    state = submitted(jobs, num_nodes).scheduler.state
    spec = job("newcomer", rollout, training, slo=slo, iterations=iterations, gpus=gpus, host_gib=host_gib)
    left = {group.name for group in shortlist.groups_of(state, shortlist.screen(state, spec).rows)}
    for group in state.groups.values():
        ways = [one for one in weave.into_groups(state, spec, [group], most_members=100) if one.newcomer is not None]
        assert not ways or group.name in left


@settings(max_examples=40, deadline=None)
@given(JOBS, st.integers(2, 6))
def test_where_all_are_listed_the_choice_is_that_of_looking_at_all(jobs, num_nodes):
    *jobs, (rollout, training, slo, iterations, gpus, host_gib) = jobs
    state = submitted(jobs, num_nodes).scheduler.state
    spec = job("newcomer", rollout, training, slo=slo, iterations=iterations, gpus=gpus, host_gib=host_gib)
    among_all = weave.among_few(state, spec, list(state.groups.values()), Told())
    rows = shortlist.screen(state, spec).rows
    assert weave.among_many(state, spec, rows, Told(), (ALL, ALL)) == among_all


def test_of_many_groups_a_few_are_looked_at_and_the_others_are_counted_as_such():
    of = filled(40, num_free=1)
    of.submit(job("newcomer", 30, 5, slo=3.0, iterations=5))
    admitted = of.admitted("newcomer")
    assert admitted.verdicts[-1].kind == "pack"
    told = {verdict.refused: verdict.group for verdict in admitted.verdicts}
    assert told[shortlist.NOT_ASKED] == "37 more"


def test_the_groups_looked_at_are_there_as_long_as_the_newcomer():
    of = filled(40)
    cheapest, _ = shortlist.batches(of.scheduler.state, job("newcomer", 20, 5, slo=5.0, iterations=100), rows(of))
    members = [of.scheduler.state.jobs[group.members[0]] for group in cheapest.groups]
    left_us = [record.spec.iterations * record.durations.solo_us for record in members]
    assert [left >= 100 * 25 * SECOND for left in left_us] == [True, True, True]


def test_groups_with_many_members_are_asked_where_nothing_else_is_to_be_had():
    for num_nodes, kind in ((6, "isolate"), (1, "pack")):
        of = world(num_nodes)
        for number in range(weave.MOST_MEMBERS):
            of.submit(job(f"j{number}", 10, 1, slo=20.0, host_gib=(10, 10)))
        told = Told()
        spec = job("newcomer", 10, 1, slo=20.0, host_gib=(10, 10))
        found = weave.among_many(of.scheduler.state, spec, rows(of), told)
        assert found.candidate.kind == kind
        assert (shortlist.CROWDED in {verdict.refused for verdict in told.verdicts()}) == (kind == "isolate")


def test_what_lacks_host_memory_everywhere_is_counted_without_a_look():
    of = filled(40)
    of.submit(job("newcomer", 5, 5, slo=9.0, host_gib=LARGE))
    *_, counted = of.scheduler.state.jobs["newcomer"].verdicts
    assert (counted.group, counted.refused) == ("40 more", NO_ROOM)


def test_groups_that_profile_a_job_are_closed():
    of = filled(40, num_free=1)
    of.submit(job("unknown", profiled=False, host_gib=LARGE))
    assert shortlist.screen(of.scheduler.state, job("newcomer")).num_closed == 1
    of.submit(job("newcomer", 5, 5, slo=9.0, host_gib=LARGE))
    told = {verdict.refused: verdict.group for verdict in of.scheduler.state.jobs["newcomer"].verdicts}
    assert told[CLOSED] == "1 more"


def test_a_group_of_its_own_needs_no_play():
    of = filled(40, num_free=1)
    spec, told = job("newcomer", 30, 5, slo=3.0), Told()
    found = weave.among_many(of.scheduler.state, spec, rows(of), told, ((3, 0), (0, 0)))
    assert found.candidate.kind == "isolate"
    counted = {verdict.kind: verdict.group for verdict in told.verdicts() if verdict.refused == shortlist.NOT_ASKED}
    assert counted == {"pack": "40 more", "scale rollout": "3 more", "scale training": "3 more"}


def test_a_saturated_group_is_listed_with_its_loads():
    of = world(1)
    for name in ("a", "b"):
        of.submit(job(name, 60, 50, slo=4.0))
    table = index_of(of.scheduler.state).table
    assert table.closed == [SATURATED]
    assert table["load_us"][:, 0, 0].tolist() == [120 * SECOND, 100 * SECOND]
    assert shortlist.screen(of.scheduler.state, job("c", 5, 5, slo=9.0)).rows.tolist() == [0]


def test_a_state_out_of_a_snapshot_gives_the_same_choice():
    of = filled(45)
    for number in range(0, 45, 9):
        cancel(of, f"j{number}")
    assert len(of.scheduler.state.groups) == 40
    spec = job("newcomer", 30, 5, slo=3.0, iterations=5)
    written = msgspec.msgpack.encode(of.scheduler.snapshot())
    thawed = Scheduler.from_snapshot(msgspec.msgpack.decode(written, type=Snapshot))
    assert weave.choose(thawed.state, spec) == weave.choose(of.scheduler.state, spec)


def cancel(of: World, name: str) -> None:
    of.send(JobCancelled(job=name, request="x"))
    for death in [event for event in of.pending if isinstance(event, DeathConfirmed)]:
        of.pending.remove(death)
        of.send(death)


def rows(of: World):
    return shortlist.screen(of.scheduler.state, job("any")).rows
