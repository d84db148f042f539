"""The bubble-free bound of a trace: what its jobs would cost if devices were paid only while a phase uses them."""

from weaverl.domain.units import HOUR_US
from weaverl.simulation.costs import Costs
from weaverl.simulation.workload import SimulatedJob, Work


class Bound:
    """Dollars, job by job: without tail migration, and with it where that takes fewer device-seconds."""

    def __init__(self, costs: Costs) -> None:
        self.usd_without_tail = 0.0
        self.usd_with_tail = 0.0
        self._costs = costs

    def add(self, job: SimulatedJob, work: Work) -> None:
        """Add a job's iterations."""
        rollout_us, spec = sum(work.rollout_us), job.spec
        training = spec.training_gpus * sum(work.training_us) * self._costs.training_usd_per_gpu_hour
        whole = float(spec.rollout_gpus * rollout_us)
        price = self._costs.rollout_usd_per_gpu_hour
        self.usd_without_tail += (whole * price + training) / HOUR_US
        self.usd_with_tail += (min(whole, self._moved(job, work, rollout_us)) * price + training) / HOUR_US

    def _moved(self, job: SimulatedJob, work: Work, rollout_us: int) -> float:
        """Device-microseconds of the rollouts when each tail is moved."""
        if job.tail_devices == 0:
            return float("inf")
        before = job.spec.rollout_gpus * (rollout_us * job.tail_from + work.num_iterations * self._move_us)
        return before + job.tail_devices * rollout_us * (1.0 - job.tail_from) * self._costs.tail_stretch

    @property
    def _move_us(self) -> float:
        return self._costs.tail_move_seconds * 1e6
