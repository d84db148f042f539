"""Costs that a person can work out by hand: each job alone from start to end, and a cluster without any bubble.

`solo` and `colocated` know no neighbour, so their dollars are sums over jobs; simulated ones must agree. The
bubble-free bound pays for busy devices only: no schedule of the same phases costs less.
"""

import math

from weaverl.simulation.costs import Costs, for_model, sync_seconds
from weaverl.simulation.traces.records import Trace, TraceJob

_HOUR = 3600.0


def solo_usd(trace: Trace, costs: Costs) -> float:
    """Dollars of `solo`: each job on whole nodes of its own in both pools, from its cold start to its end."""
    return math.fsum(
        solo_job_seconds(job, costs)
        * (
            _whole_nodes(job.rollout_gpus, costs) * costs.rollout_usd_per_gpu_hour
            + _whole_nodes(job.training_gpus, costs) * costs.training_usd_per_gpu_hour
        )
        / _HOUR
        for job in trace.jobs
    )


def colocated_usd(trace: Trace, costs: Costs) -> float:
    """Dollars of `colocated`: each job on whole training nodes of its own."""
    return math.fsum(
        colocated_job_seconds(job, costs)
        * _whole_nodes(job.training_gpus, costs)
        * costs.training_usd_per_gpu_hour
        / _HOUR
        for job in trace.jobs
    )


def bubble_free_usd(trace: Trace, costs: Costs, tail: bool) -> float:
    """Dollars of busy devices alone: rollouts and trainings without syncs, switches, starts and bubbles.

    With ``tail`` a rollout keeps only ``costs.tail_devices`` of its devices from ``rollout_p80`` on, where that is
    less.
    """
    return math.fsum(
        job.iterations
        * (
            _rollout_device_seconds(job, costs, tail) * job.rollout_gpus * costs.rollout_usd_per_gpu_hour
            + job.training_seconds * job.training_gpus * costs.training_usd_per_gpu_hour
        )
        / _HOUR
        for job in trace.jobs
    )


def solo_job_seconds(job: TraceJob, costs: Costs) -> float:
    """Cold start and all iterations on nodes of its own."""
    if job.staleness:
        return for_model(costs.cold_start_seconds, job.model_billions) + _seconds_side_by_side(job, costs)
    iteration = mean_rollout_seconds(job) + job.training_seconds + sync_seconds(costs, job.sync_gib)
    return for_model(costs.cold_start_seconds, job.model_billions) + job.iterations * iteration


def _seconds_side_by_side(job: TraceJob, costs: Costs) -> float:
    """The first rollout, each training with its sync beside the next rollout, and the last training.

    The longer one of a rollout ``min(X, cap) g`` and a training ``t`` is ``t + g (E[min(X, cap)] - E[min(X, t / g)])``.
    """
    trained = job.training_seconds + sync_seconds(costs, job.sync_gib)
    mean, last = _mean_cut(job, job.rollout_max_seconds), max(job.iterations - 1, 1)
    growth = [1.0 + (job.rollout_growth - 1.0) * place / last for place in range(job.iterations)]
    pairs = (trained + one * max(mean - _mean_cut(job, trained / one), 0.0) for one in growth[1:])
    return mean * growth[0] + math.fsum(pairs) + trained if growth else 0.0


def colocated_job_seconds(job: TraceJob, costs: Costs) -> float:
    """Cold start and all iterations on training GPUs: slower rollouts, two switches an iteration, no slow link."""
    iteration = (
        mean_rollout_seconds(job) * costs.colocated_rollout
        + job.training_seconds
        + for_model(costs.rollout_switch_seconds, job.model_billions)
        + for_model(costs.training_switch_seconds, job.model_billions)
    )
    return for_model(costs.cold_start_seconds, job.model_billions) + job.iterations * iteration


def mean_rollout_seconds(job: TraceJob) -> float:
    """Expected rollout over the job's life: a capped lognormal, times the mean growth.

    Mean and cap grow alike, so that growth is a factor. A run in which nothing is random takes the plain mean, as a job
    without variation does. For ``X`` lognormal with parameters ``mu`` and ``sigma``,
    ``E[min(X, c)] = mean Phi((ln c - mu - sigma^2) / sigma) + c (1 - Phi((ln c - mu) / sigma))``.
    """
    growth = (1.0 + job.rollout_growth) / 2 if job.iterations > 1 else 1.0
    return _mean_cut(job, job.rollout_max_seconds) * growth


def _mean_cut(job: TraceJob, cap: float) -> float:
    """Expected rollout without growth, cut off at a time."""
    mean = job.rollout_mean_seconds
    if job.rollout_cv <= 0:
        return min(mean, cap)
    variance = math.log1p(job.rollout_cv**2)
    sigma = math.sqrt(variance)
    place = (math.log(cap / mean) + variance / 2) / sigma
    return mean * _normal(place - sigma) + cap * (1.0 - _normal(place))


def _rollout_device_seconds(job: TraceJob, costs: Costs, tail: bool) -> float:
    """Seconds of all the job's rollout devices that a rollout takes on average."""
    whole = mean_rollout_seconds(job)
    if not tail:
        return whole
    end = (1.0 - job.rollout_p80) * whole * costs.tail_stretch + costs.tail_move_seconds
    return min(whole, job.rollout_p80 * whole + costs.tail_devices * end)


def _whole_nodes(gpus: int, costs: Costs) -> int:
    """GPUs of the nodes that it takes."""
    return math.ceil(gpus / costs.gpus_per_node) * costs.gpus_per_node


def _normal(value: float) -> float:
    """Cumulative distribution of the standard normal."""
    return (1.0 + math.erf(value / math.sqrt(2.0))) / 2
