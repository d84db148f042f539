"""A scheduler as it stands with jobs on it, for questions that run nothing: all nodes up, jobs submitted in order."""

from collections.abc import Sequence
from math import ceil

import msgspec

from weaverl.domain.cluster import Cluster, Node, PoolKind
from weaverl.domain.commands import AnyCommand, RefuseRequest
from weaverl.domain.events import AgentReported, ControllerStarted, JobSubmitted
from weaverl.domain.jobs import JobSpec
from weaverl.domain.units import GIB
from weaverl.errors import RefusedError
from weaverl.scheduling.scheduler import Scheduler
from weaverl.scheduling.state import Parameters
from weaverl.simulation.costs import Costs
from weaverl.simulation.supply import device_memory_bytes, empty_cluster


def standing_scheduler(cluster: Cluster, parameters: Parameters) -> Scheduler:
    """A scheduler of a cluster whose nodes are all there."""
    scheduler = Scheduler(cluster, parameters)
    scheduler.handle(ControllerStarted(epoch=1))
    for node in cluster.nodes:
        scheduler.handle(AgentReported(epoch=1, node=node))
    return scheduler


def submit(scheduler: Scheduler, spec: JobSpec) -> list[AnyCommand]:
    """Hand a job in now; what was decided. Raises RefusedError with the reason if it cannot be taken."""
    commands = scheduler.handle(JobSubmitted(at=scheduler.state.now, spec=spec))
    for command in commands:
        if isinstance(command, RefuseRequest):
            raise RefusedError(command.reason)
    return commands


def cluster_of(costs: Costs) -> Cluster:
    """The published testbed's kinds of nodes, one of each."""
    nodes = tuple(
        Node(
            name=str(pool),
            pool=pool,
            host=str(pool),
            num_devices=costs.gpus_per_node,
            device_memory_bytes=device_memory_bytes(costs, pool),
            host_memory_bytes=round(costs.node_host_gib * GIB),
        )
        for pool in PoolKind
    )
    return msgspec.structs.replace(empty_cluster(costs), nodes=nodes)


def with_enough_nodes(cluster: Cluster, specs: Sequence[JobSpec]) -> Cluster:
    """The cluster with so many of its first node of each pool that every job could have nodes of its own."""
    nodes: list[Node] = []
    for pool in PoolKind:
        kind = next(node for node in cluster.nodes if node.pool is pool)
        gpus = [spec.rollout_gpus if pool is PoolKind.ROLLOUT else spec.training_gpus for spec in specs]
        number = sum(ceil(asked / kind.num_devices) for asked in gpus)
        nodes += [
            msgspec.structs.replace(kind, name=f"{pool}-{place}", host=f"{pool}-{place}", cpus=())
            for place in range(number)
        ]
    return msgspec.structs.replace(cluster, nodes=tuple(nodes))
