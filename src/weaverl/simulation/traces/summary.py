"""What a trace holds, in figures that a person wants before simulating it."""

from collections import Counter

import msgspec

from weaverl.simulation.costs import Costs
from weaverl.simulation.fluid import bubble_free_usd, colocated_usd, solo_job_seconds, solo_usd
from weaverl.simulation.traces.records import Arrivals, Trace, TraceJob

_HOUR = 3600.0


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of a trace; dollars and hours are the fluid model's.

    ``arrival_hours`` is from the first arrival to the last, ``hours`` to the end of the last job, each alone.
    ``gpus`` counts jobs by ``rollout+training`` GPUs. The bound is that of a cluster without bubbles.
    """

    name: str
    rows: int
    jobs: int
    skipped: dict[str, int]
    tenants: int
    arrival_hours: float
    hours: float
    mean_job_hours: float
    iterations: int
    gpus: dict[str, int]
    models: dict[str, int]
    mean_slo: float
    drifting_jobs: int
    solo_usd: float
    solo_usd_per_hour: float
    colocated_usd: float
    colocated_usd_per_hour: float
    bound_usd_without_tail: float
    bound_usd_with_tail: float


class ArrivalsSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of a public trace. ``origin`` is its second 0 on its own clock."""

    name: str
    rows: int
    jobs: int
    skipped: dict[str, int]
    tenants: int
    origin: str
    arrival_hours: float
    gpu_hours: float
    mean_job_hours: float
    gpus: dict[str, int]
    warnings: tuple[str, ...]


def summarize_arrivals(arrivals: Arrivals) -> ArrivalsSummary:
    """The figures of a public trace."""
    jobs = arrivals.arrivals
    return ArrivalsSummary(
        name=arrivals.name,
        rows=arrivals.rows,
        jobs=len(jobs),
        skipped=arrivals.skipped,
        tenants=len({job.tenant for job in jobs}),
        origin=arrivals.origin,
        arrival_hours=max((job.submit_seconds for job in jobs), default=0.0) / _HOUR,
        gpu_hours=arrivals.gpu_hours,
        mean_job_hours=_mean([job.duration_seconds for job in jobs]) / _HOUR,
        gpus=_counted([f"on {job.gpus:g}" for job in jobs]),
        warnings=arrivals.warnings,
    )


def summarize(trace: Trace, costs: Costs) -> Summary:
    """The figures of a trace; of an empty one all are 0."""
    jobs = trace.jobs
    lengths = [solo_job_seconds(job, costs) / _HOUR for job in jobs]
    arrivals = [job.arrival_seconds / _HOUR for job in jobs]
    ends = [arrival + length for arrival, length in zip(arrivals, lengths, strict=True)]
    hours = max(ends, default=0.0) - min(arrivals, default=0.0)
    solo, colocated = solo_usd(trace, costs), colocated_usd(trace, costs)
    return Summary(
        name=trace.name,
        rows=trace.rows,
        jobs=len(jobs),
        skipped=trace.skipped,
        tenants=len({job.tenant for job in jobs}),
        arrival_hours=max(arrivals, default=0.0) - min(arrivals, default=0.0),
        hours=hours,
        mean_job_hours=_mean(lengths),
        iterations=sum(job.iterations for job in jobs),
        gpus=_counted([f"{job.rollout_gpus}+{job.training_gpus}" for job in jobs]),
        models=_counted([_size(job) for job in jobs]),
        mean_slo=_mean([job.slo for job in jobs]),
        drifting_jobs=sum(job.rollout_growth != 1.0 for job in jobs),
        solo_usd=solo,
        solo_usd_per_hour=solo / hours if hours else 0.0,
        colocated_usd=colocated,
        colocated_usd_per_hour=colocated / hours if hours else 0.0,
        bound_usd_without_tail=bubble_free_usd(trace, costs, tail=False),
        bound_usd_with_tail=bubble_free_usd(trace, costs, tail=True),
    )


def _size(job: TraceJob) -> str:
    return f"{job.model_billions:.4g}B"


def _counted(names: list[str]) -> dict[str, int]:
    return dict(Counter(names).most_common())


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0
