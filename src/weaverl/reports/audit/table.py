"""A timeline as columns of whole numbers: one row an interval, names and slots looked up in lists."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

Record = dict[str, Any]
Column = np.ndarray[Any, Any]
PHASES = ("loading", "rollout", "training", "sync")
LOADING, ROLLOUT, TRAINING, SYNC = range(4)
STEPS = ("requested_at", "granted_at", "started_at", "ended_at", "released_at")
COLUMNS = ("job", "attempt", "phase", "iteration", "part", "slots", *STEPS, "solo_us", "token")
RESTORE_COLUMNS = ("job", "attempt", "pool", "slots", "token", "began_at", "ready_at", "left_at")
POOLS = ("rollout", "training")
NO_TOKEN = -1
EPOCH_BITS = 40
"""A token is one number: the epoch above, the counter in the lower bits."""


@dataclass(frozen=True)
class AuditFinding:
    """One fault: the check that found it, and what it saw, in a line."""

    check: str
    message: str

    def __str__(self) -> str:
        return f"{self.check}: {self.message}"


@dataclass
class Table:
    """All intervals of a run. ``spans``: which group had which node from when to when, if that is known.

    ``restores``: the columns of what was restored ahead of its phase; they are no intervals.
    """

    header: Record
    jobs: Sequence[str]
    slots: Sequence[Sequence[tuple[str, int]]]
    columns: dict[str, Column]
    spans: list[Record] = field(default_factory=list)
    damage: list[AuditFinding] = field(default_factory=list)
    restores: dict[str, Column] = field(default_factory=lambda: _columns((), RESTORE_COLUMNS))

    def __getitem__(self, column: str) -> Column:
        return self.columns[column]

    def __len__(self) -> int:
        return len(self.columns["job"])

    def take(self, rows: Column) -> "Table":
        """Some of the rows."""
        return Table(self.header, self.jobs, self.slots, {name: values[rows] for name, values in self.columns.items()})

    def who(self, row: int | np.integer[Any]) -> str:
        """Job and attempt of a row."""
        return f"{self.jobs[self['job'][row]]}#{self['attempt'][row]}"

    def name(self, row: int | np.integer[Any]) -> str:
        """A row for people."""
        return f"{self.who(row)} {PHASES[self['phase'][row]]} {self['iteration'][row]}"


def table_of_rows(
    header: Record,
    jobs: Sequence[str],
    slots: Sequence[Sequence[tuple[str, int]]],
    flat: Any,
    spans: list[Record],
    restored: Any = (),
) -> Table:
    """A table from numbers in the order of ``COLUMNS``, row after row; ``restored`` in that of ``RESTORE_COLUMNS``."""
    restores = _columns(restored, RESTORE_COLUMNS)
    return Table(header, jobs, slots, _columns(flat, COLUMNS), spans, restores=restores)


def _columns(flat: Any, names: Sequence[str]) -> dict[str, Column]:
    numbers = np.asarray(flat, dtype=np.int64).reshape(-1, len(names))
    return {name: np.ascontiguousarray(numbers[:, place]) for place, name in enumerate(names)}


def read_table(path: Path) -> tuple[Table, list[Record]]:
    """A timeline file as a table, and its intervals as they stand there."""
    records, damage = _records(path)
    header, *rest = records
    spans = [one for one in rest if "group" in one]
    restores = [one for one in rest if "restored" in one]
    intervals = [one for one in rest if "group" not in one and "restored" not in one]
    return _table(header, intervals, spans, restores, damage), intervals


def _records(path: Path) -> tuple[list[Record], list[AuditFinding]]:
    *lines, tail = path.read_bytes().split(b"\n")
    damage, records = [], []
    for number, line in enumerate([*lines, tail] if tail else lines, start=1):
        try:
            records.append(json.loads(line))
        except ValueError:
            torn = number > len(lines)
            if not torn:
                damage.append(AuditFinding("file", f"line {number} is not JSON"))
    return records, damage


def _table(
    header: Record, intervals: list[Record], spans: list[Record], restores: list[Record], damage: list[AuditFinding]
) -> Table:
    jobs: dict[str, int] = {}
    slots: dict[tuple[tuple[str, int], ...], int] = {}
    flat: list[int] = []
    for one in intervals:
        where = tuple((slot["node"], slot["device"]) for slot in one["slots"])
        flat += [
            jobs.setdefault(one["job"], len(jobs)),
            one["attempt"],
            PHASES.index(one["phase"]),
            one["iteration"],
            one.get("part", 0),
            slots.setdefault(where, len(slots)),
            *(one[step] for step in STEPS),
            one.get("solo_us", 0),
            _token(one.get("token", "")),
        ]
    restored: list[int] = []
    for one in restores:
        where = tuple((slot["node"], slot["device"]) for slot in one["slots"])
        restored += [
            jobs.setdefault(one["job"], len(jobs)),
            one["attempt"],
            POOLS.index(one["restored"]),
            slots.setdefault(where, len(slots)),
            _token(one["token"]),
            *(one[step] for step in ("began_at", "ready_at", "left_at")),
        ]
    table = table_of_rows(header, list(jobs), list(slots), flat, spans, restored)
    table.damage = damage
    return table


def _token(text: str) -> int:
    epoch, _, counter = text.partition(".")
    return (int(epoch) << EPOCH_BITS) + int(counter) if text else NO_TOKEN


def by_slot(table: Table, rows: Column) -> tuple[Column, Column, list[tuple[str, int]]]:
    """Each of the rows once for each of its slots: row and slot number, and the slots themselves.

    Slots that are always together count as one, named by the first of them.
    """
    member_of: dict[tuple[str, int], list[int]] = {}
    for number, where in enumerate(table.slots):
        for slot in where:
            member_of.setdefault(slot, []).append(number)
    classes: dict[tuple[int, ...], int] = {}
    names: list[tuple[str, int]] = []
    of_tuple: list[list[int]] = [[] for _ in table.slots]
    for slot, numbers in sorted(member_of.items()):
        key = tuple(numbers)
        if key not in classes:
            classes[key] = len(names)
            names.append(slot)
            for number in numbers:
                of_tuple[number].append(classes[key])
    counts = np.array([len(one) for one in of_tuple], dtype=np.int64)
    starts = np.concatenate(([0], np.cumsum(counts)))[:-1] if len(counts) else counts
    flat = np.array([one for found in of_tuple for one in found], dtype=np.int64)
    tuples = table["slots"][rows]
    times = counts[tuples] if len(counts) else np.zeros(0, dtype=np.int64)
    place = np.arange(times.sum()) - np.repeat(np.cumsum(times) - times, times)
    return np.repeat(rows, times), flat[np.repeat(starts[tuples], times) + place], names


def runs_of(keys: Iterable[Column]) -> Column:
    """Where a new value of any of the keys begins; the rows are sorted by them."""
    change = None
    for key in keys:
        differs = np.concatenate(([True], key[1:] != key[:-1])) if len(key) else np.zeros(0, dtype=bool)
        change = differs if change is None else change | differs
    assert change is not None
    return np.flatnonzero(change)
