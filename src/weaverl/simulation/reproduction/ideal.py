"""What the jobs of a run would have cost with the best regrouping at every moment, at no cost of moving."""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from math import nan

import msgspec
from msgspec.structs import replace

from weaverl.simulation.reproduction.records import CostStep, Result
from weaverl.simulation.traces.records import Trace, TraceJob

Planner = Callable[[Sequence[TraceJob]], float | None]
"""Dollars an hour of the best grouping of some jobs; None where there are too many to tell."""


class OverIdeal(msgspec.Struct, frozen=True, kw_only=True):
    """Sampled dollars an hour of a run and of ideal regrouping, summed over the samples that could be planned."""

    usd: float
    ideal_usd: float
    samples: int
    too_large: int
    most_jobs: int

    @property
    def ratio(self) -> float:
        """Ours over the ideal; not a number where no moment could be planned."""
        return self.usd / self.ideal_usd if self.ideal_usd else nan


def over_ideal(result: Result, trace: Trace, planner: Planner, every_hours: float) -> OverIdeal:
    """Compare a run with the ideal each ``every_hours``, jobs at the durations that they have drifted to."""
    jobs = {job.job_id: job for job in trace.jobs}
    starts = [step.hours for step in result.steps]
    usd = ideal = 0.0
    samples = too_large = most = 0
    for count in range(int(result.outcome.hours / every_hours)):
        at = (count + 0.5) * every_hours
        active = _active(result, jobs, at)
        planned = planner(active) if active else 0.0
        if planned is None:
            too_large += 1
        elif active:
            usd += _paid(result.steps[bisect_right(starts, at) - 1])
            ideal += planned
            samples += 1
            most = max(most, len(active))
    return OverIdeal(usd=usd, ideal_usd=ideal, samples=samples, too_large=too_large, most_jobs=most)


def _paid(step: CostStep) -> float:
    return step.rollout_usd_per_hour + step.training_usd_per_hour


def _active(result: Result, jobs: Mapping[str, TraceJob], at: float) -> list[TraceJob]:
    """Jobs that run at a moment, with their rollouts as long as they have become."""
    found = []
    for life in result.lives:
        ended = result.outcome.hours if life.ended_hours is None else life.ended_hours
        if life.began_hours <= at < ended:
            job = jobs[life.job]
            growth = 1 + (job.rollout_growth - 1) * (at - life.began_hours) / (ended - life.began_hours)
            found.append(
                replace(
                    job,
                    rollout_mean_seconds=job.rollout_mean_seconds * growth,
                    rollout_max_seconds=job.rollout_max_seconds * growth,
                    rollout_growth=1.0,
                )
            )
    return found
