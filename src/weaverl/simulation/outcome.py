"""What a simulated run came to, as it is printed."""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from weaverl.domain.cluster import PoolKind
from weaverl.domain.jobs import PhaseKind
from weaverl.domain.units import HOUR_US
from weaverl.simulation.costs import Costs
from weaverl.simulation.metrics import Metrics
from weaverl.simulation.queueing import DeadlineFigures, Queueing, SharingFigures
from weaverl.simulation.tenants import ROUNDING, TenantFigures, jain


class ByPool(msgspec.Struct, frozen=True):
    """One figure for each pool."""

    rollout: float
    training: float


class ByPhase(msgspec.Struct, frozen=True):
    """One figure for each kind of phase that needs a permit; None where there was none."""

    rollout: float | None
    training: float | None


class Spread(msgspec.Struct, frozen=True):
    """A distribution over jobs or decisions."""

    p50: float
    p90: float
    p99: float
    max: float


class ClassFigures(msgspec.Struct, frozen=True):
    """Finished jobs of one priority, and their hours in the queue, also after they were paused, moved or retried."""

    jobs: int
    queued_hours: Spread


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """All figures of a run; the keys of its JSON. Hours and dollars; slowdowns are ratios; None: not to be had.

    ``interference``: time in phase bodies over what the same bodies take undisturbed, where waits, hand-overs, other
    GPUs and moved tails do not count. ``bound_multiple`` is dollars over the bubble-free bound with the tail setting of
    the run. ``audited`` is None if nobody was asked to audit. ``decision_ms`` is wall time: the only figures that
    differ between equal runs. ``makespan_hours``: from the first arrival to the last end; ``makespan_bound_hours``:
    what no policy can beat on a fixed fleet (see ``EarliestEnd``), None where nodes are not limited.
    ``moves`` count ``preemptions``, after which a job had to wait; ``most_preemptions`` is of one job. ``classes`` are
    by priority; ``sharing`` is there if the cluster was shared.
    """

    trace: str
    policy: str
    seed: int | None
    usd: float
    usd_per_hour: float
    hours: float
    bound_multiple: float | None
    bound_multiple_without_tail: float | None
    bound_multiple_with_tail: float | None
    slo_attainment: float
    slowdown: Spread | None
    worst_window: Spread | None
    peak_gpus: ByPool
    mean_gpus: ByPool
    bubbles: ByPool
    interference: ByPhase
    moves: int
    retries: int
    decision_ms: Spread | None
    jobs: int
    jobs_admitted: int
    jobs_finished: int
    refused: dict[str, int]
    unfinished: dict[str, str]
    wait_hours: Spread | None
    completion_hours: Spread | None
    mean_wait_hours: float | None = None
    mean_completion_hours: float | None = None
    makespan_hours: float = 0.0
    makespan_bound_hours: float | None = None
    tenants: dict[str, TenantFigures]
    fairness: float | None
    audited: bool | None
    parameters: dict[str, Any]
    preemptions: int = 0
    most_preemptions: int = 0
    classes: dict[str, ClassFigures] = {}
    deadlines: DeadlineFigures | None = None
    sharing: SharingFigures | None = None


def usd_ratio(other: Outcome, ours: Outcome) -> float | None:
    """Dollars of a run over ours for the same work; None where one did not run every job, or nothing was paid."""
    same_work = other.jobs_finished == other.jobs == ours.jobs == ours.jobs_finished
    return _ratio(other.usd, ours.usd) if same_work else None


def spread(values: Any, unit: float = 1.0) -> Spread | None:
    """Percentiles of some values, each divided by ``unit``."""
    if not len(values):
        return None
    return Spread(*(float(value) / unit for value in np.percentile(np.asarray(values), [50, 90, 99, 100])))


def _mean(values: Any, unit: float) -> float | None:
    return float(np.mean(values)) / unit if len(values) else None


def outcome(
    metrics: Metrics, costs: Costs, named: dict[str, Any], decision_ns: Sequence[int] | None, audited: bool | None
) -> Outcome:
    """Sum a run up. ``named``: trace, policy, seed and parameters."""
    hours = (metrics.last_end - (metrics.first_admission or 0)) / HOUR_US
    first_arrival, bound = metrics.first_arrival or 0, metrics.earliest_end if metrics.num_finished else None
    provisioned, jobs = metrics.ownership.device_us, metrics.jobs
    rollout_usd = provisioned[PoolKind.ROLLOUT] / HOUR_US * costs.rollout_usd_per_gpu_hour
    usd = rollout_usd + provisioned[PoolKind.TRAINING] / HOUR_US * costs.training_usd_per_gpu_hour
    tenants = metrics.tenants.figures()
    without, with_tail = metrics.bound.usd_without_tail, metrics.bound.usd_with_tail
    return Outcome(
        **named,
        usd=usd,
        usd_per_hour=usd / hours if hours else 0.0,
        hours=hours,
        bound_multiple=_ratio(usd, with_tail if costs.tail_migration else without),
        bound_multiple_without_tail=_ratio(usd, without),
        bound_multiple_with_tail=_ratio(usd, with_tail),
        slo_attainment=_attainment(metrics),
        slowdown=spread(jobs.slowdown),
        worst_window=spread(jobs.worst_window),
        peak_gpus=_by_pool(metrics.ownership.peak_devices),
        mean_gpus=_by_pool({pool: us / (hours * HOUR_US) if hours else 0.0 for pool, us in provisioned.items()}),
        bubbles=_by_pool({pool: 1 - metrics.busy_us[pool] / us if us else 0.0 for pool, us in provisioned.items()}),
        interference=_by_phase(metrics),
        moves=metrics.moves,
        retries=metrics.retries,
        decision_ms=spread(decision_ns, 1e6) if decision_ns else None,
        jobs=metrics.num_submitted,
        jobs_admitted=metrics.num_admitted,
        jobs_finished=metrics.num_finished,
        refused=dict(metrics.refused),
        unfinished=metrics.unfinished,
        wait_hours=spread(jobs.wait, 3600.0),
        completion_hours=spread(jobs.completion, 3600.0),
        mean_wait_hours=_mean(jobs.wait, 3600.0),
        mean_completion_hours=_mean(jobs.completion, 3600.0),
        makespan_hours=max(metrics.last_end - first_arrival, 0) / HOUR_US,
        makespan_bound_hours=None if bound is None else (bound.at_us - first_arrival) / HOUR_US,
        tenants=tenants,
        fairness=jain([one.speed for one in tenants.values() if one.jobs]),
        audited=audited,
        preemptions=metrics.queueing.preemptions,
        most_preemptions=metrics.queueing.most_preemptions,
        classes=_classes(metrics.queueing),
        deadlines=metrics.queueing.deadlines(),
        sharing=metrics.queueing.sharing(),
    )


def _classes(queueing: Queueing) -> dict[str, ClassFigures]:
    found = {}
    for priority, hours in sorted(queueing.queued.items(), reverse=True):
        spread_of = spread(hours)
        assert spread_of is not None
        found[str(priority)] = ClassFigures(len(hours), spread_of)
    return found


def _attainment(metrics: Metrics) -> float:
    jobs = metrics.jobs
    met = sum(slowdown <= slo * ROUNDING for slowdown, slo in zip(jobs.slowdown, jobs.slo, strict=True))
    return met / len(jobs.slo) if jobs.slo else 0.0


def _by_pool(values: dict[PoolKind, Any]) -> ByPool:
    return ByPool(values[PoolKind.ROLLOUT], values[PoolKind.TRAINING])


def _by_phase(metrics: Metrics) -> ByPhase:
    work, alone = metrics.work_us, metrics.alone_us
    return ByPhase(*(_ratio(work[phase], alone[phase]) for phase in (PhaseKind.ROLLOUT, PhaseKind.TRAINING)))


def _ratio(over: float, under: float) -> float | None:
    return over / under if under > 0 else None
