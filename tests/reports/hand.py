"""Intervals by hand, in seconds."""

from weaverl.domain.cluster import Slot
from weaverl.domain.jobs import PhaseKind
from weaverl.domain.timeline import Interval, Timeline
from weaverl.reports.timeline_file import in_order

SECOND = 1_000_000
HOME = {"rollout": (Slot("r0", 0),), "training": (Slot("t0", 0),), "sync": (), "loading": (Slot("r0", 0),)}


def interval(
    job: str,
    phase: str,
    iteration: int,
    start: float,
    end: float,
    *,
    requested: float | None = None,
    granted: float | None = None,
    released: float | None = None,
    slots: tuple[Slot, ...] | None = None,
    attempt: int = 1,
    **more: object,
) -> Interval:
    """A phase with its body from ``start`` to ``end``; by default nothing is waited for or moved."""
    granted = start if granted is None else granted
    return Interval(
        job=job,
        attempt=attempt,
        phase=PhaseKind(phase),
        iteration=iteration,
        slots=HOME[phase] if slots is None else slots,
        requested_at=round((granted if requested is None else requested) * SECOND),
        granted_at=round(granted * SECOND),
        started_at=round(start * SECOND),
        ended_at=round(end * SECOND),
        released_at=round((end if released is None else released) * SECOND),
        **more,
    )


def timeline(*intervals: Interval) -> Timeline:
    return in_order(intervals)
