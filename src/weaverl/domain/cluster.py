"""The hardware: two pools of nodes, each node a list of devices with host memory and a CPU set."""

from enum import StrEnum

import msgspec

from weaverl.domain.sharing import Sharing


class PoolKind(StrEnum):
    """Which of the two pools a node belongs to."""

    ROLLOUT = "rollout"
    TRAINING = "training"


class Slot(msgspec.Struct, frozen=True, order=True, gc=False):
    """A device of a node as the scheduler hands it out."""

    node: str
    device: int

    def __str__(self) -> str:
        return f"{self.node}:{self.device}"


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of hardware with one price."""

    kind: PoolKind
    gpu: str
    usd_per_gpu_hour: float


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A share of one host. Usually 8 GPUs; a host may present several nodes.

    ``device_memory_bytes`` is the budget of each device. ``cpus`` pins the processes started here;
    empty means no pinning. ``accelerator`` is ``cuda`` or ``cpu``; on a CPU node device memory is a budget
    that the runtime enforces, so that sharing is real where there is no GPU.
    """

    name: str
    pool: PoolKind
    host: str
    num_devices: int
    device_memory_bytes: int
    host_memory_bytes: int
    cpus: tuple[int, ...] = ()
    accelerator: str = "cuda"
    device_ids: tuple[int, ...] = ()


class SwitchCost(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds to hand a node from one job's cached state to another's (save one, restore the other)."""

    rollout_seconds: float = 0.0
    training_seconds: float = 0.0


class StoreAddress(msgspec.Struct, frozen=True, kw_only=True):
    """A Redis or Valkey server that others run. Without one, the cluster brings its own."""

    url: str
    password_file: str | None = None


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a cluster file says.

    ``policy`` is the scheduling policy of the live cluster, ``objective`` what it is for; simulations are told theirs.
    ``sharing`` None: the queue is by priority and arrival, nobody is paused.
    ``rollout_on_training`` and ``training_on_rollout``: how many times as long a phase takes on the other pool's GPUs.
    """

    name: str
    rollout: Pool
    training: Pool
    nodes: tuple[Node, ...]
    switch: SwitchCost = SwitchCost()
    usable_host_memory: float = 0.9
    rollout_on_training: float = 1.10
    training_on_rollout: float = 6.7
    store: StoreAddress | None = None
    policy: str = "weave-paper"
    objective: str = "dollars"
    sharing: Sharing | None = None

    def __post_init__(self) -> None:
        assert len({node.name for node in self.nodes}) == len(self.nodes), "node names are unique"


def usable_host_bytes(cluster: Cluster, node: Node) -> int:
    """Host memory of a node that jobs may keep state in."""
    return int(node.host_memory_bytes * cluster.usable_host_memory)
