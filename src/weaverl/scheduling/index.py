"""What placement looks up, derived from the cluster's state and kept up to date by the names of what was folded.

It is never stored: a state that comes from a snapshot gets a new one. Everything that a decision asks of all groups
lies in the columns of a ``GroupTable``; a fold costs what its own group costs.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable

import msgspec

from weaverl.domain.groups import Group
from weaverl.domain.jobs import JobState
from weaverl.scheduling.free_nodes import NodeCatalog, NodeClass
from weaverl.scheduling.group_rows import Placed, closed_reason, describe, placed
from weaverl.scheduling.group_table import GroupTable
from weaverl.scheduling.round_model import Member
from weaverl.scheduling.state import Changed, ClusterState, JobRecord

_Turn = tuple[int, int, str]


class ClusterIndex:
    """Nodes by class, groups as columns, host memory taken, and the queue in order.

    ``version`` rises with every change that a decision could see. ``free_bytes`` is the host memory left on each node.
    ``looked_at`` is at which version a job in the queue was judged last, which job was the first there then (None:
    nothing fitted, whoever was), and whether its deadline bound it; ``no_way`` at which version nobody of whom could
    make way for which job; ``expected_start`` at which version and time the first in the queue was expected to start
    when.
    """

    def __init__(self) -> None:
        self.catalog = NodeCatalog()
        self.table = GroupTable()
        self.version = 0
        self.free_bytes: dict[str, int] = {}
        self._resident: dict[str, int] = {}
        self._group_of: dict[str, str] = {}
        self._nodes_of: dict[str, tuple[str, ...]] = {}
        self._placed: dict[str, Placed] = {}
        self.looked_at: dict[str, tuple[int, str | None, bool]] = {}
        self.no_way: tuple[int, str, tuple[str, ...]] | None = None
        self.expected_start: tuple[tuple[int, int, str], int] | None = None
        self._queue: list[_Turn] = []
        self._turn_of: dict[str, _Turn] = {}

    def resident_bytes(self, node: str) -> int:
        """Host memory that the jobs pinned to a node keep there, ending ones included."""
        return self._resident.get(node, 0)

    def group_on(self, node: str) -> str | None:
        """The group that a node is in."""
        return self._group_of.get(node)

    def members(self, names: Iterable[str]) -> list[Member]:
        """Pinned jobs with profiles as the round model sees them."""
        found = (self._placed[name].member for name in names)
        return [member for member in found if member is not None]

    def queue(self) -> list[str]:
        """The jobs that wait, by priority and then by arrival."""
        return [turn[2] for turn in self._queue]

    def refresh(self, state: ClusterState, changed: Changed) -> None:
        """Take in what was folded since the last time."""
        for name in changed.jobs:
            record = state.jobs.get(name)
            self._requeue(name, record)
            if record is None or record.pin is None:
                self._placed.pop(name, None)
            elif record.group is not None and self._is_news(record):
                changed.groups[record.group] = None
        for node in changed.nodes:
            if node in self._group_of:
                changed.groups[self._group_of[node]] = None
        before = {node for name in changed.groups for node in self._release(name)}
        after: set[str] = set()
        for name in changed.groups:
            group = state.groups.get(name)
            if group is None:
                self.table.drop(name)
            else:
                self._take(state, group)
                after.update(group.nodes)
        for node in (before ^ after) | changed.nodes.keys():
            self._catalogue(state, node)
        self.version += bool(changed.nodes or changed.groups)

    def copy(self) -> "ClusterIndex":
        """An index that can follow another course of events."""
        other = ClusterIndex()
        other.catalog, other.table, other.version = self.catalog.copy(), self.table.copy(), self.version
        other.free_bytes = dict(self.free_bytes)
        other._resident, other._group_of = dict(self._resident), dict(self._group_of)
        other._nodes_of, other._placed = dict(self._nodes_of), dict(self._placed)
        other._queue, other._turn_of = self._queue[:], dict(self._turn_of)
        return other

    def _requeue(self, name: str, record: JobRecord | None) -> None:
        self.looked_at.pop(name, None)
        before = self._turn_of.pop(name, None)
        if before is not None:
            del self._queue[bisect_left(self._queue, before)]
        if record is not None and record.state is JobState.QUEUED:
            turn = self._turn_of[name] = (-record.spec.priority, record.submitted_at, name)
            insort(self._queue, turn)

    def _release(self, name: str) -> tuple[str, ...]:
        nodes = self._nodes_of.pop(name, ())
        for node in nodes:
            self._group_of.pop(node, None)
            self._resident.pop(node, None)
        return nodes

    def _take(self, state: ClusterState, group: Group) -> None:
        self._nodes_of[group.name] = group.nodes
        self._group_of |= dict.fromkeys(group.nodes, group.name)
        members = [self._member(state, record) for record in state.members(group) if record.pin is not None]
        for member in members:
            for nodes, num_bytes in (
                (member.rollout_nodes, member.host_memory.rollout_bytes),
                (member.training_nodes, member.host_memory.training_bytes),
            ):
                for node in nodes:
                    self._resident[node] = self._resident.get(node, 0) + num_bytes
        for node in group.nodes:
            self.free_bytes[node] = state.usable_host_bytes(node) - self._resident.get(node, 0)
        offered = {node: max(self.free_bytes[node], 0) if state.nodes[node].usable else -1 for node in group.nodes}
        self.table.put(group.name, describe(group, members, closed_reason(state, group), offered))

    def _member(self, state: ClusterState, record: JobRecord) -> Placed:
        if self._is_news(record):
            self._placed[record.spec.name] = placed(state, record)
        return self._placed[record.spec.name]

    def _is_news(self, record: JobRecord) -> bool:
        """Whether a pinned job is not as it was last taken in: most steps of its life mean nothing to others."""
        known = self._placed.get(record.spec.name)
        return (
            known is None
            or known.pin is not record.pin
            or known.profile is not record.profile
            or known.is_ending != (record.ending is not None)
        )

    def _catalogue(self, state: ClusterState, name: str) -> None:
        record = state.nodes[name]
        of = NodeClass(record.node.pool, record.node.num_devices, state.usable_host_bytes(name))
        self.catalog.put(name, of, free=record.usable and name not in self._group_of)
        self.free_bytes[name] = of.usable_bytes - self._resident.get(name, 0)


def index_of(state: ClusterState) -> ClusterIndex:
    """The state's index, up to date."""
    known: ClusterIndex | None = vars(state).get("index")
    changed = state.changed
    if known is None:
        known = vars(state)["index"] = ClusterIndex()
        changed.add_all(state)
    if changed.nodes or changed.jobs or changed.groups:
        known.refresh(state, changed)
        changed.clear()
    return known


def trial_of(state: ClusterState) -> ClusterState:
    """A state that can follow another course of events. It shares the jobs' records: replace them, never change one."""
    trial = msgspec.structs.replace(state, jobs=dict(state.jobs), groups=dict(state.groups))
    vars(trial)["index"] = index_of(state).copy()
    return trial
