"""What a job has saved, and when it is expected to save again: it can leave its place only where nothing is lost.

Jobs save when they like: each iteration, every tenth, or never though they name a directory. A job is taken to save
as often as it did last. Of a move it waits for its next save, and one boundary more, since a save may be heard of late;
but not for long, as plans are made for the present. A job a step ahead does not wait: it runs dry for each boundary.
"""

from weaverl.domain.events import CheckpointWritten
from weaverl.scheduling.state import JobRecord, rank_key

FIRST_SAVES = 2
"""After so many iterations of an attempt every rank that saves checkpoints has saved one."""
MOST_AWAITED = 10
"""Iterations: nobody is asked to leave whose next save is expected later."""
MOST_UNSAVED = 3
"""An attempt that was asked to leave so often, and had not saved, is not asked again."""


def observe(record: JobRecord, event: CheckpointWritten) -> None:
    """Fold that a rank could go on after an iteration. An attempt begins with what was saved before it."""
    rank = rank_key(event.rank)
    if record.started_at is not None:
        before = record.checkpoints.get(rank, record.first_iteration - 1)
        record.saves_every = max(event.iteration - before, 1)
    record.checkpoints[rank] = event.iteration


def is_known(record: JobRecord, iteration: int) -> bool:
    """Whether every rank that saves checkpoints has had the time to save one before this iteration."""
    return iteration >= record.first_iteration + FIRST_SAVES


def is_saved(record: JobRecord, iteration: int) -> bool:
    """Whether nothing is lost if the attempt ends before this iteration."""
    return is_known(record, iteration) and set(record.checkpoints.values()) == {iteration - 1}


def expect(record: JobRecord) -> None:
    """Fold that the job is to leave, or could have left and waits for others: until when it has the time to save."""
    first = max(record.iterations_done, record.first_iteration + FIRST_SAVES - 1)
    record.leaves_by = first + min(max(_until_save(record), 1), MOST_AWAITED) + 1


def waits(record: JobRecord, iteration: int) -> bool:
    """Whether a job that is to leave, and has not saved what is before this iteration, may still save in time."""
    return not record.spec.staleness and iteration < record.leaves_by


def may_save(record: JobRecord) -> bool:
    """Whether the job saves, as far as is known: it is new where it is, or is not overdue and saves again soon."""
    if record.unsaved >= MOST_UNSAVED:
        return False
    if not record.checkpoints:
        return not is_known(record, record.iterations_done)
    return 0 <= _until_save(record) <= MOST_AWAITED


def _until_save(record: JobRecord) -> int:
    """Iterations until the next save is expected; below 0 it is overdue, and 0 where none is known."""
    if not record.checkpoints:
        return 0
    return min(record.checkpoints.values()) + record.saves_every - (record.iterations_done - 1)
