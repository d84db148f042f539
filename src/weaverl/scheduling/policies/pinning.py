"""Candidates pinned to the least loaded devices of the nodes that a policy offers."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from weaverl.domain.cluster import Node, PoolKind, Slot
from weaverl.domain.groups import Group, Pin
from weaverl.domain.jobs import JobSpec, Placement
from weaverl.scheduling.admission import Candidate, short_of
from weaverl.scheduling.index import index_of
from weaverl.scheduling.round_model import slot_loads
from weaverl.scheduling.state import ClusterState


class Demand(NamedTuple):
    """What a job asks of one pool: GPUs, and host memory on each of their nodes."""

    pool: PoolKind
    num_gpus: int
    host_bytes: int


def demands(spec: JobSpec) -> tuple[Demand, Demand]:
    """What a job with its phases in their own pools asks of each."""
    return (
        Demand(PoolKind.ROLLOUT, spec.rollout_gpus, spec.host_memory.rollout_bytes),
        Demand(PoolKind.TRAINING, spec.training_gpus, spec.host_memory.training_bytes),
    )


def new_group(state: ClusterState) -> Group:
    """The group that would be opened next, empty."""
    return Group(f"g{state.groups_made + 1}", (), (), (), by_slack=state.parameters.by_slack)


def isolated(state: ClusterState, spec: JobSpec) -> Candidate:
    """A group of its own on free nodes of both pools."""
    group = new_group(state)
    if spec.placement is Placement.LOCAL:
        catalog = index_of(state).catalog
        offered = {pool: nodes_of(state, catalog.free(pool)) for pool in PoolKind}
        pin, refused = _on_one_host(state, spec, offered, {})
    else:
        chosen = [_free_slots(state, demand) for demand in demands(spec)]
        refused = chosen[0][1] or chosen[1][1]
        pin = None if refused else Pin(chosen[0][0], chosen[1][0])
    if pin is None:
        return Candidate(kind="isolate", group=group, added_usd_per_hour=_least_usd(state), refused=refused)
    return grown(state, spec, group, pin, "isolate")


def colocated(state: ClusterState, spec: JobSpec, pool: PoolKind) -> Candidate:
    """A group of its own whose slots, all in one pool, serve both phases; as many as the job asks in that pool."""
    num_gpus = spec.rollout_gpus if pool is PoolKind.ROLLOUT else spec.training_gpus
    needs_bytes = spec.host_memory.rollout_bytes + spec.host_memory.training_bytes
    slots, refused = _free_slots(state, Demand(pool, num_gpus, needs_bytes))
    return msgspec.structs.replace(colocated_on(state, spec, pool, slots), refused=refused)


def colocated_on(state: ClusterState, spec: JobSpec, pool: PoolKind, slots: tuple[Slot, ...]) -> Candidate:
    """A group of its own on these slots of one pool; on none it never was possible."""
    nodes = tuple(dict.fromkeys(slot.node for slot in slots))
    on_rollout, members = pool is PoolKind.ROLLOUT, (spec.name,) if slots else ()
    return Candidate(
        kind=f"colocate on {pool} GPUs",
        group=Group(f"g{state.groups_made + 1}", nodes if on_rollout else (), () if on_rollout else nodes, members),
        added_usd_per_hour=state.usd_per_hour(nodes),
        pin=Pin(slots, slots) if slots else None,
    )


def joined(
    state: ClusterState, spec: JobSpec, group: Group, rollout: list[Node], training: list[Node], opened: list[Node]
) -> Candidate:
    """The job in an existing group, on the least loaded devices of the nodes offered.

    ``opened`` are those of the nodes that the group does not have yet; they are paid for only if they are used.
    """
    kind = "scale rollout" if opened else "pack"
    offered = {PoolKind.ROLLOUT: rollout, PoolKind.TRAINING: training}
    pin, refused = None, _lacking(state, spec, offered)
    if not refused:
        loads = slot_loads(index_of(state).members(group.members))
        if spec.placement is Placement.LOCAL:
            pin, refused = _on_one_host(state, spec, offered, loads)
        else:
            pin = _least_loaded_pin(state, spec, offered, loads)
    if pin is None:
        added = state.usd_per_hour(tuple(node.name for node in opened))
        return Candidate(kind=kind, group=group, added_usd_per_hour=added, refused=refused)
    return grown(state, spec, group, pin, kind)


def lacking(state: ClusterState, asked: tuple[Demand, Demand], offered: tuple[Sequence[str], Sequence[str]]) -> str:
    """Why the nodes offered in each pool cannot hold what is asked, or an empty string."""
    free_bytes, nodes = index_of(state).free_bytes, state.nodes
    for demand, names in zip(asked, offered, strict=True):
        devices, refused = 0, ""
        for name in names:
            free = free_bytes[name]
            if free < demand.host_bytes:
                refused = refused or short_of(demand.host_bytes, name, free)
            elif nodes[name].usable:
                devices += nodes[name].node.num_devices
        if devices < demand.num_gpus:
            return refused or _too_few(demand, devices)
    return ""


def nodes_of(state: ClusterState, names: Iterable[str]) -> list[Node]:
    """Nodes by name."""
    return [state.nodes[name].node for name in names]


def grown(state: ClusterState, spec: JobSpec, group: Group, pin: Pin, kind: str) -> Candidate:
    """The job in a group on the slots of a pin, which may be on nodes that the group does not have yet."""
    larger = msgspec.structs.replace(
        group,
        rollout_nodes=_united(group.rollout_nodes, pin.nodes(PoolKind.ROLLOUT)),
        training_nodes=_united(group.training_nodes, pin.nodes(PoolKind.TRAINING)),
        members=(*group.members, spec.name),
    )
    added = state.usd_per_hour(tuple(node for node in larger.nodes if node not in group.nodes))
    return Candidate(kind=kind, group=larger, pin=pin, added_usd_per_hour=added)


def _least_usd(state: ClusterState) -> float:
    """What a group of its own would cost at least, a node of each pool: it orders explanations."""
    pools = {PoolKind.ROLLOUT: state.cluster.rollout, PoolKind.TRAINING: state.cluster.training}
    catalog = index_of(state).catalog
    sizes = {kind: min((of.num_devices for of in catalog.classes(kind)), default=0) for kind in pools}
    return sum((pool.usd_per_gpu_hour * sizes[kind] for kind, pool in pools.items()), 0.0)


def _free_slots(state: ClusterState, demand: Demand) -> tuple[tuple[Slot, ...], str]:
    """Devices of free nodes where host memory holds the job: of the smallest that holds all, else of several."""
    catalog = index_of(state).catalog
    chosen: list[Slot] = []
    for name, num_devices in catalog.by_fit(*demand):
        take = min(num_devices, demand.num_gpus - len(chosen))
        chosen += [Slot(name, device) for device in range(take)]
        if len(chosen) == demand.num_gpus:
            return tuple(chosen), ""
    short = catalog.first_short(demand.pool, demand.host_bytes)
    if short is not None:
        return (), short_of(demand.host_bytes, *short)
    return (), _too_few(demand, len(chosen))


def _lacking(state: ClusterState, spec: JobSpec, offered: dict[PoolKind, list[Node]]) -> str:
    names = [[node.name for node in offered[pool]] for pool in PoolKind]
    return lacking(state, demands(spec), (names[0], names[1]))


def _on_one_host(
    state: ClusterState, spec: JobSpec, offered: dict[PoolKind, list[Node]], loads: Mapping[Slot, int]
) -> tuple[Pin | None, str]:
    """Both pools on the first host, by name, that offers enough of both."""
    hosts = [{node.host for node in nodes} for nodes in offered.values()]
    refused = ""
    for host in sorted(set.intersection(*hosts)):
        near = {pool: [node for node in nodes if node.host == host] for pool, nodes in offered.items()}
        reason = _lacking(state, spec, near)
        if not reason:
            return _least_loaded_pin(state, spec, near, loads), ""
        refused = refused or reason
    return None, refused or "no host offers both pools"


def _least_loaded_pin(
    state: ClusterState, spec: JobSpec, offered: dict[PoolKind, list[Node]], loads: Mapping[Slot, int]
) -> Pin:
    """The job on the least loaded of nodes that hold it."""
    return Pin(*(_least_loaded(state, offered[demand.pool], demand, loads) for demand in demands(spec)))


def _least_loaded(
    state: ClusterState, nodes: list[Node], demand: Demand, loads: Mapping[Slot, int]
) -> tuple[Slot, ...]:
    """The least loaded devices; among equals on the smallest node that holds all, where host memory holds the job."""

    def preference(node: Node) -> tuple[int, bool, int, str]:
        load = sum(loads.get(Slot(node.name, device), 0) for device in range(node.num_devices))
        return load, node.num_devices < demand.num_gpus, node.num_devices, node.name

    free_bytes = index_of(state).free_bytes
    roomy = [n for n in nodes if state.nodes[n.name].usable and free_bytes[n.name] >= demand.host_bytes]
    chosen: list[Slot] = []
    for node in roomy if len(roomy) == 1 else sorted(roomy, key=preference):
        devices = sorted(range(node.num_devices), key=lambda d: (loads.get(Slot(node.name, d), 0), d))
        take = devices[: demand.num_gpus - len(chosen)]
        chosen += [Slot(node.name, device) for device in sorted(take)]
        if len(chosen) == demand.num_gpus:
            break
    return tuple(chosen)


def _too_few(demand: Demand, num_devices: int) -> str:
    devices = "device" if demand.num_gpus == 1 else "devices"
    return f"needs {demand.num_gpus} {demand.pool} {devices}, {num_devices} to be had"


def _united(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(first + second))
