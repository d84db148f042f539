"""A job as its owner describes it: roles, devices asked, profile, memory, promise."""

from collections.abc import Iterable
from enum import StrEnum

import msgspec


class PhaseKind(StrEnum):
    """What a job does at a moment. Only the first three need a permit; everything else is *other*.

    ``loading`` is the cold start: state is built on the slots under a permit of its own.
    """

    LOADING = "loading"
    ROLLOUT = "rollout"
    TRAINING = "training"
    SYNC = "sync"


class Placement(StrEnum):
    """How a job's phases map to pools.

    ``disaggregated``: roles on both pools. ``local``: one process; both pools are slots of one host, and state
    follows the permit from slot to slot. ``colocated``: all phases on the slots of one pool.
    """

    DISAGGREGATED = "disaggregated"
    LOCAL = "local"
    COLOCATED = "colocated"


class JobState(StrEnum):
    """Life of a job; the three last are ends."""

    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"


ENDED = frozenset({JobState.FINISHED, JobState.FAILED, JobState.CANCELLED})


class Role(msgspec.Struct, frozen=True, kw_only=True):
    """The processes of one kind in a job: ``driver``, ``rollout``, ``training``, or ``run`` alone."""

    name: str
    command: tuple[str, ...]
    processes_per_node: int = 1


def master_role(role_sizes: Iterable[str]) -> str:
    """The role whose rank 0 serves the ranks' meeting: the one that takes part in every weight sync."""
    names = list(role_sizes)
    return "rollout" if "rollout" in names else names[0]


class PhaseProfile(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of one iteration alone on warm nodes.

    ``rollout_max_seconds`` is the rollout when some response reaches the cap: what admission plans with.
    ``rollout_p80`` is the fraction of the rollout after which its tail can be moved; 1: it has none.
    ``*_switch_seconds`` is this job's own time to be restored and saved on a shared node; None: the cluster's.
    ``staleness`` is the job's own: it says which of the phases may run side by side.
    """

    rollout_max_seconds: float
    rollout_mean_seconds: float
    training_seconds: float
    sync_seconds: float = 0.0
    other_seconds: float = 0.0
    rollout_cv: float = 0.0
    rollout_p80: float = 1.0
    rollout_switch_seconds: float | None = None
    training_switch_seconds: float | None = None
    staleness: int = 0


class HostMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Host DRAM that a job keeps on each of its nodes: cached state, staging copies, resident sets. Bytes."""

    rollout_bytes: int
    training_bytes: int


class DeviceNeed(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of one device that a job takes in a pool: its state, and what its phases work with beside it. Bytes."""

    state_bytes: int
    working_bytes: int


class DeviceMemory(msgspec.Struct, frozen=True, kw_only=True):
    """What a job takes of each of its devices; None where that is not known."""

    rollout: DeviceNeed | None = None
    training: DeviceNeed | None = None


class JobSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a job file says.

    ``staleness``: how many versions old the weights may be that samples are drawn with. At 0 a job is synchronous; at
    1 its next rollout may run beside training (one-step off-policy).
    """

    name: str
    roles: tuple[Role, ...]
    rollout_gpus: int
    training_gpus: int
    host_memory: HostMemory
    slo: float
    placement: Placement = Placement.DISAGGREGATED
    profile: PhaseProfile | None = None
    tenant: str = "default"
    priority: int = 0
    iterations: int | None = None
    deadline_seconds: float | None = None
    checkpoint_directory: str | None = None
    working_directory: str = "."
    environment: dict[str, str] = {}
    max_phase_seconds: float | None = None
    max_retries: int = 0
    staleness: int = 0
    device_memory: DeviceMemory = DeviceMemory()
