"""How soon a fixed fleet could be done with its jobs at best, whatever the policy."""

from weaverl.domain.cluster import PoolKind
from weaverl.domain.jobs import PhaseKind
from weaverl.simulation.costs import Costs, paces
from weaverl.simulation.workload import SimulatedJob, Work


def chain(rollouts_us: float, trained_us: float, staleness: int) -> float:
    """What a job cannot be shorter than: its phases one after the other, or the longer side of two that go together."""
    return max(rollouts_us, trained_us) if staleness else rollouts_us + trained_us


class EarliestEnd:
    """A lower bound of the moment at which the last job ends, from the jobs of a trace, added in any order.

    No job ends before it has arrived, started and run alone, on nodes of both pools or with all phases on one pool's.
    And what arrives from any moment on takes all the devices of the fleet for as long as its phases last.
    """

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self._num_devices = sum(costs.most_nodes(pool) or 0 for pool in PoolKind) * costs.gpus_per_node
        self._last_life_us = 0.0
        self._device_us: list[tuple[int, float]] = []

    def add(self, job: SimulatedJob, work: Work) -> None:
        """Add a job and the times of its iterations."""
        rollout_us, training_us, other_us = (sum(us) for us in (work.rollout_us, work.training_us, work.other_us))
        stretch = self._costs.tail_stretch if job.tail_from < 1.0 else 1.0
        shortest_us = rollout_us * (job.tail_from + (1.0 - job.tail_from) * min(stretch, 1.0))
        kept = min(job.tail_devices * stretch / job.spec.rollout_gpus, 1.0) if job.tail_from < 1.0 else 1.0
        held_us = rollout_us * (job.tail_from + (1.0 - job.tail_from) * kept)
        gpus = {PoolKind.ROLLOUT: job.spec.rollout_gpus, PoolKind.TRAINING: job.spec.training_gpus}
        lives = [chain(shortest_us, training_us + sum(work.sync_us), work.staleness)]
        device_us = [held_us * gpus[PoolKind.ROLLOUT] + training_us * gpus[PoolKind.TRAINING]]
        for pool in PoolKind:
            pace = paces(self._costs, pool, pool)
            lives.append(shortest_us * pace[PhaseKind.ROLLOUT] + training_us * pace[PhaseKind.TRAINING])
            busy_us = held_us * pace[PhaseKind.ROLLOUT] + training_us * pace[PhaseKind.TRAINING]
            device_us.append(busy_us * gpus[pool])
        life_us = job.cold_start_us + min(lives) + other_us
        self._last_life_us = max(self._last_life_us, job.arrival_us + life_us)
        self._device_us.append((job.arrival_us, min(device_us)))

    @property
    def at_us(self) -> float:
        """The bound, on the clock of the trace."""
        latest, device_us = self._last_life_us, 0.0
        for arrival_us, more_us in sorted(self._device_us, reverse=True):
            device_us += more_us
            latest = max(latest, arrival_us + device_us / self._num_devices)
        return latest
