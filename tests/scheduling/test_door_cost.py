"""What an event costs at the door, counted in calls, so that no other load on the machine changes the answer."""

import sys
from collections.abc import Iterable

import msgspec
from builders import check_invariants
from steady import admitted, rotate

from weaverl.domain.events import (
    AgentReported,
    AnyEvent,
    DeathConfirmed,
    JobCancelled,
    NodeLost,
    PhaseMeasured,
    PhaseReport,
    ProcessExited,
    RankId,
    RankRegistered,
    TimerFired,
)
from weaverl.domain.jobs import PhaseKind
from weaverl.scheduling.scheduler import Scheduler


def num_calls(scheduler: Scheduler, events: Iterable[AnyEvent]) -> int:
    """Calls of Python functions while a scheduler handles events."""
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        for event in events:
            scheduler.handle(event)
    finally:
        sys.setprofile(before)
    return calls


def steady_calls(num_groups: int, num_members: int, *, tails: bool = False) -> float:
    num_events = 60 * num_groups
    events = rotate(admitted(num_groups, num_members), num_events, tails=tails)
    return num_calls(admitted(num_groups, num_members), events) / num_events


def test_an_event_of_a_steady_rotation_costs_the_same_however_many_groups_there_are():
    for num_members, tails in ((1, False), (3, False), (3, True)):
        few, many = (steady_calls(num_groups, num_members, tails=tails) for num_groups in (2, 20))
        assert abs(many - few) < 0.02 * few


def test_an_event_of_a_steady_rotation_is_a_few_dozen_calls():
    assert steady_calls(4, 1) < 35
    assert steady_calls(4, 5) < 40


def test_events_of_jobs_lives_and_of_nodes_cost_the_same_however_many_groups_there_are():
    few, many = ([lives(num_groups) for _ in range(2)][-1] for num_groups in (3, 40))  # the first fills the caches
    assert few == many


def lives(num_groups: int) -> dict[str, int]:
    """Calls for one event of each kind, in the last group."""
    scheduler = admitted(num_groups, 2)
    rotate(scheduler, 50 * num_groups)
    last, state = num_groups - 1, scheduler.state
    scheduler.handle(AgentReported(epoch=0, node=state.nodes["r0"].node, at=state.now))  # placement makes its index
    rank = RankId(f"j{last}-0", 1, "run", 0)
    other = msgspec.structs.replace(rank, job=f"j{last}-1")
    events = (
        PhaseMeasured(rank=rank, phase=PhaseKind.SYNC, iteration=0, report=PhaseReport()),
        RankRegistered(rank=rank),
        NodeLost(node=f"r{last}"),
        AgentReported(epoch=1, node=state.nodes[f"r{last}"].node, alive=(rank, other)),
        TimerFired(name=f"vacate/1.1/{rank.job}"),
        TimerFired(name=f"phase/1.1/{rank.job}"),
        TimerFired(name=f"exit/{rank.job}/1"),
        ProcessExited(rank=rank, node=f"r{last}", exit_code=1),
        DeathConfirmed(job=rank.job, attempt=1, node=f"r{last}"),
        DeathConfirmed(job=rank.job, attempt=1, node=f"t{last}"),
        JobCancelled(job=other.job),
    )
    calls = {}
    for number, event in enumerate(events):
        calls[f"{number} {type(event).__name__}"] = num_calls(scheduler, [msgspec.structs.replace(event, at=state.now)])
    check_invariants(scheduler)
    return calls
