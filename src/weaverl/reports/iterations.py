"""The iterations of one job: where their wall time went, and the slowdown that follows (section 2 of the design).

Times come in as microseconds and leave as seconds. A span is half-open, ``[start, end)``: what ends at a moment and
what starts at it do not overlap.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from weaverl.domain.jobs import PhaseKind
from weaverl.domain.timeline import Interval

SECOND = 1_000_000
WINDOW = 20

Span = tuple[int, int]


class Alone(NamedTuple):
    """Seconds that the phases of an iteration take undisturbed."""

    rollout: float
    training: float
    sync: float


class IterationTime(msgspec.Struct, frozen=True, kw_only=True):
    """Where the wall time of one iteration went. Seconds; ``other`` is outside of all phases and waits.

    Of a job whose rollouts run beside training: ``beside_seconds`` is the rollout that ran beside this one's, and
    ``begins`` says that it is the first, whose own rollout had nothing beside it. ``alone`` is there where it is known
    beforehand, as in a simulation, and is the solo time then.
    """

    iteration: int
    wall_seconds: float
    rollout_seconds: float
    training_seconds: float
    sync_seconds: float
    other_seconds: float
    beside_seconds: float | None = None
    begins: bool = False
    alone: Alone | None = None


def ratio(over: float, under: float) -> float | None:
    """A quotient; None if there is nothing to divide by."""
    return over / under if under > 0 else None


def union_length(spans: Iterable[Span]) -> int:
    """Length of the union: overlaps count once."""
    total, covered = 0, -(2**63)
    for start, end in sorted(spans):
        total += max(0, end - max(start, covered))
        covered = max(covered, end)
    return total


def iteration_times(intervals: Iterable[Interval], *, ahead: bool = False) -> tuple[IterationTime, ...]:
    """Wall times of one job's iterations, in order.

    An iteration lasts from the request of its rollout to the request of the next one, the last to the end of its
    last phase. What a later attempt repeats counts into the iteration that is repeated, as does the cold start before
    it; the time between two attempts (queueing) does not count. Where rollouts run beside training (``ahead``) it
    lasts from the request of its training, and the first one of an attempt from that of its rollout.
    """
    spans: dict[int, list[Span]] = defaultdict(list)
    last_run: dict[int, list[Interval]] = {}
    for number, attempt in enumerate(_by_attempt(intervals)):
        phases: dict[int, list[Interval]] = defaultdict(list)
        for interval in attempt:
            phases[interval.iteration].append(interval)
        cold_starts = [interval for interval in attempt if interval.phase is PhaseKind.LOADING]
        for iteration, span in _iteration_spans(attempt, cold=number > 0, ahead=ahead).items():
            spans[iteration].append(span)
            last_run[iteration] = attempt if ahead else phases[iteration] + cold_starts
    times = tuple(_iteration_time(iteration, spans[iteration], last_run[iteration]) for iteration in sorted(spans))
    return _paired(times) if ahead else times


def _paired(times: tuple[IterationTime, ...]) -> tuple[IterationTime, ...]:
    """Each iteration with the next one's rollout, which runs beside its training."""
    rollouts = {time.iteration: time.alone.rollout if time.alone else time.rollout_seconds for time in times}
    return tuple(
        msgspec.structs.replace(time, beside_seconds=rollouts.get(time.iteration + 1, 0.0), begins=place == 0)
        for place, time in enumerate(times)
    )


def slowdown(times: Sequence[IterationTime], rollout: float, training: float) -> float | None:
    """Wall time over solo time of the same iterations, given the interference of both phases."""
    return ratio(
        sum(time.wall_seconds for time in times),
        sum(solo_seconds(time, rollout, training) for time in times),
    )


def solo_seconds(time: IterationTime, rollout: float, training: float) -> float:
    """What the iteration would have taken alone: phases divided by interference, plus other; or as is known of it."""
    measured = Alone(time.rollout_seconds / rollout, time.training_seconds / training, time.sync_seconds)
    alone, other = (measured, time.other_seconds) if time.alone is None else (time.alone, 0.0)
    if time.beside_seconds is None:
        return sum(alone) + other
    first = alone.rollout if time.begins else 0.0
    return first + max(time.beside_seconds / rollout, alone.training + alone.sync) + other


def worst_window(times: Sequence[IterationTime], rollout: float, training: float) -> float | None:
    """The largest slowdown of 20 consecutive iterations; of all of them if there are fewer."""
    starts = range(max(1, len(times) - WINDOW + 1))
    found = [slowdown(times[start : start + WINDOW], rollout, training) for start in starts]
    return max((value for value in found if value is not None), default=None)


def _by_attempt(intervals: Iterable[Interval]) -> list[list[Interval]]:
    found: dict[int, list[Interval]] = defaultdict(list)
    for interval in intervals:
        found[interval.attempt].append(interval)
    return [found[attempt] for attempt in sorted(found)]


def _iteration_spans(attempt: list[Interval], *, cold: bool, ahead: bool) -> dict[int, Span]:
    """Start and end of each iteration of an attempt; with ``cold`` the first begins with the attempt."""
    starts: dict[int, int] = {}
    # Rollouts come last, so that their requests win over those of other phases.
    for interval in sorted(attempt, key=lambda one: (one.phase is PhaseKind.ROLLOUT, -one.requested_at)):
        if interval.phase is not PhaseKind.LOADING:
            starts[interval.iteration] = interval.requested_at
    if ahead and starts:
        first = min(starts)
        trained = {one.iteration: one.requested_at for one in attempt if one.phase is PhaseKind.TRAINING}
        starts = trained | {first: starts[first]}
    order = sorted(starts, key=lambda iteration: starts[iteration])
    if not order:
        return {}
    if cold:
        starts[order[0]] = min(interval.requested_at for interval in attempt)
    edges = [*(starts[iteration] for iteration in order), max(interval.ended_at for interval in attempt)]
    return {iteration: (edges[place], edges[place + 1]) for place, iteration in enumerate(order)}


def _iteration_time(iteration: int, spans: list[Span], intervals: list[Interval]) -> IterationTime:
    """``spans``: one an attempt; phases are counted in the last one, and ``intervals`` are its own."""
    start, end = spans[-1]
    accounted = union_length(
        (max(start, interval.requested_at), min(end, max(interval.ended_at, interval.released_at)))
        for interval in intervals
    )

    def body(phase: PhaseKind) -> float:
        own = (one for one in intervals if one.phase is phase and one.iteration == iteration)
        return union_length((one.started_at, one.ended_at) for one in own) / SECOND

    return IterationTime(
        iteration=iteration,
        wall_seconds=sum(end - start for start, end in spans) / SECOND,
        rollout_seconds=body(PhaseKind.ROLLOUT),
        training_seconds=body(PhaseKind.TRAINING),
        sync_seconds=body(PhaseKind.SYNC),
        other_seconds=(end - start - accounted) / SECOND,
        alone=_alone([one for one in intervals if one.iteration == iteration]),
    )


def _alone(intervals: Sequence[Interval]) -> Alone | None:
    """What the phases of an iteration take undisturbed, where intervals say so; parts of one phase all say the same."""
    known = {one.phase: one.solo_us / SECOND for one in intervals if one.solo_us}
    if not known:
        return None
    return Alone(*(known.get(phase, 0.0) for phase in (PhaseKind.ROLLOUT, PhaseKind.TRAINING, PhaseKind.SYNC)))
