"""Candidates pinned to the least loaded devices of the nodes that a policy offers."""

from weaverl.domain.cluster import Node, PoolKind, Slot
from weaverl.domain.groups import Group, Pin
from weaverl.domain.jobs import JobSpec, Placement
from weaverl.scheduling.admission import Candidate, lacking_memory
from weaverl.scheduling.round_model import slot_loads
from weaverl.scheduling.state import ClusterState, as_member


def isolated(state: ClusterState, spec: JobSpec) -> Candidate:
    """A group of its own on free nodes of both pools."""
    group = Group(f"g{state.groups_made + 1}", (), (), ())
    rollout, training = state.free_nodes(PoolKind.ROLLOUT), state.free_nodes(PoolKind.TRAINING)
    return pinned(state, spec, group, rollout, training, "isolate")


def colocated(state: ClusterState, spec: JobSpec, pool: PoolKind) -> Candidate:
    """A group of its own whose slots, all in one pool, serve both phases; as many as the job asks in that pool."""
    name = f"g{state.groups_made + 1}"
    num_gpus = spec.rollout_gpus if pool is PoolKind.ROLLOUT else spec.training_gpus
    needs_bytes = spec.host_memory.rollout_bytes + spec.host_memory.training_bytes
    slots, refused = least_loaded(state, state.free_nodes(pool), num_gpus, needs_bytes, {})
    nodes = tuple(dict.fromkeys(slot.node for slot in slots))
    on_rollout = pool is PoolKind.ROLLOUT
    return Candidate(
        kind=f"colocate on {pool} GPUs",
        group=Group(name, nodes if on_rollout else (), () if on_rollout else nodes, (spec.name,) if slots else ()),
        added_usd_per_hour=state.usd_per_hour(nodes),
        pin=Pin(slots, slots) if slots else None,
        refused=refused,
    )


def pinned(
    state: ClusterState, spec: JobSpec, group: Group, rollout: list[Node], training: list[Node], kind: str
) -> Candidate:
    """Pin the job to the least loaded devices of the nodes offered; nodes are paid for only if they are used."""
    pin, refused = _pin(state, spec, group, rollout, training)
    if pin is None:
        return Candidate(kind=kind, group=group, added_usd_per_hour=_least_added(state, kind), refused=refused)
    grown = Group(
        group.name,
        _united(group.rollout_nodes, pin.nodes(PoolKind.ROLLOUT)),
        _united(group.training_nodes, pin.nodes(PoolKind.TRAINING)),
        (*group.members, spec.name),
    )
    added = state.usd_per_hour(grown.nodes) - state.usd_per_hour(group.nodes)
    return Candidate(kind=kind, group=grown, pin=pin, added_usd_per_hour=added)


def _least_added(state: ClusterState, kind: str) -> float:
    """What an impossible candidate would have cost at least, a node of each pool it opens: it orders explanations."""
    opened = {"pack": (), "scale rollout": (PoolKind.ROLLOUT,), "isolate": (PoolKind.ROLLOUT, PoolKind.TRAINING)}[kind]
    cheapest = (
        min(state.usd_per_hour((name,)) for name, record in state.nodes.items() if record.node.pool is pool)
        for pool in opened
    )
    return sum(cheapest, 0.0)


def _pin(
    state: ClusterState, spec: JobSpec, group: Group, rollout: list[Node], training: list[Node]
) -> tuple[Pin | None, str]:
    loads = slot_loads([as_member(state, record) for record in state.members(group)])
    if spec.placement is Placement.LOCAL:
        hosts = sorted({node.host for node in rollout} & {node.host for node in training})
    else:
        hosts = [""]
    refused = "no host offers both pools" if not hosts else ""
    for host in hosts:
        chosen: list[tuple[Slot, ...]] = []
        for nodes, num_gpus, needs_bytes in (
            (rollout, spec.rollout_gpus, spec.host_memory.rollout_bytes),
            (training, spec.training_gpus, spec.host_memory.training_bytes),
        ):
            near = [node for node in nodes if not host or node.host == host]
            slots, reason = least_loaded(state, near, num_gpus, needs_bytes, loads)
            refused = refused or reason
            chosen.append(slots)
        if all(chosen):
            return Pin(chosen[0], chosen[1]), ""
    return None, refused


def least_loaded(
    state: ClusterState, nodes: list[Node], num_gpus: int, needs_bytes: int, loads: dict[Slot, int]
) -> tuple[tuple[Slot, ...], str]:
    """The least loaded devices, or none and why.

    Among equals on the smallest node that holds all, where host memory holds the job.
    """
    lacking = {node.name: lacking_memory(state, needs_bytes, node.name) for node in nodes}

    def node_load(node: Node) -> int:
        return sum(loads.get(Slot(node.name, device), 0) for device in range(node.num_devices))

    chosen: list[Slot] = []

    def preference(node: Node) -> tuple[int, bool, int, str]:
        return node_load(node), node.num_devices < num_gpus, node.num_devices, node.name

    for node in sorted(roomy(state, needs_bytes, nodes), key=preference):
        devices = sorted(range(node.num_devices), key=lambda d: (loads.get(Slot(node.name, d), 0), d))
        take = devices[: num_gpus - len(chosen)]
        chosen += [Slot(node.name, device) for device in sorted(take)]
        if len(chosen) == num_gpus:
            return tuple(chosen), ""
    refused = next((reason for reason in lacking.values() if reason), "")
    return (), refused or f"needs {num_gpus} {nodes[0].pool if nodes else ''} devices, {len(chosen)} are to be had"


def roomy(state: ClusterState, needs_bytes: int, nodes: list[Node]) -> list[Node]:
    """Usable nodes whose host memory holds that much more."""
    return [n for n in nodes if state.nodes[n.name].usable and not lacking_memory(state, needs_bytes, n.name)]


def _united(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(first + second))
