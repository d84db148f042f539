"""Which running jobs may be moved: those that keep checkpoints, and not too often."""

from weaverl.domain.jobs import JobState
from weaverl.scheduling.saving import MOST_UNSAVED, may_save
from weaverl.scheduling.state import ClusterState, JobRecord

MOST_RESCUES = 2
"""Moves of a job for the sake of a promise, on top of those that save something; the last is kept for its own."""


def refusal(state: ClusterState, job: str, attempt: int, *, rescues: bool = False) -> str:
    """Why a job cannot be moved now, or an empty string."""
    record, parameters = state.jobs.get(job), state.parameters
    if record is None or record.attempt != attempt or record.state is not JobState.RUNNING:
        return f"attempt {attempt} of {job} does not run"
    if record.spec.checkpoint_directory is None:
        return f"{job} keeps no checkpoints, so that it cannot be moved"
    if record.profile is None or record.started_at is None:
        return f"{job} has no profile yet"
    if job in state.moves and not (rescues and not state.moves[job].is_certain):
        return f"{job} is to move already"
    if record.moves >= most_moves_of(state, record) + (MOST_RESCUES if rescues and parameters.max_moves_per_job else 0):
        return f"{job} was moved {record.moves} times already"
    if record.unsaved >= MOST_UNSAVED:
        return f"{job} was to leave {record.unsaved} times and had not saved"
    if state.now - record.started_at < parameters.least_stay_us and not rescues:
        return f"{job} has not been where it is for long"
    return ""


def may_leave(state: ClusterState, record: JobRecord, *, rescues: bool = False) -> bool:
    """Whether a job may be moved, and saves soon: a move that it cannot make stands in the way of others."""
    return may_save(record) and not refusal(state, record.spec.name, record.attempt, rescues=rescues)


def most_moves_of(state: ClusterState, record: JobRecord) -> int:
    """How many moves of a job may save something by now: a long one sees more come and go than a short one."""
    parameters = state.parameters
    if not parameters.max_moves_per_job:
        return 0
    return parameters.max_moves_per_job + record.progress.elapsed_us(state.now) // parameters.another_move_us


def has_one_move(state: ClusterState, record: JobRecord) -> bool:
    """Whether a job may move once more, and only to save a promise."""
    return record.moves + 1 == most_moves_of(state, record) + MOST_RESCUES
