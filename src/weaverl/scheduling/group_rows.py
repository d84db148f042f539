"""One group as a row of the table: who is on which node, what that leaves free, and why nobody may join."""

from collections.abc import Mapping, Sequence

import msgspec

from weaverl.domain.cluster import PoolKind, Slot
from weaverl.domain.groups import Group, Pin
from weaverl.domain.jobs import HostMemory, PhaseProfile
from weaverl.scheduling.group_table import GroupRow, MemberRow, NodeRow
from weaverl.scheduling.round_model import Durations, Member, Switches, allowed_us, is_saturated
from weaverl.scheduling.state import ClusterState, JobRecord, planned_member

SATURATED = "saturated: its busiest device has no bubble left"
_MOST = 60
"""Members and nodes that the bits of a column hold."""


class Placed(msgspec.Struct, frozen=True):
    """A pinned job as its group's row needs it. ``is_whole``: it has whole nodes, and its phases their own pools'."""

    pin: Pin
    profile: PhaseProfile | None
    is_ending: bool
    rollout_nodes: tuple[str, ...]
    training_nodes: tuple[str, ...]
    host_memory: HostMemory
    member: Member | None
    allowed_us: int
    is_whole: bool

    @property
    def durations(self) -> Durations:
        """Phase times; the job has a profile."""
        assert self.member is not None
        return self.member.durations

    @property
    def switches(self) -> Switches:
        """Switch times; the job has a profile."""
        assert self.member is not None
        return self.member.switches


def placed(state: ClusterState, record: JobRecord) -> Placed:
    """Look a pinned job up once."""
    pin, profile = record.pin, record.profile
    assert pin is not None
    member = None if profile is None else planned_member(state, record.spec.name, profile, pin)
    return Placed(
        pin,
        profile,
        record.ending is not None,
        pin.nodes(PoolKind.ROLLOUT),
        pin.nodes(PoolKind.TRAINING),
        record.spec.host_memory,
        member,
        0 if member is None else allowed_us(record.slo, member.solo_us),
        _has_whole_nodes(state, pin.rollout, PoolKind.ROLLOUT)
        and _has_whole_nodes(state, pin.training, PoolKind.TRAINING),
    )


def closed_reason(state: ClusterState, group: Group) -> str:
    """Why nobody may join a group, or an empty string; saturation is asked of the members in ``describe``."""
    for record in state.members(group):
        if record.profile is None:
            return f"{record.spec.name} is being profiled there"
        if record.ending is not None:
            return f"{record.spec.name} is leaving it"
    for job, move in state.moves.items():
        if move.group == group.name and state.jobs[job].ending is not None:
            return f"{job} is moving there"
    return ""


def describe(group: Group, members: Sequence[Placed], closed: str, free_bytes: Mapping[str, int]) -> GroupRow:
    """The group's row; ``free_bytes`` of each of its nodes, -1 where nothing may be placed."""
    if closed:
        return GroupRow(closed)
    if not _is_regular(group, members):
        is_full = is_saturated([one.member for one in members if one.member is not None])
        return GroupRow(SATURATED) if is_full else GroupRow(odd=True)
    rollout = _Pool(group.rollout_nodes, [one.rollout_nodes for one in members])
    training = _Pool(group.training_nodes, [one.training_nodes for one in members])
    parts = _parts(list(zip(rollout.uses, training.uses, strict=True)))
    rows = tuple(
        MemberRow(
            (one.durations.rollout_us, one.durations.training_us),
            (one.switches.rollout_us, one.switches.training_us),
            one.durations.sync_us + one.durations.other_us,
            one.allowed_us,
            (rollout.uses[place], training.uses[place]),
            (rollout.is_shared[place], training.is_shared[place]),
            parts[place],
        )
        for place, one in enumerate(members)
    )
    loads = [pool.loads([_held_us(row, place) for row in rows]) for place, pool in enumerate((rollout, training))]
    if min(loads[0] + loads[1]) <= 0:
        return GroupRow(odd=True)
    is_full = max(loads[0] + loads[1]) >= max(one.durations.solo_us for one in members)
    nodes = [
        tuple(NodeRow(load, free_bytes[name]) for name, load in zip(pool.names, loads_of_pool, strict=True))
        for pool, loads_of_pool in zip((rollout, training), loads, strict=True)
    ]
    return GroupRow(SATURATED if is_full else "", members=rows, nodes=(nodes[0], nodes[1]))


def _held_us(row: MemberRow, pool: int) -> int:
    return row.body_us[pool] + (row.switch_us[pool] if row.shared[pool] else 0)


class _Pool:
    """The group's nodes of one pool by name, and which members use which: a bit a node, in that order."""

    def __init__(self, names: tuple[str, ...], nodes_of: list[tuple[str, ...]]) -> None:
        self.names = sorted(names)
        bit = {name: 1 << place for place, name in enumerate(self.names)}
        self.uses = [sum(bit[node] for node in nodes) for nodes in nodes_of]
        self.is_shared = [
            any(use & other for other in self.uses[:place] + self.uses[place + 1 :])
            for place, use in enumerate(self.uses)
        ]

    def loads(self, held_us: list[int]) -> list[int]:
        """Time a round that each node is held."""
        return [
            sum(held for use, held in zip(self.uses, held_us, strict=True) if use >> place & 1)
            for place in range(len(self.names))
        ]


def _is_regular(group: Group, members: Sequence[Placed]) -> bool:
    fits = max(len(members), len(group.rollout_nodes), len(group.training_nodes)) <= _MOST
    return fits and not group.quantum_us and all(one.is_whole and not one.durations.staleness for one in members)


def _has_whole_nodes(state: ClusterState, slots: tuple[Slot, ...], pool: PoolKind) -> bool:
    nodes = [state.nodes[name].node for name in dict.fromkeys(slot.node for slot in slots)]
    return all(node.pool is pool for node in nodes) and sum(node.num_devices for node in nodes) == len(slots)


def _parts(uses: list[tuple[int, int]]) -> list[int]:
    """A number for each member, the same for those that share nodes, also through others."""
    found: list[tuple[int, int, list[int]]] = []
    for place, (rollout, training) in enumerate(uses):
        touching = [part for part in found if part[0] & rollout or part[1] & training]
        found = [part for part in found if part not in touching]
        for part in touching:
            rollout, training = rollout | part[0], training | part[1]
        found.append((rollout, training, [one for part in touching for one in part[2]] + [place]))
    number = {place: part for part, (_, _, places) in enumerate(found) for place in places}
    return [number[place] for place in range(len(uses))]
