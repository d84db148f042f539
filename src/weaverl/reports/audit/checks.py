"""What must hold of any timeline: order within a job, one holder a device, residency, every iteration once."""

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from weaverl.reports.audit import ahead
from weaverl.reports.audit.restores import restored_ahead
from weaverl.reports.audit.table import (
    NO_TOKEN,
    PHASES,
    ROLLOUT,
    STEPS,
    SYNC,
    TRAINING,
    AuditFinding,
    Column,
    Record,
    Table,
    by_slot,
    runs_of,
)

AttemptPins = dict[str, set[tuple[str, int]]]


def findings(table: Table) -> list[AuditFinding]:
    """All faults of the checks here, and damage of the file."""
    checks = (clock, job_order, single_holder, residency, once, pinned, tokens, restored_ahead)
    return [*table.damage, *(finding for check in checks for finding in check(table))]


def clock(table: Table) -> Iterator[AuditFinding]:
    """Each interval's steps come in their order."""
    steps = np.stack([table[step] for step in STEPS])
    for row in np.flatnonzero((np.diff(steps, axis=0) < 0).any(axis=0)):
        yield AuditFinding("clock", f"{table.name(row)} goes back in time: {steps[:, row].tolist()}")


def job_order(table: Table) -> Iterator[AuditFinding]:
    """A job's phases come one after the other; the next rollout is not even granted before its weights are there.

    Where rollouts run beside training the order is another: see ``ahead``.
    """
    yield from ahead.order(table)
    is_ahead = ahead.jobs_ahead(table)
    rows = np.flatnonzero(table["phase"] >= ROLLOUT)
    rows = rows[~is_ahead[table["job"][rows]]]
    keys = ("started_at", "phase", "iteration", "attempt", "job")
    rows = rows[np.lexsort([table[key][rows] for key in keys])]
    before, after = rows[:-1], rows[1:]
    same = (table["job"][before] == table["job"][after]) & (table["attempt"][before] == table["attempt"][after])
    synced = (table["phase"][before] == SYNC) & (table["phase"][after] == ROLLOUT)
    begin = np.where(synced, table["granted_at"][after], table["started_at"][after])
    early = table["ended_at"][before] - begin
    for place in np.flatnonzero(same & (early > 0)):
        first, second = table.name(before[place]), table.name(after[place])
        yield AuditFinding("order", f"{second} began {early[place]} us before {first} had ended")


def single_holder(table: Table) -> Iterator[AuditFinding]:
    """No device is held by two jobs at once, nor used by two phases."""
    row, slot, names = by_slot(table, np.arange(len(table)))
    job = table["job"][row] * (table["attempt"].max(initial=0) + 1) + table["attempt"][row]
    for what, start, end, owner in (
        ("held", table["granted_at"][row], table["released_at"][row], job),
        ("used", table["started_at"][row], table["ended_at"][row], row),
    ):
        for first, second in _overlaps(slot, start, end, owner):
            node, device = names[slot[first]]
            both = f"{table.name(row[first])} and {table.name(row[second])}"
            yield AuditFinding("holders", f"{node}:{device} is {what} by {both} at once")


def _overlaps(slot: Column, start: Column, end: Column, owner: Column) -> Iterator[tuple[int, int]]:
    """Pairs of places whose spans overlap and whose owners differ, each compared with the longest before it."""
    long = np.flatnonzero(end > start)
    order = long[np.lexsort((end[long], start[long], slot[long]))]
    if len(order) < 2:
        return
    reach, longest = _longest_before(slot[order], end[order] - start.min())
    begin = start[order] - start.min()
    bad = (reach > begin) & (owner[order[longest]] != owner[order])
    for place in np.flatnonzero(bad):
        yield int(order[longest[place]]), int(order[place])


def _longest_before(slot: Column, end: Column) -> tuple[Column, Column]:
    """For each place, sorted by slot, the greatest end among those of its slot before it, and where that is."""
    size = end.max() + 2
    shifted = end + 1 + slot * size
    highest = np.maximum.accumulate(shifted)
    where = np.maximum.accumulate(np.where(shifted == highest, np.arange(len(end)), 0))
    longest = np.concatenate(([0], where[:-1]))
    same = np.concatenate(([False], slot[1:] == slot[:-1]))
    return np.where(same, end[longest], -1), longest


def residency(table: Table) -> Iterator[AuditFinding]:
    """No node's jobs keep more in its host memory than there is."""
    cluster = table.header["cluster"]
    share = cluster.get("usable_host_memory", 0.9)
    limits = {node["name"]: share * node["host_memory_bytes"] for node in cluster["nodes"]}
    for node, peak in pinned_peaks(table).items():
        if node in limits and peak > limits[node]:
            yield AuditFinding("residency", f"{node} had {peak} bytes pinned, {limits[node]:.0f} are usable")


def pinned_peaks(table: Table) -> dict[str, int]:
    """Most bytes pinned to a node at one moment, from the life of each attempt."""
    events: dict[str, list[tuple[int, int]]] = defaultdict(list)
    memory = {job["name"]: job["host_memory"] for job in table.header["jobs"]}
    pins = pins_of(table)
    for rows in attempts(table):
        name, attempt = table.jobs[table["job"][rows[0]]], int(table["attempt"][rows[0]])
        if name not in memory:
            continue
        span = int(table["requested_at"][rows].min()), int(table["released_at"][rows].max())
        pin = pins.get((name, attempt)) or _slots_used(table, rows)
        for pool in ("rollout", "training"):
            for node in {node for node, _ in pin[pool]}:
                size = memory[name][f"{pool}_bytes"]
                events[node] += [(span[0], size), (span[1], -size)]
    return {node: peak(changes) for node, changes in events.items()}


def attempts(table: Table) -> list[Column]:
    """The rows of each attempt of each job."""
    order = np.lexsort((table["attempt"], table["job"]))
    starts = runs_of([table["job"][order], table["attempt"][order]])
    return list(np.split(order, starts[1:])) if len(order) else []


def once(table: Table) -> Iterator[AuditFinding]:
    """Every iteration that was asked for has run, and none twice in one attempt."""
    asked = {job["name"]: job.get("iterations") for job in table.header["jobs"]}
    work = table.take(np.flatnonzero((table["phase"] >= ROLLOUT) & (table["part"] == 0)))
    order = np.lexsort([work[key] for key in ("phase", "iteration", "attempt", "job")])
    starts = runs_of([work[key][order] for key in ("job", "attempt", "iteration", "phase")])
    counts = np.diff(np.append(starts, len(order)))
    for place in np.flatnonzero(counts > 1):
        row = order[starts[place]]
        what = f"{PHASES[work['phase'][row]]} {work['iteration'][row]} {counts[place]} times"
        yield AuditFinding("once", f"{work.who(row)} ran {what}")
    jobs = work["job"]
    by_job = np.argsort(jobs, kind="stable")
    for rows in np.split(by_job, runs_of([jobs[by_job]])[1:]) if len(by_job) else []:
        name = table.jobs[jobs[rows[0]]]
        yield from _missing(name, asked.get(name), work["attempt"][rows], work["iteration"][rows], work["phase"][rows])


def _missing(job: str, asked: int | None, attempt: Column, iteration: Column, phase: Column) -> Iterator[AuditFinding]:
    """Iterations that the attempts together did not finish; the last attempt at each one counts."""
    first, last = int(iteration.min()), int(iteration.max())
    wanted = asked if asked is not None else last - first + 1
    size = max(last - first + 1, wanted)
    latest = np.zeros(size, dtype=np.int64)
    np.maximum.at(latest, iteration - first, attempt)
    ran = np.zeros((len(PHASES), size), dtype=bool)
    current = attempt == latest[iteration - first]
    ran[phase[current], iteration[current] - first] = True
    syncs = bool((phase == SYNC).any())
    for place in range(wanted):
        if latest[place] == 0:
            yield AuditFinding("once", f"{job} never ran iteration {first + place}")
            continue
        if asked is None and first + place == last:
            continue  # an open-ended job may have been cut off in its last iteration
        for needed in (ROLLOUT, SYNC, TRAINING):
            optional = needed == SYNC and not (syncs and first + place < last)
            if not optional and not ran[needed, place]:
                what = f"{PHASES[needed]} {first + place}"
                yield AuditFinding("once", f"{job}#{latest[place]} never ran {what}")
    if asked is not None and last >= first + asked:
        yield AuditFinding("once", f"{job} ran iteration {last}, {asked} were asked")


def pinned(table: Table) -> Iterator[AuditFinding]:
    """Every phase ran on devices that are there, and where its job was pinned."""
    devices = {node["name"]: node["num_devices"] for node in table.header["cluster"]["nodes"]}
    pins = pins_of(table)
    attempt = table["job"] * (table["attempt"].max(initial=0) + 1) + table["attempt"]
    keys = (attempt * len(PHASES) + table["phase"]) * len(table.slots) + table["slots"]
    _, places = np.unique(keys, return_index=True)
    for row in places:
        pin = pins.get((table.jobs[table["job"][row]], int(table["attempt"][row])))
        phase = PHASES[table["phase"][row]]
        allowed = None if pin is None else pin.get(phase, pin["rollout"] | pin["training"])
        for node, device in table.slots[table["slots"][row]]:
            if device >= devices.get(node, 0):
                yield AuditFinding("pins", f"{table.name(row)} ran on {node}:{device}, which the cluster has not")
            elif allowed is not None and (node, device) not in allowed:
                yield AuditFinding("pins", f"{table.name(row)} ran on {node}:{device}, where it was not pinned")


def tokens(table: Table) -> Iterator[AuditFinding]:
    """On each device tokens only grow; the parts of one phase bear one token.

    What was over in the moment of its grant, as a tail may be that was moved at the very end, came before what lasted.
    """
    row, slot, names = by_slot(table, np.flatnonzero(table["token"] != NO_TOKEN))
    order = np.lexsort((table["part"][row], table["released_at"][row], table["granted_at"][row], slot))
    if not len(order):
        return
    row, slot = row[order], slot[order]
    token = table["token"][row]
    before, where = _longest_before(slot, token - token.min())
    now = token - token.min()
    again = (now == before) & (table["part"][row] > 0)
    for place in np.flatnonzero((now <= before) & ~again):
        node, device = names[slot[place]]
        first, second = table.name(row[where[place]]), table.name(row[place])
        yield AuditFinding("tokens", f"{second} has no newer token on {node}:{device} than {first} before it")


def pins_of(table: Table) -> dict[tuple[str, int], AttemptPins]:
    """The slots that each attempt was pinned to, where the header says."""
    return {
        (job["name"], pin["attempt"]): {pool: _slots(pin.get(pool, ())) for pool in ("rollout", "training")}
        for job in table.header["jobs"]
        for pin in job.get("pins", ())
    }


def _slots(records: list[Record]) -> set[tuple[str, int]]:
    return {(slot["node"], slot["device"]) for slot in records}


def _slots_used(table: Table, rows: Column) -> AttemptPins:
    return {
        pool: {
            slot
            for number in np.unique(table["slots"][rows[table["phase"][rows] == code]])
            for slot in table.slots[number]
        }
        for pool, code in (("rollout", ROLLOUT), ("training", TRAINING))
    }


def peak(changes: list[tuple[int, int]]) -> int:
    """Highest running sum; at one moment what leaves goes first."""
    running = highest = 0
    for _, change in sorted(changes):
        running += change
        highest = max(highest, running)
    return highest
