"""Deadlines as bounds on the slowdown, and what a job that was paused may still lose.

A deadline counts from the job's submission. At admission it becomes a bound over the job's life, with which the job
ends in time: what is left until then, the cold start taken off, over the solo time of the work that is left. Where
that is less than the SLO it is the job's promise. A deadline that cannot be met any more binds nobody: then the SLO
alone counts.
"""

import msgspec

from weaverl.domain.jobs import JobSpec
from weaverl.domain.sharing import Deadlines
from weaverl.scheduling.progress import mean_us
from weaverl.scheduling.state import ClusterState, JobRecord


def impossible_by_deadline(deadlines: Deadlines, spec: JobSpec) -> str:
    """Why a job could not end by its deadline if it started at once and alone, or an empty string."""
    if spec.deadline_seconds is None or spec.profile is None or spec.iterations is None:
        return ""
    solo = spec.iterations * mean_us(spec.profile) / 1e6
    needs = solo + deadlines.first_start_seconds
    if needs <= spec.deadline_seconds:
        return ""
    return (
        f"cannot end by its deadline of {_spoken(spec.deadline_seconds)} even alone: {spec.iterations} iterations "
        f"take {_spoken(solo)}, the first start {_spoken(deadlines.first_start_seconds)}: give it {_spoken(needs)}, "
        f"or fewer iterations"
    )


def ends_by(record: JobRecord) -> int | None:
    """The time of the job's deadline."""
    seconds = record.spec.deadline_seconds
    return None if seconds is None else record.submitted_at + round(seconds * 1e6)


def latest_start(state: ClusterState, record: JobRecord) -> int | None:
    """When the job has to start, alone, to end by its deadline; None if it has none, or that is unknown, or past."""
    deadline, left_us = ends_by(record), _left_us(record)
    if state.cluster.sharing is None or state.cluster.sharing.deadlines is None or deadline is None or left_us is None:
        return None
    latest = deadline - left_us - _start_us(state.cluster.sharing.deadlines, record)
    return None if latest < state.now else latest


def bound_of(state: ClusterState, record: JobRecord) -> float | None:
    """The slowdown over its life with which a job that starts now meets its deadline, if that is less than its SLO."""
    deadline, left_us = ends_by(record), _left_us(record)
    if deadline is None or left_us is None or latest_start(state, record) is None:
        return None
    assert state.cluster.sharing is not None and state.cluster.sharing.deadlines is not None
    progress, wall_us = record.progress, deadline - state.now
    if record.started_at is None and not progress.iterations:  # only the first start is not in the slowdown
        wall_us -= _start_us(state.cluster.sharing.deadlines, record)
    bound = (progress.elapsed_us(state.now) + wall_us) / (progress.solo_us + left_us)
    return bound if bound < record.spec.slo else None


def promised_spec(state: ClusterState, record: JobRecord, spec: JobSpec) -> JobSpec:
    """The job as it is placed from the queue: with the slowdown that it may have from here on.

    Policy ``weave`` judges by the whole life, so there only the cold start that is still to come is taken off.
    """
    slo = bound_of(state, record) or record.spec.slo
    left_us, progress = _left_us(record), record.progress
    if left_us is None or not progress.solo_us:
        return spec if slo == spec.slo else msgspec.structs.replace(spec, slo=slo)
    whole_us = progress.solo_us + left_us
    if state.parameters.by_slack:
        slo -= record.start_us / whole_us
    else:
        slo = min(slo, (slo * whole_us - progress.elapsed_us(state.now) - record.start_us) / left_us)
    return msgspec.structs.replace(spec, slo=slo) if slo >= 1.0 else spec


def could_pause(state: ClusterState, record: JobRecord) -> bool:
    """Whether a running job's promises can be kept if it is stopped at the end of its iteration and starts anew."""
    assert record.profile is not None
    left_us = _left_us(record)
    if left_us is None:
        return True
    progress, iteration_us = record.progress, mean_us(record.profile)
    lost_us = record.start_us + iteration_us
    if record.slo * (progress.solo_us + left_us) < progress.elapsed_us(state.now) + lost_us + left_us:
        return False
    deadline = ends_by(record)
    is_bound = state.cluster.sharing is not None and state.cluster.sharing.deadlines is not None
    if deadline is None or not is_bound or deadline < state.now + left_us:
        return True
    return deadline >= state.now + lost_us + left_us


def _left_us(record: JobRecord) -> int | None:
    """Solo time of the work that is left; None where nobody knows."""
    if record.profile is None or record.spec.iterations is None:
        return None
    return max(record.spec.iterations - record.iterations_done, 1) * mean_us(record.profile)


def _start_us(deadlines: Deadlines, record: JobRecord) -> int:
    return record.start_us or round(deadlines.first_start_seconds * 1e6)


def _spoken(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
