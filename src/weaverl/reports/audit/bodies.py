"""Bodies of rollouts and trainings in a simulated run: the work that was done in them, and what was to be done."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np

from weaverl.reports.audit.checks import pins_of
from weaverl.reports.audit.lives import Life
from weaverl.reports.audit.table import ROLLOUT, TRAINING, AuditFinding, Column, Record, Table, runs_of

ROUNDING_US = 5
"""Times are rounded to microseconds where the speed of a phase changes."""
POOLS = ("rollout", "training")


@dataclass(frozen=True)
class Bodies:
    """All of them, and the parts that they have. Microseconds at the speed of all devices that were asked for.

    ``first``: the row of each body's first part. ``done`` in it, ``alone`` what it would be without neighbours.
    ``tails``: the rows of tails that were moved, ``body`` of which they are, and what was done ``before`` them.
    """

    table: Table
    first: Column
    done: Column
    alone: Column
    tails: Column
    body: Column
    before: Column

    @property
    def is_rollout(self) -> Column:
        """Which of them are rollouts."""
        found: Column = self.table["phase"][self.first] == ROLLOUT
        return found


def bodies_of(table: Table, parameters: Mapping[str, Any]) -> Bodies:
    """Work is done at the speed of the devices held; slower in a moved tail, and none while it moves."""
    rows = np.flatnonzero((table["phase"] == ROLLOUT) | (table["phase"] == TRAINING))
    order = rows[np.lexsort([table[key][rows] for key in ("part", "phase", "iteration", "attempt", "job")])]
    if not len(order):
        none = np.zeros(0, dtype=np.int64)
        return Bodies(table, none, none, none, none, none, none)
    starts = runs_of([table[key][order] for key in ("job", "attempt", "iteration", "phase")])
    first, lengths = order[starts], np.diff(np.append(starts, len(order)))
    held = np.array([len(where) for where in table.slots])[table["slots"][order]]
    asked = np.repeat(_asked(table, first), lengths)
    is_tail = np.concatenate(([False], held[1:] < held[:-1]))
    is_tail[starts] = False
    before_tail = np.append(is_tail[1:], False)
    useful = (table["ended_at"] - table["started_at"])[order] - before_tail * parameters["tail_move_seconds"] * 1e6
    work = useful * np.where(is_tail, 1.0 / parameters["tail_stretch"], held / asked)
    done = np.add.reduceat(work, starts)
    sofar = np.cumsum(work) - np.repeat(np.cumsum(done) - done, lengths)
    alone = table["solo_us"][first] * _pace(table, first, parameters)
    tails = np.flatnonzero(is_tail)
    body = np.repeat(np.arange(len(starts)), lengths)[tails]
    return Bodies(table, first, done, alone, order[tails], body, sofar[tails - 1])


def interference(bodies: Bodies) -> dict[str, float]:
    """How many times as long the bodies took as they would have without neighbours, by phase."""
    found = {}
    for pool, which in zip(POOLS, (bodies.is_rollout, ~bodies.is_rollout), strict=True):
        alone = float(bodies.alone[which].sum())
        if alone > 0:
            found[f"interference.{pool}"] = float(bodies.done[which].sum()) / alone
    return found


def work(
    bodies: Bodies, lives: list[Life], rows_of: Mapping[str, Record], parameters: Mapping[str, Any]
) -> Iterator[AuditFinding]:
    """Each body did its work: what it would alone, more beside neighbours. A tail came where there is one."""
    table, expected = bodies.table, _expected(bodies, lives, parameters)
    for place in np.flatnonzero(np.abs(bodies.done - expected) > ROUNDING_US):
        did = f"{bodies.done[place]:.0f} us of work, {expected[place]:.0f} were to do"
        yield AuditFinding("work", f"{table.name(bodies.first[place])} did {did}")
    whole = expected[bodies.body]
    for row, share, work_us in zip(bodies.tails, bodies.before / whole, whole, strict=True):
        yield from _tail(table, row, rows_of[table.jobs[table["job"][row]]], float(share), float(work_us), parameters)


def _tail(
    table: Table, row: int, job: Record, share: float, work_us: float, parameters: Mapping[str, Any]
) -> Iterator[AuditFinding]:
    """A tail is moved to the share of its rollout's devices that is asked for, and no sooner than there is a tail.

    ``share``: the part of the work that was done when it moved.
    """
    held, devices = len(table.slots[table["slots"][row]]), ceil(job["rollout_gpus"] * parameters["tail_devices"])
    if not parameters["tail_migration"] or held != devices or table["phase"][row] != ROLLOUT:
        yield AuditFinding("tails", f"{table.name(row)} has its tail on {held} devices, {devices} were asked for")
    elif (job["rollout_p80"] - share) * work_us > ROUNDING_US:
        yield AuditFinding("tails", f"{table.name(row)} has a tail after {share:.3f}, not {job['rollout_p80']}")


def _expected(bodies: Bodies, lives: list[Life], parameters: Mapping[str, Any]) -> Column:
    """The work of each body: more where the job had a neighbour when it was granted.

    Where somebody came or went in that very microsecond either may be, and what was done decides.
    """
    by_phase = [parameters[f"interference_{pool}"] for pool in POOLS]
    if by_phase == [1.0, 1.0]:
        return bodies.alone
    disturbed = bodies.alone * np.where(bodies.is_rollout, *by_phase)
    surely, maybe = _had_neighbours(bodies, lives)
    taken = np.abs(bodies.done - disturbed) <= ROUNDING_US
    return np.where(surely | (maybe & taken), disturbed, bodies.alone)


def _had_neighbours(bodies: Bodies, lives: list[Life]) -> tuple[Column, Column]:
    """Whether anybody else lived on a body's nodes at its grant: surely, and if first and last moments count."""
    table, nodes = bodies.table, _nodes(bodies.table, lives)
    surely, maybe = np.zeros((2, len(table)), dtype=bool)
    is_first = np.zeros(len(table), dtype=bool)
    is_first[bodies.first] = True
    spans = _spans_of(lives, nodes)
    for life, by_phase in zip(lives, nodes, strict=True):
        for phase, where in zip((ROLLOUT, TRAINING), by_phase, strict=True):
            rows = life.rows[is_first[life.rows] & (table["phase"][life.rows] == phase)]
            at = table["granted_at"][rows]
            for node in where:
                inside, touched = spans[node].at(at)
                surely[rows] |= inside > ((life.begin < at) & (at < life.end))
                maybe[rows] |= touched > 1
    return surely[bodies.first], maybe[bodies.first]


def _nodes(table: Table, lives: list[Life]) -> list[tuple[set[str], set[str]]]:
    """The nodes that each attempt's rollouts and trainings are pinned to."""
    pins = pins_of(table)
    found = [pins.get((life.name, life.attempt), {"rollout": set(), "training": set()}) for life in lives]
    return [({node for node, _ in pin["rollout"]}, {node for node, _ in pin["training"]}) for pin in found]


def _spans_of(lives: list[Life], nodes: list[tuple[set[str], set[str]]]) -> dict[str, "_Spans"]:
    on: dict[str, list[Life]] = defaultdict(list)
    for life, (rollout, training) in zip(lives, nodes, strict=True):
        for node in rollout | training:
            on[node].append(life)
    return {node: _Spans(there) for node, there in on.items()}


class _Spans:
    """From when to when attempts lived on a node."""

    def __init__(self, lives: list[Life]) -> None:
        self._begins, self._ends = (np.sort([getattr(one, edge) for one in lives]) for edge in ("begin", "end"))

    def at(self, at: Column) -> tuple[Column, Column]:
        """How many lived at given times, first and last moment not counted, and counted."""
        inside = np.searchsorted(self._begins, at, "left") - np.searchsorted(self._ends, at, "right")
        touched = np.searchsorted(self._begins, at, "right") - np.searchsorted(self._ends, at, "left")
        return inside, touched


def _asked(table: Table, rows: Column) -> Column:
    """How many devices the job is pinned to in the phase's pool."""
    pins = pins_of(table)
    numbers = np.zeros((len(table.jobs), table["attempt"].max(initial=0) + 1, 2), dtype=np.int64)
    for place, name in enumerate(table.jobs):
        for attempt in range(1, numbers.shape[1]):
            if (name, attempt) in pins:
                numbers[place, attempt] = [len(pins[name, attempt][pool]) for pool in POOLS]
    return numbers[table["job"][rows], table["attempt"][rows], np.where(table["phase"][rows] == ROLLOUT, 0, 1)]


def _pace(table: Table, rows: Column, parameters: Mapping[str, Any]) -> Column:
    """How many times as long a phase takes on the GPUs that it ran on."""
    pools = {node["name"]: node["pool"] for node in table.header["cluster"]["nodes"]}
    on_training = np.array([bool(where) and pools[where[0][0]] == "training" for where in table.slots])
    elsewhere = on_training[table["slots"][rows]] == (table["phase"][rows] == ROLLOUT)
    factor = np.where(table["phase"][rows] == ROLLOUT, parameters["colocated_rollout"], parameters["gavel_training"])
    return np.where(elsewhere, factor, 1.0)
