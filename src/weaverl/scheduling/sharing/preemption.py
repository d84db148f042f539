"""Running jobs that are paused so that a waiting one of a higher priority can start.

The rules, in full:

- Only for the first in the queue, if nothing fits it and its own priority (age and urgency do not count) is at least
  ``from_priority``; and only jobs of a lower priority make way.
- A job is paused at the end of an iteration, through its checkpoint: a move to the queue (see ``moves``). Nothing that
  was finished is run again and no retry is used. It waits in the queue as others do and starts anew where it fits.
- Nobody is paused who does not save, as far as is known, or not soon (see ``saving``), was paused ``most_per_job``
  times, has not stayed ``least_stay``, is about to end, or could not keep its promise or deadline after one more cold
  start.
- One job if one will do, the one of the lowest priority whose cold start costs the least; else as many as are needed,
  and none without which the waiting job would fit too.
- Before each leaves it is asked once more whether that is still so. Until all have left, nobody behind the waiting job
  gets what they leave.
- Who has not saved by then stays, and others are asked. So does who hangs, as far as is known (see ``progress.hangs``):
  it would have the others go on, and the waiting job wait, for ever. Once the waiting job waits no more all stay.
"""

from collections.abc import Iterable, Iterator

from weaverl.domain.commands import AnyCommand, DropMove, PlanMove
from weaverl.domain.groups import Move, Pin
from weaverl.domain.jobs import JobState
from weaverl.domain.sharing import Preemption, Sharing
from weaverl.scheduling import lifecycle
from weaverl.scheduling.index import index_of, trial_of
from weaverl.scheduling.placement import asked_spec, change, choose, fold_group, without_job
from weaverl.scheduling.progress import hangs, iterations_left
from weaverl.scheduling.saving import may_save
from weaverl.scheduling.sharing.order import places
from weaverl.scheduling.sharing.promises import could_pause
from weaverl.scheduling.state import ClusterState, JobRecord
from weaverl.scheduling.trial_moves import cost_of

NOWHERE = Pin((), ())
MOST_LOOKED_AT = 64
"""Jobs that may make way for one: those of the lowest priority whose cold starts cost the least."""
_LEAST_ITERATIONS = 3
"""A job with fewer left has ended before anybody could gain by its pause."""


def make_way(state: ClusterState, sharing: Sharing) -> Iterator[AnyCommand]:
    """Have jobs paused for the first in the queue, unless it fits soon anyway because others make way already."""
    yield from _let_stay(state)
    bounds = sharing.preemption
    queue = places(state, sharing) if bounds is not None else []
    if bounds is None or not queue or any(move.paused_for for move in state.moves.values()):
        return
    first = queue[0].record
    if first.spec.priority < bounds.from_priority:
        return
    for record in _victims(state, bounds, first):
        name = record.spec.name
        move = Move(job=name, attempt=record.attempt, group="", pin=NOWHERE, paused_for=first.spec.name)
        yield PlanMove(job=name, move=move)


def _let_stay(state: ClusterState) -> Iterator[AnyCommand]:
    """Those stay that were to make way for a job that does not wait any more, or hang."""
    for move in list(state.moves.values()):
        if not move.paused_for or state.jobs[move.job].ending is not None:
            continue
        waiting = state.jobs.get(move.paused_for)
        if waiting is None or waiting.state is not JobState.QUEUED:
            reason = f"{move.paused_for} does not wait any more"
            yield DropMove(job=move.job, attempt=move.attempt, reason=reason)
        elif hangs(state.jobs[move.job], state.now):
            reason = "it has not come to the end of an iteration for long"
            yield DropMove(job=move.job, attempt=move.attempt, reason=reason)


def leave(state: ClusterState, record: JobRecord, move: Move, iteration: int) -> Iterator[AnyCommand]:
    """A job that is to make way is at the end of an iteration: it leaves, if that still helps."""
    waiting = state.jobs.get(move.paused_for)
    if waiting is None or waiting.state is not JobState.QUEUED:
        reason = f"{move.paused_for} does not wait any more"
    elif _fits(state, waiting):
        reason = f"{move.paused_for} fits without"
    elif not _fits(_without(state, _leaving(state, move.paused_for)), waiting):
        reason = f"{move.paused_for} would not fit any more"
    else:
        paused = f"paused after iteration {iteration}, so that {move.paused_for} can start"
        yield from lifecycle.end(record, JobState.QUEUED, paused)
        return
    yield DropMove(job=move.job, attempt=move.attempt, reason=reason)


def _victims(state: ClusterState, bounds: Preemption, first: JobRecord) -> list[JobRecord]:
    """Who makes way; nobody if that would not help."""
    able = [record for record in state.jobs.values() if _may_pause(state, bounds, first, record)]
    able = sorted(able, key=lambda one: (one.spec.priority, one.unsaved, cost_of(state, one), one.spec.name))
    able = able[:MOST_LOOKED_AT]
    seen, index = (first.spec.name, tuple(record.spec.name for record in able)), index_of(state)
    if not able or index.no_way == (index.version, *seen):
        return []
    if not _fits(_without(state, able), first):
        index.no_way = (index.version, *seen)
        return []
    for record in able:
        if _fits(_without(state, [record]), first):
            return [record]
    return _needed(state, able, first)


def _needed(state: ClusterState, able: list[JobRecord], first: JobRecord) -> list[JobRecord]:
    """The first of the jobs whose places together will do, without those that are not needed, the dearest first."""
    number = next(number for number in range(2, len(able) + 1) if _fits(_without(state, able[:number]), first))
    taken = able[:number]
    for record in reversed(able[:number]):
        rest = [one for one in taken if one is not record]
        if _fits(_without(state, rest), first):
            taken = rest
    return taken


def _may_pause(state: ClusterState, bounds: Preemption, first: JobRecord, record: JobRecord) -> bool:
    move = state.moves.get(record.spec.name)
    if record.state is not JobState.RUNNING or record.ending is not None or (move is not None and move.is_certain):
        return False
    if record.spec.priority >= first.spec.priority or record.spec.checkpoint_directory is None:
        return False
    if record.profile is None or record.started_at is None or record.preemptions >= bounds.most_per_job:
        return False
    if not may_save(record) or hangs(record, state.now):
        return False
    left = iterations_left(record)
    has_stayed = state.now - record.started_at >= bounds.least_stay_seconds * 1e6
    return has_stayed and (left is None or left >= _LEAST_ITERATIONS) and could_pause(state, record)


def _leaving(state: ClusterState, waiting: str) -> list[JobRecord]:
    """All who make way for a job and have yet to leave."""
    names = (move.job for move in state.moves.values() if move.paused_for == waiting)
    return [state.jobs[name] for name in names]


def _fits(state: ClusterState, waiting: JobRecord) -> bool:
    return choose(state, asked_spec(state, waiting)).chosen is not None


def _without(state: ClusterState, leaving: Iterable[JobRecord]) -> ClusterState:
    """A state to try things on, in which jobs have left their places."""
    trial = trial_of(state)
    for record in leaving:
        change(trial, record.spec.name, pin=None, group=None, ending=None)
        fold_group(trial, without_job(trial, record).group)
    return trial
