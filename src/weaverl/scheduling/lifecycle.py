"""The life of an admitted job: its ranks register, exit, fail, are stopped, and their death is confirmed.

A job's slots and host memory are its own until every node has confirmed that nothing of it is left (kill before
grant); only then does the job end and its group shrink.
"""

import signal
from collections.abc import Iterator

from weaverl.domain.cluster import PoolKind
from weaverl.domain.commands import AnyCommand, ChangeJobState, KillJob, SetTimer
from weaverl.domain.events import AnyEvent, DeathConfirmed, JobSubmitted, ProcessExited, RankRegistered
from weaverl.domain.jobs import JobState
from weaverl.scheduling import progress
from weaverl.scheduling.placement import without_job
from weaverl.scheduling.state import ClusterState, Ending, JobRecord, RankRecord, rank_key

_LIKELY_CAUSES = {
    "SIGKILL": "; killed by somebody, or out of memory",
    "SIGABRT": "; a native library aborted",
    "SIGBUS": "; often a full /dev/shm",
    "SIGSEGV": "; a native library crashed",
}


def current(state: ClusterState, job: str, attempt: int) -> JobRecord | None:
    """The job's record if this attempt of it is the living one."""
    record = state.jobs.get(job)
    return record if record is not None and record.live and record.attempt == attempt else None


def fold_acceptance(state: ClusterState, event: AnyEvent) -> None:
    """Fold that a job was taken; whoever uses a name again gets the next attempt."""
    assert isinstance(event, JobSubmitted)
    name = event.spec.name
    before = state.jobs.pop(name, None)
    if name in state.ended:
        state.ended.remove(name)
    attempt = 1 if before is None else before.attempt + 1
    state.jobs[name] = JobRecord(event.spec, event.at, attempt=attempt, profile=event.spec.profile, queued_at=event.at)
    state.changed.jobs[name] = None


def observe_registration(state: ClusterState, event: RankRegistered) -> None:
    """Fold a rank's ``init``."""
    record = current(state, event.rank.job, event.rank.attempt)
    if record is not None and rank_key(event.rank) in record.ranks:
        rank = record.ranks[rank_key(event.rank)]
        rank.registered, rank.prepares = True, event.prepares


def observe_exit(state: ClusterState, event: ProcessExited) -> None:
    """Fold a process's end."""
    record = current(state, event.rank.job, event.rank.attempt)
    if record is not None and rank_key(event.rank) in record.ranks:
        rank = record.ranks[rank_key(event.rank)]
        rank.exited, rank.exit_code, rank.stopped = True, event.exit_code, event.stopped
        if (event.exit_code != 0 and record.ending is None) or is_deeper_cause(record, rank):
            record.last_lines = event.last_lines


def is_deeper_cause(record: JobRecord, rank: RankRecord) -> bool:
    """Whether a failed job failed because this rank was killed, though the exit of another was heard of before.

    The others lose their connections to a killed rank, and may be gone before its own end is reported.
    """
    others = (one for one in record.ranks.values() if one is not rank)
    failed = record.ending is not None and record.ending.state is JobState.FAILED
    return failed and rank.killed and not any(one.killed for one in others)


def observe_death(state: ClusterState, event: DeathConfirmed) -> None:
    """Fold a node's confirmation that nothing of the attempt is left there."""
    strangers = state.nodes[event.node].strangers
    if (event.job, event.attempt) in strangers:
        strangers.remove((event.job, event.attempt))
        state.changed.nodes[event.node] = None
    record = current(state, event.job, event.attempt)
    if record is not None and record.ending is not None and event.node in record.ending.unconfirmed:
        record.ending.unconfirmed.remove(event.node)


def react_registration(record: JobRecord) -> Iterator[AnyCommand]:
    """The job runs once its last rank is there."""
    if record.state is JobState.STARTING and all(rank.registered for rank in record.ranks.values()):
        yield ChangeJobState(job=record.spec.name, attempt=record.attempt, state=JobState.RUNNING)


def react_exit(state: ClusterState, record: JobRecord, event: ProcessExited) -> Iterator[AnyCommand]:
    """One failed rank fails the job; when all are done it is finished; a rank that outlives the others is ended."""
    reason = f"{event.rank} {describe_exit(event.exit_code)}"
    if record.ending is not None:
        rank = record.ranks.get(rank_key(event.rank))
        if rank is not None and is_deeper_cause(record, rank):
            yield change_of_end(record, JobState.FAILED, reason)
    elif event.exit_code != 0:
        yield from end(record, JobState.FAILED, reason)
    elif all(rank.exited for rank in record.ranks.values()):
        yield from end(record, JobState.FINISHED, "")
    else:
        due = state.now + state.parameters.exit_patience_us
        yield SetTimer(name=f"exit/{record.spec.name}/{record.attempt}", at=due)


def end(record: JobRecord, final: JobState, reason: str) -> Iterator[AnyCommand]:
    """Stop what is left of the job on each of its nodes; it ends, or is placed anew, when all have confirmed."""
    if record.ending is not None:
        return
    name, attempt = record.spec.name, record.attempt
    yield ChangeJobState(job=name, attempt=attempt, state=JobState.STOPPING, final=final, reason=reason)
    for node in nodes_of(record):
        yield KillJob(job=name, attempt=attempt, node=node, reason=reason or str(final))


def change_of_end(record: JobRecord, final: JobState, reason: str) -> ChangeJobState:
    """A job that is stopping already will end otherwise: a cancelled one is not tried again."""
    name, attempt = record.spec.name, record.attempt
    return ChangeJobState(job=name, attempt=attempt, state=JobState.STOPPING, final=final, reason=reason)


def react_death(state: ClusterState, record: JobRecord) -> Iterator[AnyCommand]:
    """The last confirmation ends the job, shrinks its group, and starts its next attempt if it has one."""
    ending = record.ending
    if ending is None or ending.unconfirmed:
        return
    name, attempt = record.spec.name, record.attempt
    yield without_job(state, record)
    if ending.state is JobState.QUEUED:
        yield ChangeJobState(job=name, attempt=attempt + 1, state=JobState.QUEUED, reason=ending.reason)
    elif ending.state is JobState.FAILED and record.retries < record.spec.max_retries:
        tries = f"retry {record.retries + 1} of {record.spec.max_retries} after: {ending.reason}"
        yield ChangeJobState(job=name, attempt=attempt + 1, state=JobState.QUEUED, reason=tries)
    else:
        yield ChangeJobState(job=name, attempt=attempt, state=ending.state, reason=ending.reason)


def fold_state(state: ClusterState, command: ChangeJobState) -> None:
    """Fold a step of a job's life."""
    record = state.jobs[command.job]
    record.state, record.reason = command.state, command.reason
    state.changed.jobs[command.job] = None
    match command.state:
        case JobState.STOPPING:
            assert command.final is not None
            progress.stopped(record, state.now)
            there = [node for node in nodes_of(record) if not state.nodes[node].gone]
            unconfirmed = there if record.ending is None else record.ending.unconfirmed
            record.ending = Ending(command.final, command.reason, unconfirmed)
            _turn_to_move(state, record, command.final)
        case JobState.QUEUED:
            _count_attempt(state, record, command.attempt)
            _unpin(record)
            record.queued_at = state.now
            record.verdicts, record.measured, record.profiling = (), {}, False
        case JobState.FINISHED | JobState.FAILED | JobState.CANCELLED:
            record.ended_at = state.now
            state.ended_at = state.now if record.pin is not None else state.ended_at
            _unpin(record)
            state.moves.pop(command.job, None)
            _forget_oldest(state, command.job)


def _turn_to_move(state: ClusterState, record: JobRecord, final: JobState) -> None:
    """The group that a stopped job moves to is closed from now on; one that ends otherwise moves nowhere."""
    move = state.moves.get(record.spec.name)
    if move is not None:
        state.changed.groups[move.group] = None
        if final is not JobState.QUEUED:
            del state.moves[record.spec.name]


def _count_attempt(state: ClusterState, record: JobRecord, attempt: int) -> None:
    record.attempt = attempt
    move = state.moves.get(record.spec.name)
    if move is not None and move.paused_for:
        record.preemptions += 1
        del state.moves[record.spec.name]
        waiting = state.jobs.get(move.paused_for)
        if waiting is not None and waiting.state is JobState.QUEUED:
            waiting.way_made = True
    elif record.ending is not None and record.ending.state is JobState.QUEUED:
        record.moves += 1
    else:
        record.retries += 1


def _forget_oldest(state: ClusterState, ended: str) -> None:
    """A job that has ended is remembered until enough others have."""
    kept = state.parameters.ended_jobs_kept
    if kept is not None:
        state.ended.append(ended)
        if len(state.ended) > kept:
            oldest = state.ended.pop(0)
            del state.jobs[oldest]
            state.changed.jobs[oldest] = None


def nodes_of(record: JobRecord) -> tuple[str, ...]:
    """All nodes that a pinned job has slots on."""
    if record.pin is None:
        return ()
    return tuple(dict.fromkeys(record.pin.nodes(PoolKind.ROLLOUT) + record.pin.nodes(PoolKind.TRAINING)))


def describe_exit(exit_code: int | None) -> str:
    """How a process ended, with the likely cause of a signal."""
    if exit_code is None:
        return "lost its launcher; its exit code is not known"
    if exit_code >= 0:
        return f"exited with code {exit_code}"
    number = -exit_code
    name = signal.Signals(number).name if number in set(signal.Signals) else "unknown signal"
    return f"was ended by signal {number} ({name}{_LIKELY_CAUSES.get(name, '')})"


def _unpin(record: JobRecord) -> None:
    record.pin, record.group, record.ending, record.ranks = None, None, None, {}
