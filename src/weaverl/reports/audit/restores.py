"""What was restored ahead of its phase: on the job's own slots, which nobody else holds, or beside who leaves room."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np

from weaverl.reports.audit.table import PHASES, POOLS, AuditFinding, Column, Record, Table

Span = tuple[int, int, int, int]
"""From when to when, the job, and the row of the interval or, below 0, of the restore."""


def restored_ahead(table: Table) -> Iterator[AuditFinding]:
    """All faults of what was restored ahead."""
    if len(table.restores["job"]):
        yield from _steps(table)
        yield from _pinned(table)
        yield from _room(table)


def hidden_since(table: Table, first: Column) -> Column:
    """When the restore ahead began that each of these phases' grants took over; -1 where there was none."""
    restores = table.restores
    began = {
        (job, attempt, pool, left): since
        for job, attempt, pool, left, since in zip(
            *(restores[name].tolist() for name in ("job", "attempt", "pool", "left_at", "began_at")), strict=True
        )
    }
    keys = zip(*(table[name][first].tolist() for name in ("job", "attempt", "phase", "granted_at")), strict=True)
    found = [began.get((job, attempt, POOLS.index(PHASES[phase]), at), -1) for job, attempt, phase, at in keys]
    return np.array(found, dtype=np.int64)


def _steps(table: Table) -> Iterator[AuditFinding]:
    began, ready, left = (table.restores[name] for name in ("began_at", "ready_at", "left_at"))
    for row in np.flatnonzero((ready < began) | (left < began)):
        yield AuditFinding("restores", f"{_name(table, row)} goes back in time: {[began[row], ready[row], left[row]]}")


def _pinned(table: Table) -> Iterator[AuditFinding]:
    """State is restored where its job is pinned in the pool."""
    pins = {
        (job["name"], pin["attempt"], pool): {(slot["node"], slot["device"]) for slot in pin.get(pool, ())}
        for job in table.header["jobs"]
        for pin in job.get("pins", ())
        for pool in POOLS
    }
    restores = table.restores
    _, rows = np.unique(
        np.stack([restores[name] for name in ("job", "attempt", "pool", "slots")]), axis=1, return_index=True
    )
    for row in rows:
        key = (table.jobs[restores["job"][row]], int(restores["attempt"][row]), POOLS[restores["pool"][row]])
        if key in pins and not pins[key].issuperset(table.slots[restores["slots"][row]]):
            yield AuditFinding("restores", f"{_name(table, row)} is where it was not pinned")


def _room(table: Table) -> Iterator[AuditFinding]:
    """Nobody else holds the slots meanwhile, nor has state restored there, unless the devices hold both."""
    devices = {node["name"]: node["device_memory_bytes"] for node in table.header["cluster"]["nodes"]}
    needs = {job["name"]: job.get("device_memory") or {} for job in table.header["jobs"]}
    for (node, device), spans in _spans_by_slot(table).items():
        for one, other in _overlaps(sorted(spans)):
            if not _fit(table, one, other, needs, devices.get(node, 0)):
                both = f"{_name_of(table, one)} and {_name_of(table, other)}"
                yield AuditFinding("restores", f"{node}:{device} has no room for {both} at once")


def _spans_by_slot(table: Table) -> dict[tuple[str, int], list[Span]]:
    """By the first slot of each tuple that restores or intervals share slots with: all that is there, in order."""
    restores, found = table.restores, defaultdict[tuple[str, int], list[Span]](list)
    used = {slot for where in set(restores["slots"].tolist()) for slot in table.slots[where]}
    for place, (job, where, began, left) in enumerate(
        zip(*(restores[name].tolist() for name in ("job", "slots", "began_at", "left_at")), strict=True)
    ):
        for slot in table.slots[where]:
            found[slot].append((began, left, job, -1 - place))
    names = ("job", "slots", "granted_at", "released_at")
    for row, (job, where, granted, released) in enumerate(zip(*(table[name].tolist() for name in names), strict=True)):
        for slot in table.slots[where]:
            if slot in used:
                found[slot].append((granted, released, job, row))
    return found


def _overlaps(spans: list[Span]) -> Iterator[tuple[Span, Span]]:
    """Pairs of different jobs that are there at once, one of them restored ahead."""
    there: list[Span] = []
    for span in spans:
        there = [one for one in there if one[1] > span[0]]
        if span[1] > span[0]:
            yield from ((one, span) for one in there if one[2] != span[2] and (one[3] < 0 or span[3] < 0))
            there.append(span)


def _fit(table: Table, one: Span, other: Span, needs: dict[str, Record], device_bytes: int) -> bool:
    """Whether a device holds a state that was restored ahead beside another's phase; two such states it may not."""
    if one[3] < 0 and other[3] < 0:
        return False
    restored, holder = (one, other) if one[3] < 0 else (other, one)
    pool = POOLS[table.restores["pool"][-1 - restored[3]]]
    own = needs[table.jobs[restored[2]]].get(pool)
    beside = needs[table.jobs[holder[2]]].get(PHASES[table["phase"][holder[3]]])
    if own is None or beside is None:
        return False
    return bool(own["state_bytes"] + beside["state_bytes"] + beside["working_bytes"] <= device_bytes)


def _name(table: Table, row: int | np.integer[Any]) -> str:
    job, attempt = table.jobs[table.restores["job"][row]], table.restores["attempt"][row]
    return f"{job}#{attempt} {POOLS[table.restores['pool'][row]]} restored ahead at {table.restores['began_at'][row]}"


def _name_of(table: Table, span: Span) -> str:
    return _name(table, -1 - span[3]) if span[3] < 0 else table.name(span[3])
