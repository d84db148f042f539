"""Public arrivals as RL jobs: real arrivals and durations of a window, with synthetic profiles."""

from collections import Counter

import msgspec

from weaverl.errors import UsageError
from weaverl.simulation.costs import Costs
from weaverl.simulation.traces.draws import Draws
from weaverl.simulation.traces.generate import with_length
from weaverl.simulation.traces.profiles import draw_job
from weaverl.simulation.traces.records import Arrival, Arrivals, Trace

_HOUR = 3600.0
_DECIMALS = 6
_JOBS, _WINDOW, _CHOICE = range(3)


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs of a public trace are taken. ``start_hours``: None lets the seed choose."""

    start_hours: float | None = None
    hours: float = 580.0
    most_jobs: int = 300
    min_gpus: float = 0.0
    shortest_hours: float = 0.5
    longest_hours: float = 168.0


def with_profiles(arrivals: Arrivals, window: Window, seed: int, costs: Costs) -> Trace:
    """The window's jobs, each with a synthetic profile and as many iterations as its duration holds alone.

    A job's GPU count is its profile's: the public traces' jobs are not RL jobs. What is left out is counted.

    Raises:
        UsageError: no job of the trace is in the window.
    """
    start = _start(arrivals, window, seed)
    reasons = Counter(arrivals.skipped)
    inside = [one for one in arrivals.arrivals if _is_taken(one, window, start, reasons)]
    if not inside:
        raise UsageError(
            f"{arrivals.name} has no job from hour {start / _HOUR:g} on for {window.hours:g} h that would be taken "
            f"({_counted(reasons)}): widen the window"
        )
    chosen = _thinned(inside, window, seed, reasons)
    draws = Draws(seed, _JOBS)
    return Trace(
        name=f"{arrivals.name}-{len(chosen)}-s{seed}",
        jobs=tuple(
            msgspec.structs.replace(
                with_length(draw_job(draws, costs), one.duration_seconds, costs),
                job_id=one.job_id,
                arrival_seconds=round(one.submit_seconds - start, _DECIMALS),
            )
            for one in chosen
        ),
        skipped=dict(reasons),
    )


def _start(arrivals: Arrivals, window: Window, seed: int) -> float:
    """Second of the window's start: the one asked for, or anywhere that leaves the window inside the trace."""
    if window.start_hours is not None:
        return window.start_hours * _HOUR
    span = arrivals.arrivals[-1].submit_seconds if arrivals.arrivals else 0.0
    return Draws(seed, _WINDOW).uniform(0.0, max(span - window.hours * _HOUR, 0.0))


def _is_taken(one: Arrival, window: Window, start: float, reasons: Counter[str]) -> bool:
    reason = _left_out(one, window, start)
    if reason is not None:
        reasons[reason] += 1
    return reason is None


def _left_out(one: Arrival, window: Window, start: float) -> str | None:
    if not start <= one.submit_seconds < start + window.hours * _HOUR:
        return "outside the window"
    if one.gpus < window.min_gpus:
        return f"under {window.min_gpus:g} GPUs"
    if one.duration_seconds < window.shortest_hours * _HOUR:
        return f"shorter than {window.shortest_hours:g} h"
    if one.duration_seconds > window.longest_hours * _HOUR:
        return f"longer than {window.longest_hours:g} h"
    return None


def _thinned(inside: list[Arrival], window: Window, seed: int, reasons: Counter[str]) -> list[Arrival]:
    """At most so many jobs, any of them as likely, in their order."""
    surplus = len(inside) - window.most_jobs
    if surplus <= 0:
        return inside
    reasons[f"over {window.most_jobs} jobs, by lot"] += surplus
    draws = Draws(seed, _CHOICE)
    lots = [(draws.unit(), index) for index in range(len(inside))]
    return [inside[index] for index in sorted(index for _, index in sorted(lots)[: window.most_jobs])]


def _counted(reasons: Counter[str]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())
