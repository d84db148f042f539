"""The nodes of a simulated cluster: all there from the start where a limit is wanted, else as many as jobs need.

A node costs only while a group has it, so that without a limit a spare node is free.
"""

from math import ceil

from weaverl.domain.cluster import Cluster, Node, Pool, PoolKind
from weaverl.domain.groups import Group
from weaverl.domain.jobs import JobSpec
from weaverl.domain.units import GIB
from weaverl.simulation.costs import Costs


def empty_cluster(costs: Costs) -> Cluster:
    """Prices and factors, and no node yet."""
    return Cluster(
        name="simulated",
        rollout=Pool(kind=PoolKind.ROLLOUT, gpu="H20", usd_per_gpu_hour=costs.rollout_usd_per_gpu_hour),
        training=Pool(kind=PoolKind.TRAINING, gpu="H800", usd_per_gpu_hour=costs.training_usd_per_gpu_hour),
        nodes=(),
        usable_host_memory=costs.usable_host_memory,
        rollout_on_training=costs.colocated_rollout,
        training_on_rollout=costs.gavel_training,
    )


def device_memory_bytes(costs: Costs, pool: PoolKind) -> int:
    """Memory of one device of a pool."""
    gib = costs.rollout_device_gib if pool is PoolKind.ROLLOUT else costs.training_device_gib
    return round(gib * GIB)


class Supply:
    """Makes the nodes that are missing, and counts those that groups have."""

    def __init__(self, costs: Costs) -> None:
        self.nodes: list[Node] = []
        self._costs = costs
        self._made = dict.fromkeys(PoolKind, 0)
        self._taken = dict.fromkeys(PoolKind, 0)

    def at_start(self) -> list[Node]:
        """The nodes that are there before the first job: all of a pool whose nodes are limited."""
        return [node for pool in PoolKind for node in self._make(pool, self._costs.most_nodes(pool) or 1)]

    def for_job(self, spec: JobSpec, num_lost: int) -> list[Node]:
        """The nodes to add so that the job could have its own, in either pool, though some are lost."""
        wanted = num_lost + ceil(max(spec.rollout_gpus, spec.training_gpus) / self._costs.gpus_per_node)
        unlimited = (pool for pool in PoolKind if self._costs.most_nodes(pool) is None)
        return [node for pool in unlimited for node in self._make(pool, wanted)]

    def taken(self, group: Group) -> None:
        """A group has its nodes."""
        self._taken[PoolKind.ROLLOUT] += len(group.rollout_nodes)
        self._taken[PoolKind.TRAINING] += len(group.training_nodes)

    def given_back(self, group: Group) -> None:
        """A group has its nodes no more."""
        self._taken[PoolKind.ROLLOUT] -= len(group.rollout_nodes)
        self._taken[PoolKind.TRAINING] -= len(group.training_nodes)

    def _make(self, pool: PoolKind, wanted: int) -> list[Node]:
        missing = max(self._taken[pool] + wanted - self._made[pool], 0)
        nodes = [self._node(pool, self._made[pool] + number) for number in range(missing)]
        self._made[pool] += missing
        self.nodes += nodes
        return nodes

    def _node(self, pool: PoolKind, number: int) -> Node:
        name = f"{pool[0]}{number:05d}"
        costs = self._costs
        return Node(
            name=name,
            pool=pool,
            host=name,
            num_devices=costs.gpus_per_node,
            device_memory_bytes=device_memory_bytes(costs, pool),
            host_memory_bytes=round(costs.node_host_gib * GIB),
        )
