"""What follows from an event beside turns: answers to requests, steps of jobs' lives, timers that are due."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from weaverl.domain.commands import (
    AcceptJob,
    AcknowledgeRequest,
    AnyCommand,
    ChangeJobState,
    DropMove,
    KillJob,
    LearnProfile,
    RefuseRequest,
    SetTimer,
)
from weaverl.domain.events import (
    AgentReported,
    AnyEvent,
    CheckpointWritten,
    DeathConfirmed,
    Event,
    JobCancelled,
    JobSubmitted,
    NodeLost,
    PermitRequested,
    PhaseMeasured,
    PlanProposed,
    ProcessExited,
    RankRegistered,
    StartFailed,
    TimerFired,
)
from weaverl.domain.jobs import JobState
from weaverl.scheduling import drift, lifecycle, moves, placement, profiling, saving
from weaverl.scheduling.known import Known
from weaverl.scheduling.rotation_state import ROLLOUT, permits_of
from weaverl.scheduling.sharing import waiting
from weaverl.scheduling.state import JobRecord


def react(known: Known, event: AnyEvent) -> Iterable[AnyCommand]:
    """The commands that follow; the caller folds each before it asks for the next."""
    reaction = _REACTIONS.get(type(event))
    return () if reaction is None else reaction(known, event)


def _asked(known: Known, event: PermitRequested) -> Iterable[AnyCommand]:
    record = known.state.jobs.get(event.job)
    if record is None or record.attempt != event.attempt:
        return ()
    move = known.state.moves.get(event.job)
    if move is not None:
        rotation = known.rotation_of(record)
        is_free = rotation is not None and not permits_of(rotation.state, event.job)
        leaving = moves.at_boundary(known.state, record, event) if is_free else ()
        if move.is_certain:
            return leaving
        if decided := list(leaving):
            return decided
    if record.profiling:
        profile = profiling.learned(record, event)
    elif event.phase is ROLLOUT and known.state.parameters.by_slack:
        profile = drift.followed(record, known.state.parameters.profile_error)
    else:
        return ()
    return () if profile is None else _learned(known, LearnProfile(job=event.job, profile=profile))


def _over(known: Known, event: PhaseMeasured) -> Iterable[AnyCommand]:
    """A sync has ended: a job a step ahead that is to move has nothing under way, and asks for its next rollout."""
    record = lifecycle.current(known.state, event.rank.job, event.rank.attempt)
    if record is None or not record.spec.staleness or event.rank.job not in known.state.moves:
        return ()
    request = _waits_at_boundary(known, record)
    return () if request is None else moves.at_boundary(known.state, record, request)


def _saved(known: Known, event: CheckpointWritten) -> Iterable[AnyCommand]:
    """A job that is to move may have asked for its next rollout before this was heard, and wait for it still."""
    record = lifecycle.current(known.state, event.rank.job, event.rank.attempt)
    return () if record is None or event.rank.job not in known.state.moves else _leaves_at_once(known, record)


def _leaves_at_once(known: Known, record: JobRecord) -> Iterable[AnyCommand]:
    """A job that waits at the end of a saved iteration need not run another one; it stays planned if it cannot go."""
    request = _waits_at_boundary(known, record)
    if request is None or not saving.is_saved(record, request.iteration):
        return ()
    decided = list(moves.at_boundary(known.state, record, request))
    return () if any(isinstance(command, DropMove) for command in decided) else decided


def _waits_at_boundary(known: Known, record: JobRecord) -> PermitRequested | None:
    """The request for the next rollout of a job that holds nothing."""
    rotation, job = known.rotation_of(record), record.spec.name
    if rotation is None or permits_of(rotation.state, job):
        return None
    return next((one for one in rotation.state.waiting if one.job == job and one.phase is ROLLOUT), None)


def _learned(known: Known, command: LearnProfile) -> Iterator[AnyCommand]:
    yield command
    yield from waiting.serve(known.state)


def _patience(known: Known, event: NodeLost) -> Iterator[AnyCommand]:
    due = event.at + known.state.parameters.node_patience_us
    yield SetTimer(name=f"node/{event.node}/{event.at}", at=due)


def _arrival(known: Known, event: JobSubmitted) -> Iterator[AnyCommand]:
    record = known.state.jobs.get(event.spec.name)
    if record is not None and record.live:
        reason = f"job {event.spec.name} is {record.state} already: choose another name, or cancel it first"
        yield RefuseRequest(request=event.request, reason=reason)
    elif impossible := placement.impossible(known.state, event.spec):
        yield RefuseRequest(request=event.request, reason=f"job {event.spec.name} {impossible}")
    else:
        yield AcceptJob(job=event.spec.name, request=event.request)
        yield from waiting.serve(known.state)


def _cancellation(known: Known, event: JobCancelled) -> Iterator[AnyCommand]:
    record = known.state.jobs.get(event.job)
    if record is None or not record.live:
        what = f"is {record.state} already" if record else "is not known here; `weaverl status` lists the jobs"
        yield RefuseRequest(request=event.request, reason=f"job {event.job} {what}")
        return
    yield AcknowledgeRequest(request=event.request)
    if record.state is JobState.QUEUED:
        name, attempt = record.spec.name, record.attempt
        yield ChangeJobState(job=name, attempt=attempt, state=JobState.CANCELLED, reason="cancelled in the queue")
        yield from waiting.serve(known.state)
    elif record.ending is not None:
        yield lifecycle.change_of_end(record, JobState.CANCELLED, "cancelled")
    else:
        yield from lifecycle.end(record, JobState.CANCELLED, "cancelled")


def _strangers(known: Known, event: AgentReported) -> Iterator[AnyCommand]:
    """Processes that belong to no living attempt are stopped."""
    attempts = dict.fromkeys((rank.job, rank.attempt) for rank in event.alive)
    for job, attempt in attempts:
        if lifecycle.current(known.state, job, attempt) is None:
            yield KillJob(job=job, attempt=attempt, node=event.node.name, reason="no such attempt is alive")
    yield from waiting.serve(known.state)


def _life(known: Known, event: RankRegistered | ProcessExited | StartFailed | DeathConfirmed) -> Iterator[AnyCommand]:
    job, attempt = (event.job, event.attempt) if isinstance(event, DeathConfirmed) else _attempt(event)
    record = lifecycle.current(known.state, job, attempt)
    if record is None or record.pin is None:
        if isinstance(event, DeathConfirmed):
            yield from waiting.serve(known.state)
        return
    match event:
        case RankRegistered():
            yield from lifecycle.react_registration(record)
        case ProcessExited():
            yield from lifecycle.react_exit(known.state, record, event)
        case StartFailed():
            yield from lifecycle.end(record, JobState.FAILED, f"{event.rank} did not start: {event.reason}")
        case DeathConfirmed():
            ended = list(lifecycle.react_death(known.state, record))
            yield from ended
            if ended:
                yield from _place_moved(known, record)
                yield from waiting.serve(known.state)


def _place_moved(known: Known, record: JobRecord) -> Iterator[AnyCommand]:
    if record.state is JobState.QUEUED and record.spec.name in known.state.moves:
        yield from moves.place_moved(known.state, record)


def _planned(known: Known, event: PlanProposed) -> Iterator[AnyCommand]:
    yield from moves.react_plan(known.state, event)
    for move in event.moves:
        if known.state.moves.get(move.job) == move:
            yield from _leaves_at_once(known, known.state.jobs[move.job])


def _due(known: Known, event: TimerFired) -> Iterator[AnyCommand]:
    kind, *names = event.name.split("/")
    match kind:
        case "vacate":
            yield from _lingers_still(known, *names)
        case "phase":
            yield from _runs_still(known, *names)
        case "exit":
            record = lifecycle.current(known.state, names[0], int(names[1]))
            if record is not None:
                left = [key for key, rank in record.ranks.items() if not rank.exited]
                reason = f"{', '.join(left)} still ran after the others had ended"
                yield from lifecycle.end(record, JobState.FINISHED, reason)
        case "queue":
            yield from waiting.serve(known.state)
        case "node":
            yield from _node_gone(known, names[0], int(names[1]))


def _lingers_still(known: Known, token: str, job: str) -> Iterator[AnyCommand]:
    record = known.state.jobs.get(job)
    rotation = known.rotation_of(record)
    left = rotation.state.lingering if rotation is not None else ()
    if record is not None and any(one.grant.job == job and str(one.grant.token) == token for one in left):
        yield from lifecycle.end(record, JobState.FAILED, "did not clear its slots in time")


def _runs_still(known: Known, token: str, job: str) -> Iterator[AnyCommand]:
    record = known.state.jobs.get(job)
    rotation = known.rotation_of(record)
    permits = permits_of(rotation.state, job) if rotation is not None else ()
    if record is not None and any(str(permit.grant.token) == token for permit in permits):
        yield from lifecycle.end(record, JobState.FAILED, "ran a phase past max_phase")


def _node_gone(known: Known, node: str, since: int) -> Iterator[AnyCommand]:
    if not known.state.nodes[node].gone or known.state.nodes[node].lost_at != since:
        return
    for record in known.pinned_on(node):
        yield from lifecycle.end(record, JobState.FAILED, f"node {node} is lost")
        yield from lifecycle.react_death(known.state, record)
        yield from _place_moved(known, record)
    yield from waiting.serve(known.state)


def _attempt(event: RankRegistered | ProcessExited | StartFailed) -> tuple[str, int]:
    return event.rank.job, event.rank.attempt


_REACTIONS: dict[type[Event], Callable[[Known, Any], Iterable[AnyCommand]]] = {
    PermitRequested: _asked,
    PhaseMeasured: _over,
    CheckpointWritten: _saved,
    PlanProposed: _planned,
    TimerFired: _due,
    JobSubmitted: _arrival,
    JobCancelled: _cancellation,
    AgentReported: _strangers,
    NodeLost: _patience,
    RankRegistered: _life,
    ProcessExited: _life,
    StartFailed: _life,
    DeathConfirmed: _life,
}
