"""The policy as published (WEAVE, OSDI 2026, algorithm 1): pack, else scale the rollout side, else isolate.

Candidates come in the order of their added cost. Saturated groups are pruned first. Rollout time for planning is
the profile at the response cap.
"""

from collections.abc import Iterator
from math import ceil

from weaverl.domain.cluster import Node, PoolKind, Slot
from weaverl.domain.groups import Group, Pin
from weaverl.domain.jobs import JobSpec, Placement
from weaverl.scheduling.admission import Candidate, lacking_memory, switches_of
from weaverl.scheduling.round_model import is_saturated, slot_loads
from weaverl.scheduling.state import ClusterState, as_member

_KINDS = ("pack", "scale rollout", "isolate")


def candidates(state: ClusterState, spec: JobSpec) -> list[Candidate]:
    """All placements of the family, cheapest first; ties go to packing, then to the group named first."""
    found = [_isolated(state, spec)]
    for _, group in sorted(state.groups.items()):
        found += _shared(state, spec, group)
    return sorted(found, key=lambda c: (c.added_usd_per_hour, _KINDS.index(c.kind), c.group.name))


def _shared(state: ClusterState, spec: JobSpec, group: Group) -> Iterator[Candidate]:
    closed = _closed(state, spec, group)
    if closed:
        yield Candidate(kind="pack", group=group, added_usd_per_hour=0.0, refused=closed)
        return
    rollout = _nodes(state, group.rollout_nodes)
    training = _nodes(state, group.training_nodes)
    yield _candidate(state, spec, group, rollout, training, "pack")
    if spec.placement is Placement.LOCAL:
        return
    free = _roomy(state, spec, PoolKind.ROLLOUT, state.free_nodes(PoolKind.ROLLOUT))
    needed = ceil(spec.rollout_gpus / max((node.num_devices for node in free), default=1))
    for added in range(1, min(needed, len(free)) + 1):
        kept = rollout if added < needed else []
        yield _candidate(state, spec, group, free[:added] + kept, training, "scale rollout")


def _closed(state: ClusterState, spec: JobSpec, group: Group) -> str:
    """Why nobody may join the group, or an empty string."""
    members = state.members(group)
    if spec.profile is None:
        return "a job without a profile is placed alone until its first iterations gave one"
    for record in members:
        if record.profile is None:
            return f"{record.spec.name} is being profiled there"
        if record.ending is not None:
            return f"{record.spec.name} is leaving it"
    if is_saturated([as_member(record) for record in members], switches_of(state.cluster)):
        return "saturated: its busiest device has no bubble left"
    return ""


def _isolated(state: ClusterState, spec: JobSpec) -> Candidate:
    group = Group(f"g{state.groups_made + 1}", (), (), ())
    rollout, training = state.free_nodes(PoolKind.ROLLOUT), state.free_nodes(PoolKind.TRAINING)
    return _candidate(state, spec, group, rollout, training, "isolate")


def _candidate(
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
    members = [as_member(record) for record in state.members(group)]
    loads = slot_loads(members, switches_of(state.cluster))
    if spec.placement is Placement.LOCAL:
        hosts = sorted({node.host for node in rollout} & {node.host for node in training})
    else:
        hosts = [""]
    refused = "no host offers both pools" if not hosts else ""
    for host in hosts:
        chosen: list[tuple[Slot, ...]] = []
        for pool, nodes, num_gpus in (
            (PoolKind.ROLLOUT, rollout, spec.rollout_gpus),
            (PoolKind.TRAINING, training, spec.training_gpus),
        ):
            near = [node for node in nodes if not host or node.host == host]
            slots, reason = _choose(state, spec, pool, near, num_gpus, loads)
            refused = refused or reason
            chosen.append(slots)
        if all(chosen):
            return Pin(chosen[0], chosen[1]), ""
    return None, refused


def _choose(
    state: ClusterState,
    spec: JobSpec,
    pool: PoolKind,
    nodes: list[Node],
    num_gpus: int,
    loads: dict[Slot, int],
) -> tuple[tuple[Slot, ...], str]:
    """The least loaded devices; among equals on the smallest node that holds all, where host memory holds the job."""
    lacking = {node.name: lacking_memory(state, spec, pool, node.name) for node in nodes}
    roomy = _roomy(state, spec, pool, nodes)

    def node_load(node: Node) -> int:
        return sum(loads.get(Slot(node.name, device), 0) for device in range(node.num_devices))

    chosen: list[Slot] = []

    def preference(node: Node) -> tuple[int, bool, int, str]:
        return node_load(node), node.num_devices < num_gpus, node.num_devices, node.name

    for node in sorted(roomy, key=preference):
        devices = sorted(range(node.num_devices), key=lambda d: (loads.get(Slot(node.name, d), 0), d))
        take = devices[: num_gpus - len(chosen)]
        chosen += [Slot(node.name, device) for device in sorted(take)]
        if len(chosen) == num_gpus:
            return tuple(chosen), ""
    refused = next((reason for reason in lacking.values() if reason), "")
    return (), refused or f"needs {num_gpus} {pool} devices, {len(chosen)} are to be had"


def _roomy(state: ClusterState, spec: JobSpec, pool: PoolKind, nodes: list[Node]) -> list[Node]:
    return [n for n in nodes if state.nodes[n.name].usable and not lacking_memory(state, spec, pool, n.name)]


def _nodes(state: ClusterState, names: tuple[str, ...]) -> list[Node]:
    return [state.nodes[name].node for name in names]


def _united(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(first + second))
