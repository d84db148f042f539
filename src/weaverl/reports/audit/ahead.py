"""Jobs whose next rollout runs beside training (staleness 1): the order of their phases, and their solo time."""

from collections.abc import Iterator

import numpy as np

from weaverl.reports.audit.table import PHASES, ROLLOUT, SYNC, TRAINING, AuditFinding, Column, Table

Found = dict[tuple[int, int], tuple[int, int]]
"""Rows of an attempt by phase and iteration: the first part and the last."""


def jobs_ahead(table: Table) -> Column:
    """Which jobs (by number) have a staleness of 1."""
    ahead = {job["name"] for job in table.header["jobs"] if job.get("staleness", 0)}
    return np.array([name in ahead for name in table.jobs], dtype=bool)


def order(table: Table) -> Iterator[AuditFinding]:
    """No sample is two versions old, and everything else waits for what it is made from, attempt by attempt."""
    ahead = jobs_ahead(table)
    rows = np.flatnonzero((table["phase"] >= ROLLOUT) & ahead[table["job"]]) if len(ahead) else np.zeros(0, np.int64)
    by_attempt: dict[tuple[int, int], Found] = {}
    for row in rows[np.lexsort([table[key][rows] for key in ("part", "started_at")])].tolist():
        found = by_attempt.setdefault((int(table["job"][row]), int(table["attempt"][row])), {})
        key = int(table["phase"][row]), int(table["iteration"][row])
        found[key] = (found.get(key, (row, row))[0], row)
    for found in by_attempt.values():
        yield from _order_of_attempt(table, found)


def _order_of_attempt(table: Table, found: Found) -> Iterator[AuditFinding]:
    for (phase, iteration), (row, _) in found.items():
        needed = {
            ROLLOUT: [(ROLLOUT, iteration - 1), (TRAINING, iteration - 2), (SYNC, iteration - 2)],
            TRAINING: [(ROLLOUT, iteration), (TRAINING, iteration - 1), (SYNC, iteration - 1)],
            SYNC: [(TRAINING, iteration)],
        }[phase]
        began = {phase: "started_at"} if phase != ROLLOUT else {TRAINING: "granted_at", SYNC: "granted_at"}
        for before in needed:
            if before not in found:
                if _was_begun(found, phase, before):
                    what = f"{PHASES[before[0]]} {before[1]}"
                    yield AuditFinding("order", f"{table.name(row)} ran, and {what} before it did not")
                continue
            last = found[before][1]
            early = int(table["ended_at"][last] - table[began.get(before[0], "started_at")][row])
            if early > 0:
                yield AuditFinding("order", f"{table.name(row)} began {early} us before {table.name(last)} had ended")


def _was_begun(found: Found, phase: int, before: tuple[int, int]) -> bool:
    """Whether the attempt had begun the iteration of what is missing: its weights are those that a rollout needs."""
    return phase == ROLLOUT and before[0] != ROLLOUT and (ROLLOUT, before[1]) in found


def solo_by_iteration(table: Table, draws: Column, size: int) -> Column:
    """Solo time of each iteration of a job, from the begin of its training to that of the next one's.

    The next rollout runs beside training and sync; the first one, beside nothing, counts with its own iteration.
    ``draws``: one row for each phase of each iteration.
    """
    phase, iteration, solo = (table[key][draws] for key in ("phase", "iteration", "solo_us"))
    times = np.zeros((SYNC + 1, size + 1))
    times[phase, iteration] = solo
    found: Column = np.maximum(times[ROLLOUT, 1:], (times[TRAINING] + times[SYNC])[:-1])
    if size:
        found[0] += times[ROLLOUT, 0]
    return found


def boundaries(table: Table, rows: Column, last_iteration: int) -> Column:
    """Times within an attempt at which one iteration ends and the next begins: when a training could be asked for.

    Args:
        table: of the run.
        rows: of the attempt.
        last_iteration: was under way when it ended.
    """
    ends = np.full((SYNC + 1, int(table["iteration"][rows].max(initial=0)) + 2), -1)
    np.maximum.at(ends, (table["phase"][rows], table["iteration"][rows]), table["ended_at"][rows])
    rolled, synced = ends[ROLLOUT, 1:], ends[SYNC, :-1]
    whole = (rolled >= 0) & (synced >= 0) & (np.arange(len(rolled)) < last_iteration)
    found: Column = np.sort(np.maximum(rolled, synced)[whole])
    return found
