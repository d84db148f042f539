"""The offline optimum for the jobs of a moment."""

from collections.abc import Sequence
from math import ceil

from msgspec.structs import replace

from weaverl.domain.cluster import Cluster
from weaverl.scheduling.policies.optimal import MOST_JOBS, optimal_plan
from weaverl.simulation.costs import Costs
from weaverl.simulation.supply import Supply, empty_cluster
from weaverl.simulation.traces.records import TraceJob
from weaverl.simulation.workload import simulated_job


class OptimalPlanner:
    """Plans jobs by exhaustive search; what it has planned it remembers."""

    def __init__(self, costs: Costs, most_jobs: int = MOST_JOBS) -> None:
        self._costs = costs
        self._most_jobs = most_jobs
        self._known: dict[tuple[TraceJob, ...], float] = {}

    def __call__(self, jobs: Sequence[TraceJob]) -> float | None:
        """Dollars an hour of the best grouping; None where there are too many jobs to search."""
        if len(jobs) > self._most_jobs:
            return None
        key = tuple(jobs)
        if key not in self._known:
            specs = [simulated_job(job, self._costs).spec for job in jobs]
            self._known[key] = optimal_plan(self._cluster(jobs), specs).usd_per_hour
        return self._known[key]

    def _cluster(self, jobs: Sequence[TraceJob]) -> Cluster:
        """Nodes enough for every job to have its own."""
        most = sum(ceil(max(job.rollout_gpus, job.training_gpus) / self._costs.gpus_per_node) for job in jobs)
        supply = Supply(replace(self._costs, max_nodes_per_pool=most))
        return replace(empty_cluster(self._costs), nodes=tuple(supply.at_start()))
