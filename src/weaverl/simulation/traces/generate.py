"""The trace generator: synthetic RL jobs with the arrivals and lengths of a preset, the same for a seed everywhere."""

from enum import StrEnum

import msgspec

from weaverl.errors import UsageError
from weaverl.simulation.costs import Costs
from weaverl.simulation.traces.draws import Draws
from weaverl.simulation.traces.profiles import draw_job, solo_iteration_seconds
from weaverl.simulation.traces.records import Trace, TraceJob

_HOUR = 3600.0
_DECIMALS = 6
# Streams of a seed: jobs, arrivals, lengths and drift do not disturb each other.
_JOBS, _ARRIVALS, _LENGTHS, _DRIFT = range(4)

PRODUCTION_JOBS = 200
PRODUCTION_HOURS = 336.0
PRODUCTION_MEAN_HOURS = 27.9
PRODUCTION_SIGMA = 0.47

PHILLY_JOBS = 300
PHILLY_UNCUT_MEDIAN_HOURS = 45.0
PHILLY_SIGMA = 2.3
PHILLY_SHORTEST_HOURS = 0.5
PHILLY_LONGEST_HOURS = 168.0
PHILLY_GAP_HOURS = 0.83
PHILLY_GAP_SHAPE = 0.55

INCREASING = (1.1, 1.6)
DECREASING = (0.5, 0.9)


class Preset(StrEnum):
    """Whose arrivals and lengths: the published production trace's, or the public Philly trace's."""

    PRODUCTION = "production"
    PHILLY_LIKE = "philly-like"


class Drift(StrEnum):
    """How the jobs' rollouts change over their lives."""

    NONE = "none"
    INCREASING = "increasing"
    DECREASING = "decreasing"
    MIXED = "mixed"


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What to generate. ``iterations`` gives every job that length, and ``hours`` the time over which jobs arrive.

    Without ``hours`` as many jobs run on average as in the preset: fewer seconds of work arrive in fewer hours.
    """

    preset: Preset
    seed: int
    num_jobs: int | None = None
    iterations: int | None = None
    hours: float | None = None
    drift: Drift = Drift.NONE


def generate(order: Order, costs: Costs) -> Trace:
    """A synthetic trace; with drift it has the same jobs as without.

    Raises:
        UsageError: less than one job or iteration, or no time for them to arrive in.
    """
    _check(order)
    is_production = order.preset == Preset.PRODUCTION
    num_jobs = order.num_jobs or (PRODUCTION_JOBS if is_production else PHILLY_JOBS)
    draws, lengths = Draws(order.seed, _JOBS), Draws(order.seed, _LENGTHS)
    hours = (_production_hours if is_production else _philly_hours)(lengths, num_jobs)
    jobs = [with_length(draw_job(draws, costs), one * _HOUR, costs, order.iterations) for one in hours]
    arrivals = _arrivals(order, jobs, sum(hours), costs)
    drift = Draws(order.seed, _DRIFT)
    return Trace(
        name=_name(order, num_jobs),
        jobs=tuple(
            msgspec.structs.replace(
                job, job_id=f"j{i:04d}", arrival_seconds=arrivals[i], rollout_growth=_growth(drift, order.drift)
            )
            for i, job in enumerate(jobs)
        ),
    )


def with_length(job: TraceJob, seconds: float, costs: Costs, iterations: int | None = None) -> TraceJob:
    """The job with as many iterations as it does alone in that time, at least one; or with ``iterations``."""
    fitting = max(1, round(seconds / solo_iteration_seconds(job, costs)))
    return msgspec.structs.replace(job, iterations=iterations or fitting)


def _check(order: Order) -> None:
    if order.num_jobs is not None and order.num_jobs < 1:
        raise UsageError(f"--jobs is {order.num_jobs}: a trace has at least 1")
    if order.iterations is not None and order.iterations < 1:
        raise UsageError(f"--iterations is {order.iterations}: a job has at least 1")
    if order.hours is not None and not 0 < order.hours < 1e6:
        raise UsageError(f"--hours is {order.hours:g}: give a time over 0 in which the jobs arrive")
    if order.seed < 0:
        raise UsageError(f"--seed is {order.seed}: give 0 or more")


def _production_hours(draws: Draws, num_jobs: int) -> list[float]:
    """Lognormal lengths, scaled so that their mean is the published one."""
    hours = [draws.lognormal(PRODUCTION_MEAN_HOURS, PRODUCTION_SIGMA) for _ in range(num_jobs)]
    scale = PRODUCTION_MEAN_HOURS * num_jobs / sum(hours)
    return [one * scale for one in hours]


def _philly_hours(draws: Draws, num_jobs: int) -> list[float]:
    return [
        draws.truncated_lognormal(PHILLY_UNCUT_MEDIAN_HOURS, PHILLY_SIGMA, PHILLY_SHORTEST_HOURS, PHILLY_LONGEST_HOURS)
        for _ in range(num_jobs)
    ]


def _arrivals(order: Order, jobs: list[TraceJob], preset_hours: float, costs: Costs) -> list[float]:
    """Sorted arrivals in seconds: independent and uniform in production, in bursts on Philly."""
    draws = Draws(order.seed, _ARRIVALS)
    if order.preset == Preset.PRODUCTION:
        hours = PRODUCTION_HOURS * len(jobs) / PRODUCTION_JOBS
        places = sorted(draws.unit() for _ in jobs)
    else:
        hours = PHILLY_GAP_HOURS * len(jobs)
        places = _bursts(draws, len(jobs))
    if order.iterations is not None:
        work = sum(job.iterations * solo_iteration_seconds(job, costs) for job in jobs)
        hours *= work / (preset_hours * _HOUR)
    return [round(place * (order.hours or hours) * _HOUR, _DECIMALS) for place in places]


def _bursts(draws: Draws, num_jobs: int) -> list[float]:
    """Places in [0, 1] with Weibull gaps: mean 1 / num_jobs."""
    place, places = 0.0, []
    for _ in range(num_jobs):
        place += draws.weibull(1.0, PHILLY_GAP_SHAPE)
        places.append(place)
    return [one / max(place, num_jobs) for one in places]


def _growth(draws: Draws, drift: Drift) -> float:
    """A job's growth; all draws are made, so that `mixed` mixes the other two."""
    grows, up, down = draws.unit() < 0.5, draws.uniform(*INCREASING), draws.uniform(*DECREASING)
    growth = {
        Drift.NONE: 1.0,
        Drift.INCREASING: up,
        Drift.DECREASING: down,
        Drift.MIXED: up if grows else down,
    }[drift]
    return round(growth, _DECIMALS)


def _name(order: Order, num_jobs: int) -> str:
    drift = "" if order.drift == Drift.NONE else f"-{order.drift}"
    return f"{order.preset}-{num_jobs}{drift}-s{order.seed}"
