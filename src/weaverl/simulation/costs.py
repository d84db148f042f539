"""What the hardware costs and how long it takes: the evaluation protocol's constants, each of them a parameter.

The defaults are those of the published testbed (WEAVE, OSDI 2026, sections 2 and 6): H20 rollout and H800 training
nodes, 20 Gbps between the pools, warm starts linear in model size from 7B to 70B.
"""

from enum import StrEnum

import msgspec

from weaverl.domain.cluster import PoolKind
from weaverl.domain.jobs import PhaseKind
from weaverl.errors import UsageError

_LARGEST = 1e9
_RANGES: dict[str, tuple[float, float]] = {
    "gpus_per_node": (1, 1024),
    "node_host_gib": (0.001, _LARGEST),
    "usable_host_memory": (0.001, 1),
    "max_nodes_per_pool": (1, 1_000_000),
    "max_rollout_nodes": (1, 1_000_000),
    "max_training_nodes": (1, 1_000_000),
    "link_gbps": (0.001, _LARGEST),
    "colocated_rollout": (0.001, 1000),
    "gavel_training": (0.001, 1000),
    "interference_rollout": (1, 1000),
    "interference_training": (1, 1000),
    "tail_devices": (0.001, 1),
    "rollout_working": (0, 1),
    "training_working": (0, 1),
    "tail_stretch": (0.001, 1000),
    "moved_start": (0, 1000),
    "saves_every": (1, 1_000_000),
    "node_mtbf_hours": (0.001, _LARGEST),
    "job_mtbf_hours": (0.001, _LARGEST),
}
"""Least and most of a parameter; those that are not here start at 0."""


class LinkSharing(StrEnum):
    """Whether each pair of nodes has the slow link's rate to itself, or all syncs share one link."""

    PER_NODE = "per_node"
    SHARED = "shared"


class Costs(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of a simulated cluster, printed with every result. Seconds, gigabits a second, GiB, dollars.

    ``max_rollout_nodes`` and ``max_training_nodes`` limit one pool, ``max_nodes_per_pool`` those without their own;
    None: as many nodes as are needed.

    ``*_device_gib``: memory of one device; ``*_working``: the share of it that a phase works with beside its state.
    ``training_state_bytes``: of a parameter, over all the job's training devices. A rollout keeps two bytes of one, on
    the fewest devices (1, 2, 4 ...) of which that takes no more than ``rollout_state`` of the memory.

    ``tail_*``: past ``rollout_p80`` the tail is held on ``tail_devices`` of the job's rollout devices, lasts
    ``tail_stretch`` times as long plus ``tail_move_seconds``. ``colocated_rollout`` and ``gavel_training`` are the
    slowdowns of a phase on the other pool's GPUs. ``interference_*``: how many times as long the body of a phase takes
    that is granted while another job is on its nodes; it is in no prediction and no solo time. ``moved_start``: how
    many times its cold start a job takes after a move; 0: moves are free. ``saves_every``: iterations between two saves
    of a job, which take no time; it can be moved or paused only where it has just saved. ``*_mtbf_hours`` is the mean
    time between losses of one node and between crashes of one job; None: nothing fails.
    """

    rollout_usd_per_gpu_hour: float = 1.85
    training_usd_per_gpu_hour: float = 5.28
    gpus_per_node: int = 8
    node_host_gib: float = 1536.0
    usable_host_memory: float = 0.9
    rollout_device_gib: float = 96.0
    training_device_gib: float = 80.0
    rollout_state: float = 0.25
    rollout_working: float = 0.5
    training_state_bytes: float = 16.0
    training_working: float = 0.3
    max_nodes_per_pool: int | None = None
    max_rollout_nodes: int | None = None
    max_training_nodes: int | None = None
    link_gbps: float = 20.0
    link_sharing: LinkSharing = LinkSharing.PER_NODE
    sync_overhead: float = 1.15
    rollout_switch_seconds: tuple[float, float] = (0.9, 1.9)
    training_switch_seconds: tuple[float, float] = (4.1, 5.9)
    cold_start_seconds: tuple[float, float] = (80.0, 135.8)
    moved_start: float = 1.0
    saves_every: int = 1
    colocated_rollout: float = 1.10
    gavel_training: float = 6.7
    interference_rollout: float = 1.0
    interference_training: float = 1.0
    tail_migration: bool = True
    tail_devices: float = 0.25
    tail_stretch: float = 1.05
    tail_move_seconds: float = 1.0
    node_mtbf_hours: float | None = None
    node_repair_hours: float = 1.0
    job_mtbf_hours: float | None = None

    def __post_init__(self) -> None:
        """Raises UsageError if a number is out of its range, nan of every one, or two do not go together."""
        for name in self.__struct_fields__:
            value = getattr(self, name)
            for number in value if isinstance(value, tuple) else (value,):
                _require_range(name, number)
        if self.saves_every > 1 and (self.node_mtbf_hours or self.job_mtbf_hours):
            raise UsageError(
                f"parameter saves_every is {self.saves_every} where nodes or jobs fail: what is lost since the last "
                "save is not simulated; give 1, or let nothing fail"
            )

    def most_nodes(self, pool: PoolKind) -> int | None:
        """How many nodes a pool has at most; None: as many as are needed."""
        own = self.max_rollout_nodes if pool is PoolKind.ROLLOUT else self.max_training_nodes
        return self.max_nodes_per_pool if own is None else own

    @property
    def is_fleet(self) -> bool:
        """Whether the nodes of both pools are limited: a fixed fleet."""
        return all(self.most_nodes(pool) is not None for pool in PoolKind)


def _require_range(name: str, number: object) -> None:
    least, most = _RANGES.get(name, (0, _LARGEST))
    if isinstance(number, int | float) and not least <= number <= most:
        raise UsageError(f"parameter {name} is {number:g}: give a number from {least:g} to {most:g}")


def for_model(seconds: tuple[float, float], model_billions: float) -> float:
    """A duration given at 7B and at 70B, linear in model size between and beyond, never below 0."""
    at_7b, at_70b = seconds
    return max(at_7b + (at_70b - at_7b) * (model_billions - 7.0) / 63.0, 0.0)


def paces(costs: Costs, rollout: PoolKind, training: PoolKind) -> dict[PhaseKind, float]:
    """How many times as long each phase takes on the GPUs that it got, by their pools."""
    return {
        PhaseKind.ROLLOUT: 1.0 if rollout is PoolKind.ROLLOUT else costs.colocated_rollout,
        PhaseKind.TRAINING: 1.0 if training is PoolKind.TRAINING else costs.gavel_training,
    }


def sync_seconds(costs: Costs, gib: float) -> float:
    """Time for one copy of the weights over the slow link alone: ``gib x 8 x 1.0737 / gbps x overhead``."""
    return gib * 8 * 1.073741824 / costs.link_gbps * costs.sync_overhead
