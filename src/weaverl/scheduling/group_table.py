"""What admission asks of all groups at once, as columns: a group a row, in the order in which they were made.

Members and nodes are padded to the largest group's numbers and lie on the leading axes, so that a step over them is
one pass over contiguous rows. Only groups whose members all have whole nodes in both pools are described in full; the
others are ``odd``, and are judged one by one.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

FULL = 2**60
"""The load of a node that is not there or may not be used, and the budget of a member that is not there."""

NO_PART = 63
"""The part of a member that is not there."""

_ROWS = 64


class MemberRow(NamedTuple):
    """One member. Times in microseconds; ``*_use`` has a bit for each of the group's nodes, by name.

    ``*_shared``: whether it pays switches there. ``part`` numbers the sets of members that share nodes, also through
    others; ``allowed_us`` is the longest round that keeps the member's promise.
    """

    rollout_us: int
    training_us: int
    rest_us: int
    rollout_switch_us: int
    training_switch_us: int
    allowed_us: int
    rollout_use: int
    training_use: int
    rollout_shared: bool
    training_shared: bool
    part: int


class NodeRow(NamedTuple):
    """One node of a group: its load a round, and the host memory left; -1 where nothing may be placed."""

    load_us: int
    free_bytes: int


class GroupRow(NamedTuple):
    """A group; ``closed`` says why nobody may join, or is empty. Closed and odd groups need no members and nodes."""

    closed: str = ""
    odd: bool = False
    members: tuple[MemberRow, ...] = ()
    rollout_nodes: tuple[NodeRow, ...] = ()
    training_nodes: tuple[NodeRow, ...] = ()


_BY_ROW = (
    *("alive", "open", "odd", "num_members", "num_parts", "least_allowed_us", "longest_us"),
    *("most_rollout_free", "most_training_free"),
)
_BY_PAIR = ("rollout_pair", "training_pair")
_BY_NODE = ("rollout_load_us", "rollout_free_bytes", "training_load_us", "training_free_bytes")
_PADDING: dict[str, int | bool] = {
    **dict.fromkeys(MemberRow._fields, 0),
    **dict.fromkeys(("alive", "open", "odd", "rollout_shared", "training_shared", *_BY_PAIR), False),
    **dict.fromkeys(("allowed_us", "rollout_load_us", "training_load_us"), FULL),
    **dict.fromkeys(("rollout_free_bytes", "training_free_bytes"), -1),
    "part": NO_PART,
}


class GroupTable:
    """The rows. Columns are ``open``, ``odd``, ``alive`` and those of ``_PADDING``.

    Named after the fields of ``MemberRow`` (members, rows); ``*_pair`` (members, members, rows) where two share a node
    of a pool; ``*_load_us`` and ``*_free_bytes`` (nodes, rows). ``least_allowed_us`` and ``longest_us`` are over all
    members of a group that is one part, and say nothing of one that is several. ``most_*_free`` is the host memory
    left on the group's emptiest node.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.closed: list[str] = []
        self._row_of: dict[str, int] = {}
        self._columns: dict[str, NDArray[Any]] = {}
        self._allocate(_ROWS, members=2, nodes=1)

    def __len__(self) -> int:
        """Rows in use, those of dropped groups included."""
        return len(self.names)

    def __getitem__(self, column: str) -> NDArray[Any]:
        """A column; its last axis is the rows in use."""
        return self._columns[column][..., : len(self.names)]

    def put(self, name: str, group: GroupRow) -> None:
        """Write a group as it is now; a new one gets the last row."""
        row = self._row_of.get(name)
        self._make_room(row is None, len(group.members), max(len(group.rollout_nodes), len(group.training_nodes)))
        if row is None:
            row = self._row_of[name] = len(self.names)
            self.names.append(name)
            self.closed.append("")
        self.closed[row] = group.closed
        columns = self._columns
        columns["alive"][row], columns["odd"][row] = True, group.odd
        columns["open"][row] = not group.closed and not group.odd
        self._write_members(row, group.members)
        self._write_nodes(row, "rollout", group.rollout_nodes)
        self._write_nodes(row, "training", group.training_nodes)

    def drop(self, name: str) -> None:
        """Forget a group; rows of dropped groups go when they are the most."""
        row = self._row_of.pop(name, None)
        if row is None:
            return
        for column in ("alive", "odd", "open"):
            self._columns[column][row] = False
        if len(self.names) > _ROWS and len(self._row_of) < len(self.names) // 2:
            self._compact()

    def copy(self) -> "GroupTable":
        """A table that can be changed without changing this one."""
        other = GroupTable()
        other.names, other.closed, other._row_of = self.names[:], self.closed[:], dict(self._row_of)
        other._columns = {name: column.copy() for name, column in self._columns.items()}
        return other

    def _write_members(self, row: int, members: tuple[MemberRow, ...]) -> None:
        columns, num_members = self._columns, len(members)
        columns["num_members"][row] = num_members
        for name, values in zip(MemberRow._fields, zip(*members, strict=True), strict=False):
            columns[name][:num_members, row] = values
        for name in MemberRow._fields:
            columns[name][num_members:, row] = _PADDING[name]
        for pair, uses in (
            ("rollout_pair", [m.rollout_use for m in members]),
            ("training_pair", [m.training_use for m in members]),
        ):
            columns[pair][..., row] = False
            columns[pair][:num_members, :num_members, row] = _sharing(uses)
        columns["num_parts"][row] = len({member.part for member in members})
        columns["least_allowed_us"][row] = min((member.allowed_us for member in members), default=FULL)
        columns["longest_us"][row] = max((_chain_us(member) for member in members), default=0)

    def _write_nodes(self, row: int, pool: str, nodes: tuple[NodeRow, ...]) -> None:
        load, free = self._columns[f"{pool}_load_us"], self._columns[f"{pool}_free_bytes"]
        load[: len(nodes), row] = [node.load_us for node in nodes]
        free[: len(nodes), row] = [node.free_bytes for node in nodes]
        load[len(nodes) :, row], free[len(nodes) :, row] = FULL, -1
        self._columns[f"most_{pool}_free"][row] = max((node.free_bytes for node in nodes), default=-1)

    def _make_room(self, is_new: bool, num_members: int, num_nodes: int) -> None:
        columns = self._columns
        rows, (members, _), (nodes, _) = (
            len(columns["alive"]),
            columns["rollout_us"].shape,
            columns["rollout_load_us"].shape,
        )
        if len(self.names) + is_new > rows or num_members > members or num_nodes > nodes:
            more_rows = rows * 2 if len(self.names) + is_new > rows else rows
            self._allocate(more_rows, max(num_members, members), max(num_nodes, nodes))

    def _allocate(self, rows: int, members: int, nodes: int) -> None:
        """Larger columns with what was in the former ones."""
        shapes: dict[str, tuple[int, ...]] = dict.fromkeys(_BY_ROW, (rows,)) | dict.fromkeys(
            MemberRow._fields, (members, rows)
        )
        shapes |= dict.fromkeys(_BY_PAIR, (members, members, rows)) | dict.fromkeys(_BY_NODE, (nodes, rows))
        for name, shape in shapes.items():
            padding = _PADDING.get(name, 0)
            column: NDArray[Any] = np.full(shape, padding, np.bool_ if isinstance(padding, bool) else np.int64)
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
            column[..., len(kept) :] = _PADDING.get(name, 0)


def _chain_us(member: MemberRow) -> int:
    """One iteration of a member with the switches that it pays already."""
    switches = member.rollout_switch_us * member.rollout_shared + member.training_switch_us * member.training_shared
    return member.rollout_us + member.training_us + member.rest_us + switches


def _sharing(uses: list[int]) -> list[list[bool]]:
    return [[i != j and bool(one & other) for j, other in enumerate(uses)] for i, one in enumerate(uses)]
