"""Two moves that pay only together: found where no single one pays, made one after the other, dropped together."""

from collections import Counter

import msgspec
import pytest
from builders import World, check_invariants, cluster, job, node
from test_moves import (
    AT_ONCE,
    Apart,
    apart,
    commands,
    each_once,
    plan,
    ran,
    saving,
    to_the_other,
    until_stopping,
)

from weaverl.channel.wire import decode_fact, encode_fact
from weaverl.domain.commands import AdmitJob, ChangeJobState, DropMove
from weaverl.domain.events import JobCancelled
from weaverl.domain.facts import SCHEMA, Fact
from weaverl.domain.groups import Move
from weaverl.domain.jobs import JobState
from weaverl.scheduling import double_moves
from weaverl.scheduling.guessed_saving import Leaver
from weaverl.scheduling.replanning import propose
from weaverl.scheduling.trial_moves import after

NODES = tuple(node(f"{pool}{number}") for pool in "rt" for number in range(3))


def two_pairs() -> World:
    """A long job beside a short one, twice: a third one would slow any of them to 1.5x."""
    world = World(cluster(*NODES), iterations=8, parameters=AT_ONCE)
    for name, iterations in (("long", 80), ("short", 20), ("longer", 90), ("shorter", 19)):
        spec = job(name, slo=1.3, checkpoint_directory="here", iterations=iterations)
        world.submit(spec)
    world.register_all()
    while min(record.iterations_done for record in world.scheduler.state.jobs.values()) < 1:
        world.deliver()
    assert [group.members for group in world.scheduler.state.groups.values()] == [
        ("long", "short"),
        ("longer", "shorter"),
    ]
    return world


def test_a_swap_is_planned_where_neither_job_could_move_by_itself():
    world = two_pairs()
    state = world.scheduler.state
    proposed = propose(state)
    assert proposed is not None
    first, second = proposed.moves
    assert (first.after, second.after) == ("", first.job)
    end = after(state, proposed.moves)
    assert sorted(sorted(group.members) for group in end.groups.values()) == [["long", "longer"], ["short", "shorter"]]
    assert first.saving_usd == second.saving_usd > 0.0
    assert after(state, [first]) is state, "by itself it would break promises"
    world.send(proposed)
    world.run()
    check_invariants(world.scheduler)
    assert {record.state for record in world.scheduler.state.jobs.values()} == {JobState.FINISHED}
    assert {name: record.moves for name, record in world.scheduler.state.jobs.items() if record.moves} == {
        first.job: 1,
        second.job: 1,
    }
    for name in world.scheduler.state.jobs:
        assert Counter(ran(world, name)) == each_once(8)


@pytest.mark.parametrize(
    "fields",
    [{"saving_over_cost": 1e9}, {"least_saving_usd": 1e9}, {"least_stay_us": 10**12}, {"max_moves_per_job": 0}],
)
def test_two_moves_pay_as_much_as_one_or_are_not_planned(fields: dict[str, float]):
    state = two_pairs().scheduler.state
    state.parameters = msgspec.structs.replace(state.parameters, **fields)
    assert propose(state) is None


def test_only_groups_that_have_changed_and_rest_are_looked_at():
    state = two_pairs().scheduler.state
    leavers = {
        name: [Leaver(state.jobs[job], state.jobs[job].spec, 0.0) for job in group.members]
        for name, group in state.groups.items()
    }
    assert double_moves.best_two(state, leavers, []) is None
    one, other = leavers
    assert double_moves.best_two(state, leavers, [other]) is not None
    assert double_moves.best_two(state, {one: leavers[one]}, [one]) is None


def follower(world: Apart) -> Move:
    """The other job stays where it is, for which it would have to start anew: it pays only with the first's move."""
    record = world.scheduler.state.jobs[world.stays]
    assert record.group is not None and record.pin is not None
    return Move(job=world.stays, attempt=record.attempt, group=record.group, pin=record.pin, after="a")


def test_the_second_leaves_only_when_the_first_has_its_place():
    world = apart()
    plan(world, to_the_other(world), follower(world))
    until_stopping(world)
    assert world.state(world.stays) is JobState.RUNNING
    until_stopping(world, world.stays)
    attempts = [(c.job, c.attempt) for c in commands(world, AdmitJob)]
    stopped = [c.job for c in commands(world, ChangeJobState) if c.state is JobState.STOPPING and c.final]
    assert ("a", 2) in attempts
    assert [name for name in stopped if name in ("a", world.stays)] == ["a", world.stays]
    world.run()
    assert {world.state(name) for name in ("a", world.stays)} == {JobState.FINISHED}


def test_what_drops_the_first_drops_the_second():
    world = apart(host_gib=(400, 400))
    plan(world, to_the_other(world), follower(world))
    for name in ("late", "later"):
        world.submit(saving(name, host_gib=(600, 600)))
    world.run()
    first, second = commands(world, DropMove)
    assert "needs 400 GiB" in first.reason
    assert (second.job, second.reason) == (world.stays, f"a, which was to move first, stays: {first.reason}")
    assert world.scheduler.state.jobs[world.stays].attempt == 1


def test_a_second_whose_first_is_gone_is_weighed_by_itself():
    world = apart()
    second = follower(world)
    plan(world, to_the_other(world), second)
    world.send(JobCancelled(job="a"))
    world.run()
    (drop,) = commands(world, DropMove)
    assert (drop.job, drop.reason) == (world.stays, f"group {second.group} is gone")
    assert world.state(world.stays) is JobState.FINISHED


def test_a_second_move_is_in_the_log_and_one_of_an_old_log_waits_for_nobody():
    world = apart()
    second = follower(world)
    decided = plan(world, to_the_other(world), second)
    fact = Fact(schema=SCHEMA, code="0", policy="weave", event=world.log[-1][0], commands=tuple(decided))
    assert decode_fact(encode_fact(fact)) == fact
    old = {key: value for key, value in msgspec.to_builtins(second).items() if key != "after"}
    assert msgspec.convert(old, Move).after == ""
