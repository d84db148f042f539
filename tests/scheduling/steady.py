"""Groups that rotate steadily, for measuring the door: ``python tests/scheduling/steady.py`` prints events a second."""

import argparse
import heapq
import itertools
import time

import msgspec
from builders import SECOND, cluster, job, node

from weaverl.domain.cluster import PoolKind, Slot
from weaverl.domain.commands import (
    AcceptJob,
    AdmitJob,
    AnyCommand,
    ChangeJobState,
    GrantPermit,
    MoveTail,
    SetTimer,
    StartRank,
    VacateSlot,
)
from weaverl.domain.events import (
    AgentReported,
    AnyEvent,
    ControllerStarted,
    JobSubmitted,
    PermitRequested,
    PhaseEnded,
    PhaseReport,
    RankId,
    RankRegistered,
    SlotVacated,
    TailMoved,
    TailReached,
    TimerFired,
)
from weaverl.domain.groups import Group, Pin
from weaverl.domain.jobs import JobState, PhaseKind, Role
from weaverl.scheduling.scheduler import Scheduler

RUN = Role(name="run", command=("simulated",))
PHASES = {PhaseKind.ROLLOUT: PoolKind.ROLLOUT, PhaseKind.TRAINING: PoolKind.TRAINING}


def admitted(num_groups: int, num_members: int) -> Scheduler:
    """A scheduler with running jobs of one rank, ``num_members`` on each pair of 8-device nodes."""
    rollout = [node(f"r{number}") for number in range(num_groups)]
    training = [node(f"t{number}") for number in range(num_groups)]
    scheduler = Scheduler(cluster(*rollout, *training))
    scheduler.replay(ControllerStarted(epoch=1), ())
    for one in rollout + training:
        scheduler.replay(AgentReported(epoch=1, node=one), ())
    for number, (left, right) in enumerate(zip(rollout, training, strict=True)):
        names = [f"j{number}-{member}" for member in range(num_members)]
        for place, name in enumerate(names):
            spec = msgspec.structs.replace(job(name), roles=(RUN,))
            group = Group(f"g{number}", (left.name,), (right.name,), tuple(names[: place + 1]))
            pin = Pin(_slots(left.name), _slots(right.name))
            rank = RankId(name, 1, "run", 0)
            start = StartRank(
                rank=rank, node=left.name, role=RUN, world_size=1, slots=(), role_sizes={"run": 1}, master_node="r0"
            )
            admit = AdmitJob(job=name, attempt=1, group=group, pin=pin)
            scheduler.replay(JobSubmitted(spec=spec), (AcceptJob(job=name, request=""), admit, start))
            running = ChangeJobState(job=name, attempt=1, state=JobState.RUNNING)
            scheduler.replay(RankRegistered(rank=rank), (running,))
    return scheduler


def rotate(scheduler: Scheduler, num_events: int, *, tails: bool = False) -> list[AnyEvent]:
    """Let all jobs of a scheduler iterate; the events that were handed in. Of a phase's 100 s a tail is the last 20."""
    order, events = itertools.count(), []
    queue: list[tuple[int, int, AnyEvent]] = []

    def post(after: int, event: AnyEvent) -> None:
        at = scheduler.state.now + after
        heapq.heappush(queue, (at, next(order), msgspec.structs.replace(event, at=at)))

    for name in scheduler.state.jobs:
        post(1, _asks(name, PhaseKind.ROLLOUT, 0))
    while len(events) < num_events:
        event = heapq.heappop(queue)[2]
        events.append(event)
        for command in scheduler.handle(event):
            for after, reaction in _reactions(command, tails):
                post(after, reaction)
        if isinstance(event, PhaseEnded):
            is_rollout = event.phase is PhaseKind.ROLLOUT
            follows = PhaseKind.TRAINING if is_rollout else PhaseKind.ROLLOUT
            post(SECOND, _asks(event.rank.job, follows, event.iteration + (not is_rollout)))
    return events


def events_per_second(num_groups: int, num_members: int, num_events: int, *, tails: bool) -> tuple[float, float]:
    """Of processor time, through ``handle`` alone: over all events, and over the fastest thousand of them.

    The events of one run are handed to a second, equal scheduler. The two figures differ by what else the machine does.
    """
    events = rotate(admitted(num_groups, num_members), num_events, tails=tails)
    handle = admitted(num_groups, num_members).handle
    seconds = []
    for first in range(0, num_events, 1000):
        started = time.process_time()
        for event in events[first : first + 1000]:
            handle(event)
        seconds.append(time.process_time() - started)
    return num_events / sum(seconds), 1000 / min(seconds)


def _reactions(command: AnyCommand, tails: bool) -> list[tuple[int, AnyEvent]]:
    rank = RankId(getattr(command, "job", ""), 1, "run", 0)
    match command:
        case GrantPermit(phase=phase):
            ended = PhaseEnded(
                rank=rank,
                token=command.token,
                phase=phase,
                iteration=command.iteration,
                vacated=command.vacate,
                report=PhaseReport(body_us=100 * SECOND),
            )
            keep = command.slots[: max(1, len(command.slots) // 4)]
            reached = TailReached(rank=rank, token=command.token, iteration=command.iteration, keep=keep)
            tail = [(80 * SECOND, reached)] if tails and phase is PhaseKind.ROLLOUT else []
            return [*tail, (100 * SECOND, ended)]
        case MoveTail():
            return [(SECOND, TailMoved(rank=rank, token=command.token))]
        case VacateSlot():
            return [(SECOND, SlotVacated(rank=rank, token=command.token, report=PhaseReport()))]
        case SetTimer():
            return [(30 * SECOND, TimerFired(name=command.name))]
    return []


def _asks(name: str, phase: PhaseKind, iteration: int) -> PermitRequested:
    return PermitRequested(job=name, attempt=1, role="run", phase=phase, pool=PHASES[phase], iteration=iteration)


def _slots(name: str) -> tuple:
    return tuple(Slot(name, device) for device in range(8))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--groups", type=int, default=100)
    parser.add_argument("--members", type=int, nargs="*", default=[1, 2, 5])
    given = parser.parse_args()
    for members in given.members:
        for with_tails in (False, True):
            mean, best = events_per_second(given.groups, members, given.events, tails=with_tails)
            print(f"{members} members, tails {with_tails}: {mean:,.0f} events/s, {best:,.0f} in the fastest thousand")
