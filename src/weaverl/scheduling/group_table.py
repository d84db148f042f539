"""What admission asks of all groups at once, as columns: a group a row, in the order in which they were made.

Members and nodes are padded to the largest group's numbers and lie on the leading axes, so that a step over them is
one pass over contiguous rows. Only groups whose members all have whole nodes in both pools are described in full; the
others are ``odd``, and are judged one by one.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weaverl.scheduling.stacked_rounds import NEVER

FULL = 2**60
"""The load of a node that is not there or may not be used, and the budget of a member that is not there."""

GONE, CLOSED, OPEN, ODD = 0, 1, 2, 5
"""How a row stands. These are also the answers of groups that refuse everybody, have no room, or are to be asked."""

NO_PART = 63
"""The part of a member that is not there."""

_ROWS = 64


Both = tuple[int, int]
"""A number for the rollout and one for the training pool."""


class MemberRow(NamedTuple):
    """One member. Times in microseconds; ``use`` has a bit for each of the group's nodes of a pool, by name.

    ``shared``: whether it pays switches there. ``part`` numbers the sets of members that share nodes, also through
    others; ``allowed_us`` is the longest round that keeps the member's promise.
    """

    body_us: Both
    switch_us: Both
    rest_us: int
    allowed_us: int
    use: Both
    shared: tuple[bool, bool]
    part: int


class NodeRow(NamedTuple):
    """One node of a group: its load a round, and the host memory left; -1 where nothing may be placed."""

    load_us: int
    free_bytes: int


class GroupRow(NamedTuple):
    """A group; ``closed`` says why nobody may join, or is empty. Closed and odd groups need no members and nodes.

    A saturated group has them, as not every policy finds it full.
    """

    closed: str = ""
    odd: bool = False
    members: tuple[MemberRow, ...] = ()
    nodes: tuple[tuple[NodeRow, ...], tuple[NodeRow, ...]] = ((), ())


_SHAPES: dict[str, tuple[str, int | bool]] = {
    **dict.fromkeys(("standing", "num_members", "num_parts", "longest_us"), ("", 0)),
    "least_allowed_us": ("", FULL),
    "most_free": ("pool", -1),
    **dict.fromkeys(("body_us", "switch_us", "use"), ("pool member", 0)),
    "shared": ("pool member", False),
    "rest_us": ("member", 0),
    "allowed_us": ("member", FULL),
    "part": ("member", NO_PART),
    "gap": ("pool member member", NEVER),
    "load_us": ("pool node", FULL),
    "free_bytes": ("pool node", -1),
}
"""The axes of each column before the rows, and what stands where nothing is."""


class GroupTable:
    """The rows. ``standing`` is one of ``GONE``, ``CLOSED``, ``OPEN`` and ``ODD``.

    Only open groups and saturated ones have all columns. Columns bear the names of the fields of ``MemberRow`` and
    ``NodeRow``, with the axes of ``_SHAPES``; ``gap`` is 0 where two members share a node of a pool, else ``NEVER``.
    ``least_allowed_us`` and ``longest_us`` are over all members of a group that is one part, and say nothing of one
    that is several. ``most_free`` is the host memory of the emptiest node of a group that is not closed.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.closed: list[str] = []
        self._row_of: dict[str, int] = {}
        self._columns: dict[str, NDArray[Any]] = {}
        self._allocate({"": _ROWS, "member": 2, "node": 1})

    def __len__(self) -> int:
        """Rows in use, those of dropped groups included."""
        return len(self.names)

    def __getitem__(self, column: str) -> NDArray[Any]:
        """A column; its last axis is the rows in use."""
        return self._columns[column][..., : len(self.names)]

    def put(self, name: str, group: GroupRow) -> None:
        """Write a group as it is now; a new one gets the last row."""
        row = self._row_of.get(name)
        self._make_room(row is None, len(group.members), max(map(len, group.nodes)))
        if row is None:
            row = self._row_of[name] = len(self.names)
            self.names.append(name)
            self.closed.append("")
        self.closed[row] = group.closed
        columns = self._columns
        columns["standing"][row] = CLOSED if group.closed else ODD if group.odd else OPEN
        self._write_members(row, group.members)
        for pool, nodes in enumerate(group.nodes):
            self._write_nodes(row, pool, nodes, joinable=not group.closed)

    def drop(self, name: str) -> None:
        """Forget a group; rows of dropped groups go when they are the most."""
        row = self._row_of.pop(name, None)
        if row is None:
            return
        self._columns["standing"][row] = GONE
        self._columns["most_free"][:, row] = -1
        if len(self.names) > _ROWS and len(self._row_of) < len(self.names) // 2:
            self._compact()

    def copy(self) -> "GroupTable":
        """A table that can be changed without changing this one."""
        other = GroupTable()
        other.names, other.closed, other._row_of = self.names[:], self.closed[:], dict(self._row_of)
        other._sizes = dict(self._sizes)
        other._columns = {name: column.copy() for name, column in self._columns.items()}
        return other

    def _write_members(self, row: int, members: tuple[MemberRow, ...]) -> None:
        columns, num_members = self._columns, len(members)
        before, columns["num_members"][row] = int(columns["num_members"][row]), num_members
        for name, values in zip(MemberRow._fields, zip(*members, strict=True), strict=False):
            columns[name][..., :num_members, row] = np.array(values).T
        for name in MemberRow._fields if before > num_members else ():
            columns[name][..., num_members:, row] = _SHAPES[name][1]
        columns["gap"][..., row] = NEVER
        if members:
            columns["gap"][:, :num_members, :num_members, row] = np.where(_sharing(members), 0, NEVER)
        columns["num_parts"][row] = len({member.part for member in members})
        columns["least_allowed_us"][row] = min((member.allowed_us for member in members), default=FULL)
        columns["longest_us"][row] = max((_chain_us(member) for member in members), default=0)

    def _write_nodes(self, row: int, pool: int, nodes: tuple[NodeRow, ...], *, joinable: bool) -> None:
        load, free = self._columns["load_us"][pool], self._columns["free_bytes"][pool]
        load[: len(nodes), row] = [node.load_us for node in nodes]
        free[: len(nodes), row] = [node.free_bytes for node in nodes]
        load[len(nodes) :, row], free[len(nodes) :, row] = FULL, -1
        most_free = max((node.free_bytes for node in nodes), default=-1)
        self._columns["most_free"][pool, row] = most_free if joinable else -1

    def _make_room(self, is_new: bool, num_members: int, num_nodes: int) -> None:
        wanted = {"": len(self.names) + is_new, "member": num_members, "node": num_nodes}
        if any(wanted[axis] > size for axis, size in self._sizes.items()):
            self._allocate({axis: _grown(size, wanted[axis]) for axis, size in self._sizes.items()})

    def _allocate(self, sizes: dict[str, int]) -> None:
        """Larger columns with what was in the former ones."""
        self._sizes = sizes
        for name, (axes, padding) in _SHAPES.items():
            shape = (*(2 if axis == "pool" else sizes[axis] for axis in axes.split()), sizes[""])
            kind = np.int8 if name == "standing" else np.bool_ if isinstance(padding, bool) else np.int64
            column: NDArray[Any] = np.full(shape, padding, kind)
            before = self._columns.get(name)
            if before is not None:
                column[tuple(slice(size) for size in before.shape)] = before
            self._columns[name] = column

    def _compact(self) -> None:
        kept = np.fromiter(self._row_of.values(), np.int64, len(self._row_of))
        kept.sort()
        self.names = [self.names[row] for row in kept]
        self.closed = [self.closed[row] for row in kept]
        self._row_of = {name: row for row, name in enumerate(self.names)}
        for name, column in self._columns.items():
            shrunk = column[..., kept]
            column[..., : len(kept)] = shrunk
            column[..., len(kept) :] = _SHAPES[name][1]


def _grown(size: int, wanted: int) -> int:
    return size if wanted <= size else max(wanted, size * 2)


def _chain_us(member: MemberRow) -> int:
    """One iteration of a member with the switches that it pays already."""
    switches = (switch for switch, is_shared in zip(member.switch_us, member.shared, strict=True) if is_shared)
    return sum(member.body_us) + member.rest_us + sum(switches)


def _sharing(members: tuple[MemberRow, ...]) -> NDArray[np.bool_]:
    """Where two members (pool, members, members) have a node in common."""
    uses = np.array([member.use for member in members]).T
    shares: NDArray[np.bool_] = (uses[:, :, None] & uses[:, None, :]) != 0
    return shares & ~np.eye(len(members), dtype=np.bool_)
