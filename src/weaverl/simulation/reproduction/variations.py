"""Traces made from traces: shorter, with other phases or promises, all jobs at once."""

from collections.abc import Callable

from msgspec.structs import replace

from weaverl.simulation.costs import Costs
from weaverl.simulation.fluid import solo_job_seconds
from weaverl.simulation.traces.records import Trace, TraceJob


def shortened(trace: Trace, factor: float) -> Trace:
    """Iterations and arrivals divided alike, so that about as many jobs run side by side as before."""

    def shorter(job: TraceJob) -> TraceJob:
        return replace(
            job,
            iterations=max(round(job.iterations / factor), 1),
            arrival_seconds=job.arrival_seconds / factor,
        )

    return _changed(trace, f"{trace.name}/{factor:g}", shorter)


def first_jobs(trace: Trace, num_jobs: int) -> Trace:
    """The jobs that arrive first."""
    return Trace(name=f"{trace.name}, {num_jobs} jobs", jobs=trace.jobs[:num_jobs])


def side_by_side(trace: Trace, num_jobs: int, hours: float, costs: Costs) -> Trace:
    """The first jobs of a trace, a minute apart, each as long as ``hours`` alone: they all run at once."""

    def as_long(place: int, job: TraceJob) -> TraceJob:
        start = solo_job_seconds(replace(job, iterations=0), costs)
        iteration = solo_job_seconds(replace(job, iterations=1), costs) - start
        return replace(job, arrival_seconds=60.0 * place, iterations=max(round((hours * 3600 - start) / iteration), 1))

    jobs = tuple(as_long(place, job) for place, job in enumerate(trace.jobs[:num_jobs]))
    return Trace(name=f"{trace.name}, {num_jobs} at once", jobs=jobs)


def with_phase_ratio(trace: Trace, ratio: float) -> Trace:
    """Mean rollout over training of every job set to ``ratio``, their sum kept."""

    def shifted(job: TraceJob) -> TraceJob:
        total = job.rollout_mean_seconds + job.training_seconds
        scale = total * ratio / (1 + ratio) / job.rollout_mean_seconds
        return replace(
            job,
            rollout_mean_seconds=job.rollout_mean_seconds * scale,
            rollout_max_seconds=job.rollout_max_seconds * scale,
            training_seconds=total / (1 + ratio),
        )

    return _changed(trace, f"{trace.name}, rollout:training {ratio:g}", shifted)


def with_slo(trace: Trace, slo: float) -> Trace:
    """The same promise to every job."""
    return _changed(trace, f"{trace.name}, SLO {slo:g}", lambda job: replace(job, slo=slo))


def with_growth(trace: Trace, factor: float) -> Trace:
    """The same drift to every job: rollouts grow to ``factor`` over its life."""
    return _changed(trace, f"{trace.name}, drift {factor:g}", lambda job: replace(job, rollout_growth=factor))


def every_nth(trace: Trace, step: int) -> Trace:
    """Each ``step``-th job, arrivals as they were: fewer jobs side by side."""
    return Trace(name=f"{trace.name}, one job in {step}", jobs=trace.jobs[::step])


def with_short_starts(costs: Costs, factor: float) -> Costs:
    """Cold starts for jobs that are that much shorter, so that they weigh as before."""
    at_7b, at_70b = costs.cold_start_seconds
    return replace(costs, cold_start_seconds=(at_7b / factor, at_70b / factor))


def with_switch_times(costs: Costs, factor: float) -> Costs:
    """Warm starts ``factor`` times as long."""

    def scaled(seconds: tuple[float, float]) -> tuple[float, float]:
        return (seconds[0] * factor, seconds[1] * factor)

    return replace(
        costs,
        rollout_switch_seconds=scaled(costs.rollout_switch_seconds),
        training_switch_seconds=scaled(costs.training_switch_seconds),
    )


def _changed(trace: Trace, name: str, change: Callable[[TraceJob], TraceJob]) -> Trace:
    return Trace(name=name, jobs=tuple(map(change, trace.jobs)), skipped=trace.skipped)
