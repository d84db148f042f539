"""What simulated jobs do: their descriptions for the scheduler, and the times of their iterations.

The times are drawn from one seed and the job's name alone, so that they are the same whatever the policy, the order of
arrivals, or the process; they are drawn when a job arrives and forgotten when it has ended.
"""

import hashlib
from collections.abc import Callable
from math import ceil, log, sqrt

import msgspec
import numpy as np

from weaverl.domain.cluster import PoolKind
from weaverl.domain.jobs import DeviceMemory, DeviceNeed, HostMemory, JobSpec, PhaseKind, PhaseProfile, Role
from weaverl.domain.units import GIB
from weaverl.simulation.costs import Costs, for_model, sync_seconds
from weaverl.simulation.traces.records import TraceJob

MICROSECONDS = 1e6
MOST_RETRIES = 1_000_000
"""Where there are faults, a job is tried until it has finished."""
CHECKPOINTS = "simulated"
"""Simulated jobs go on after their last finished iteration."""
ROLE = Role(name="run", command=("simulated",))
"""One process stands for all of a job's: the driver that asks for its workers."""


class SimulatedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job and how it behaves outside of its iterations. Microseconds.

    ``tail_from`` is the fraction of a rollout after which it can be moved to ``tail_devices`` of its devices; 1 for
    a job whose tail is never moved.
    """

    spec: JobSpec
    arrival_us: int
    cold_start_us: int = 0
    rollout_switch_us: int = 0
    training_switch_us: int = 0
    tail_from: float = 1.0
    tail_devices: int = 0


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """State that a measured job loaded onto its slots of a pool. Microseconds.

    ``asked_us``: after its registration; ``late_save_us``: to save the state when another asked for the slots.
    """

    pool: PoolKind
    asked_us: int
    held_us: int
    late_save_us: int


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """What a measured job did before its first rollout, which it asked for when ``awaited`` loads had ended.

    ``rollout_us``: from the end of the last of these to its request; without any, from its registration.
    """

    loads: tuple[Load, ...]
    awaited: int
    rollout_us: int


class Work(msgspec.Struct, frozen=True):
    """Microseconds of each of a job's iterations alone on its own warm nodes, by phase.

    Of a measured run also how it began, what passed between rollout and training, how long slots were held beside the
    bodies, and how long it took to save state that had stayed until another asked for the slots: then nothing else is
    paid for a hand-over.
    """

    rollout_us: list[int]
    training_us: list[int]
    sync_us: list[int]
    other_us: list[int]
    between_us: list[int] | None = None
    held_us: dict[PhaseKind, list[int]] | None = None
    late_save_us: dict[PhaseKind, list[int]] | None = None
    start: Start | None = None
    staleness: int = 0

    @property
    def num_iterations(self) -> int:
        """How many iterations there are."""
        return len(self.rollout_us)

    def solo_us(self) -> list[int]:
        """Solo time of each iteration; with a staleness of 1 from the begin of its training to that of the next one.

        The first one begins with its rollout, which nothing runs beside.
        """
        if not self.staleness:
            phases = zip(self.rollout_us, self.training_us, self.sync_us, self.other_us, strict=True)
            return [sum(one) for one in phases]
        trained = [sum(one) for one in zip(self.training_us, self.sync_us, self.other_us, strict=True)]
        pairs = [max(one) for one in zip([*self.rollout_us[1:], 0], trained, strict=True)]
        return [self.rollout_us[0] + pairs[0], *pairs[1:]]


WorkOf = Callable[[SimulatedJob], Work]


def simulated_job(job: TraceJob, costs: Costs) -> SimulatedJob:
    """A row of a trace as the scheduler and the world see it."""
    rollout_switch = for_model(costs.rollout_switch_seconds, job.model_billions)
    training_switch = for_model(costs.training_switch_seconds, job.model_billions)
    tail_devices = ceil(job.rollout_gpus * costs.tail_devices)
    has_tail = costs.tail_migration and tail_devices < job.rollout_gpus
    profile = PhaseProfile(
        rollout_max_seconds=job.rollout_max_seconds,
        rollout_mean_seconds=job.rollout_mean_seconds,
        rollout_cv=job.rollout_cv,
        training_seconds=job.training_seconds,
        sync_seconds=sync_seconds(costs, job.sync_gib),
        rollout_p80=job.rollout_p80 if has_tail else 1.0,
        rollout_switch_seconds=rollout_switch,
        training_switch_seconds=training_switch,
        staleness=job.staleness,
    )
    spec = JobSpec(
        name=job.job_id,
        roles=(ROLE,),
        rollout_gpus=job.rollout_gpus,
        training_gpus=job.training_gpus,
        host_memory=HostMemory(
            rollout_bytes=round(job.rollout_host_gib * GIB), training_bytes=round(job.training_host_gib * GIB)
        ),
        slo=job.slo,
        profile=profile,
        tenant=job.tenant,
        priority=job.priority,
        iterations=job.iterations,
        deadline_seconds=job.deadline_seconds,
        checkpoint_directory=CHECKPOINTS,
        device_memory=_device_memory(job, costs),
        max_retries=MOST_RETRIES if costs.node_mtbf_hours or costs.job_mtbf_hours else 0,
        staleness=job.staleness,
    )
    return SimulatedJob(
        spec=spec,
        arrival_us=_us(job.arrival_seconds),
        cold_start_us=_us(for_model(costs.cold_start_seconds, job.model_billions)),
        rollout_switch_us=_us(rollout_switch),
        training_switch_us=_us(training_switch),
        tail_from=profile.rollout_p80,
        tail_devices=tail_devices,
    )


def _device_memory(job: TraceJob, costs: Costs) -> DeviceMemory:
    """What a job takes of each of its devices, by its parameters."""
    parameters = job.model_billions * 1e9
    weights, num_devices = 2 * parameters, 1
    most = max(costs.rollout_state * costs.rollout_device_gib * GIB, 1)
    while weights / num_devices > most and num_devices < job.rollout_gpus:
        num_devices *= 2
    return DeviceMemory(
        rollout=DeviceNeed(
            state_bytes=ceil(weights / num_devices),
            working_bytes=ceil(costs.rollout_working * costs.rollout_device_gib * GIB),
        ),
        training=DeviceNeed(
            state_bytes=ceil(costs.training_state_bytes * parameters / job.training_gpus),
            working_bytes=ceil(costs.training_working * costs.training_device_gib * GIB),
        ),
    )


def drawn_work(job: TraceJob, costs: Costs, seed: int | None) -> Work:
    """The times of all iterations; without a seed each rollout takes its mean.

    Lognormal with the trace's mean and coefficient of variation, capped at the time at the response cap; both grow
    linearly over the iterations from 1 to ``rollout_growth``.
    """
    growth = np.linspace(1.0, job.rollout_growth, job.iterations)
    seconds = np.full(job.iterations, job.rollout_mean_seconds)
    if seed is not None and job.rollout_cv > 0:
        variance = log(1.0 + job.rollout_cv**2)
        location = log(job.rollout_mean_seconds) - variance / 2
        seconds = _generator(seed, job.job_id).lognormal(location, sqrt(variance), job.iterations)
    rollouts = np.rint(np.minimum(seconds, job.rollout_max_seconds) * growth * MICROSECONDS).astype(np.int64)
    sync_us = _us(sync_seconds(costs, job.sync_gib))
    return Work(
        rollouts.tolist(),
        [_us(job.training_seconds)] * job.iterations,
        [sync_us] * job.iterations,
        [0] * job.iterations,
        staleness=job.staleness,
    )


def _generator(seed: int, job: str) -> np.random.Generator:
    digest = hashlib.sha256(f"{seed}/{job}".encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "little")))


def _us(seconds: float) -> int:
    return round(seconds * MICROSECONDS)
