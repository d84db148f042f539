"""Rules of a simulated world: what draws, hand-overs and cold starts take, from trace and parameters."""

from collections.abc import Iterator, Mapping
from math import erf, exp, log, pi, sqrt
from typing import Any

import numpy as np

from weaverl.reports.audit.lives import Life, has_faults, neighbours
from weaverl.reports.audit.restores import hidden_since
from weaverl.reports.audit.table import (
    LOADING,
    ROLLOUT,
    TRAINING,
    AuditFinding,
    Column,
    Record,
    Table,
    by_slot,
    runs_of,
)

POOLS = ("rollout", "training")
STANDARD_ERRORS = 6.0
"""How far a job's mean may be off by chance: once in 500 million jobs."""
Rows = Mapping[str, Record]
Parameters = Mapping[str, Any]


def rules(table: Table, lives: list[Life], rows: Rows, parameters: Parameters) -> Iterator[AuditFinding]:
    """All faults of the checks here."""
    yield from _drawn(table, rows, parameters)
    yield from _means(table, rows, parameters)
    yield from _switches(table, lives, rows, parameters)
    yield from _cold_starts(table, lives, rows, parameters)
    yield from _moves(lives)


def _drawn(table: Table, rows: Mapping[str, Record], parameters: Mapping[str, Any]) -> Iterator[AuditFinding]:
    """The times of the phases alone are those that the trace allows."""
    first = table.take(np.flatnonzero((table["phase"] != LOADING) & (table["part"] == 0)))
    for number, name in enumerate(first.jobs):
        of_job = np.flatnonzero(first["job"] == number)
        phase, solo = first["phase"][of_job], first["solo_us"][of_job]
        low, high = _allowed_us(rows[name], first["iteration"][of_job], phase, parameters)
        for place in of_job[(solo < low - 1) | (solo > high + 1)][:1]:
            taken = first["solo_us"][place]
            yield AuditFinding("draws", f"{first.name(place)} takes {taken} us alone: not as in the trace")


def _allowed_us(row: Record, iteration: Column, phase: Column, parameters: Mapping[str, Any]) -> tuple[Column, Column]:
    """Least and greatest time of each phase alone."""
    growth = 1 + (row["rollout_growth"] - 1) * iteration / max(row["iterations"] - 1, 1)
    cap = row["rollout_max_seconds"] * growth
    mean = np.minimum(row["rollout_mean_seconds"] * growth, cap)
    sync = row["sync_gib"] * 8 * 1.073741824 / parameters["link_gbps"] * parameters["sync_overhead"]
    random = parameters["random"] and row["rollout_cv"] > 0
    phases = [phase == ROLLOUT, phase == TRAINING]
    low = np.select(phases, [0 * cap if random else mean, row["training_seconds"]], sync)
    high = np.select(phases, [cap if random else mean, row["training_seconds"]], sync)
    return low * 1e6, high * 1e6


def _means(table: Table, rows: Rows, parameters: Parameters) -> Iterator[AuditFinding]:
    """The rollouts that were drawn lie about their mean: their logarithms, as a normal variable cut at the cap.

    Of the logarithms since these have no long tail: few draws are as good as many.
    """
    drawn = np.flatnonzero((table["phase"] == ROLLOUT) & (table["part"] == 0))
    for number, name in enumerate(table.jobs):
        row, of_job = rows[name], drawn[table["job"][drawn] == number]
        if not (parameters["random"] and row["rollout_cv"] > 0 and len(of_job)):
            continue
        _, once = np.unique(table["iteration"][of_job], return_index=True)
        of_job = of_job[once]
        growth = 1 + (row["rollout_growth"] - 1) * table["iteration"][of_job] / max(row["iterations"] - 1, 1)
        spread = sqrt(log(1 + row["rollout_cv"] ** 2))
        middle = log(row["rollout_mean_seconds"]) - spread**2 / 2
        seconds = np.maximum(table["solo_us"][of_job], 1) / 1e6 / growth
        found = float(((np.log(seconds) - middle) / spread).mean())
        cap = (log(row["rollout_max_seconds"]) - middle) / spread
        expected, variance = _cut_normal(cap)[0], _cut_normal(max(cap, 0.0))[1]
        if abs(found - expected) > STANDARD_ERRORS * sqrt(variance / len(of_job)):
            what = f"rollouts are {found:.2f} deviations off the trace's median on average, {expected:.2f} expected"
            yield AuditFinding("draws", f"{name}: {what}")


def _cut_normal(cap: float) -> tuple[float, float]:
    """Mean and variance of the lesser of a standard normal variable and ``cap``."""
    below, density = (1 + erf(cap / sqrt(2))) / 2, exp(-cap * cap / 2) / sqrt(2 * pi)
    mean = cap * (1 - below) - density
    return mean, below - cap * density + cap * cap * (1 - below) - mean * mean


def _for_model(seconds: tuple[float, float], row: Record) -> int:
    """Microseconds of what takes given seconds at 7B and at 70B, linear between and beyond."""
    at_7b, at_70b = seconds
    return round(max(at_7b + (at_70b - at_7b) * (float(row["model_billions"]) - 7.0) / 63.0, 0.0) * 1e6)


def _moves(lives: list[Life]) -> Iterator[AuditFinding]:
    """Who is moved or paused goes between two iterations: nothing is lost."""
    for life in lives:
        if life.moved and not life.at_boundary:
            what = f"{life.name}#{life.attempt} was moved in the middle of iteration {life.last_iteration}"
            yield AuditFinding("moves", what)


def _cold_starts(table: Table, lives: list[Life], rows: Rows, parameters: Parameters) -> Iterator[AuditFinding]:
    """Every attempt that came to run a phase took its job's cold start first; after a move it may take another time."""
    after_move = float(parameters.get("moved_start", 1.0))
    for life in lives:
        first = _for_model(parameters["cold_start_seconds"], rows[life.name])
        due = {first}
        if life.attempt > 1:  # a move or, where there are faults, a retry
            due = {round(first * after_move)} | (due if has_faults(parameters) else set())
        ran = (table["phase"][life.rows] != LOADING).any()
        taken = None if life.loaded_at is None else life.loaded_at - life.begin
        if ran and taken not in due:
            takes = " or ".join(map(str, sorted(due)))
            yield AuditFinding("cold starts", f"{life.name}#{life.attempt} was loaded in {taken} us, it takes {takes}")


def _switches(table: Table, lives: list[Life], rows: Rows, parameters: Parameters) -> Iterator[AuditFinding]:
    """A phase pays its job's switch or nothing: the switch if others had its slots since, nothing if it is alone.

    Of one that was restored ahead it pays what was left of the switch.

    Where others were in the group but not on the slots, either may be: state is also saved because others ask for it.
    """
    held = np.flatnonzero((table["phase"] == ROLLOUT) | (table["phase"] == TRAINING))
    order = held[np.lexsort([table[key][held] for key in ("part", "iteration", "phase", "attempt", "job")])]
    if not len(order):
        return
    starts = runs_of([table[key][order] for key in ("job", "attempt", "phase", "iteration")])
    first = order[starts]
    paid = np.add.reduceat((table["started_at"] - table["granted_at"])[order], starts)
    both = [[_for_model(parameters[f"{pool}_switch_seconds"], rows[name]) for pool in POOLS] for name in table.jobs]
    switch = np.array(both)[table["job"][first], np.where(table["phase"][first] == ROLLOUT, 0, 1)]
    must, never = _must_switch(table, _company(table, lives, has_faults(parameters)), order, first)
    since = hidden_since(table, first)
    hidden = since >= 0
    switch = np.where(hidden, np.maximum(switch - table["granted_at"][first] + since, 0), switch)
    must |= hidden
    bad = ((paid != 0) & (paid != switch)) | (must & (paid != switch)) | (never & (paid != 0))
    for place in np.flatnonzero(bad):
        due = "nothing" if never[place] else f"{switch[place]} us"
        yield AuditFinding("switches", f"{table.name(first[place])} paid {paid[place]} us for it, {due} was due")


def _must_switch(table: Table, company: tuple[Column, Column], order: Column, first: Column) -> tuple[Column, Column]:
    """Which phases have to pay a switch, and which must not. ``first``: their first parts, those of a job together."""
    crowded, shared = company
    begins = np.zeros(len(first), dtype=bool)
    begins[runs_of([table[key][first] for key in ("job", "attempt", "phase")])] = True
    since = np.zeros(len(table), dtype=np.int64)
    since[first] = np.where(begins, table["granted_at"][first], np.roll(table["granted_at"][first], 1))
    must = np.zeros(len(table), dtype=bool)
    row, slot, _ = by_slot(table, order)
    by_time = np.lexsort((table["part"][row], table["released_at"][row], table["granted_at"][row], slot))
    row, slot = row[by_time], slot[by_time]
    before, after = row[:-1], row[1:]
    other = np.zeros(len(before), dtype=bool)
    for key in ("job", "attempt", "phase"):
        other |= table[key][before] != table[key][after]
    own = (table["job"][before] == table["job"][after]) & (table["attempt"][before] == table["attempt"][after])
    came_since = own | (table["granted_at"][before] >= since[after])
    starting = np.zeros(len(table), dtype=bool)
    starting[first[begins]] = True
    gone = (slot[:-1] == slot[1:]) & other & came_since & (own | ~starting[after])
    must[after[gone]] = True
    life = table["job"][first], table["attempt"][first]
    colocated = np.zeros(len(table), dtype=bool)
    colocated[after[(slot[:-1] == slot[1:]) & other & own]] = True
    return must[first] | (begins & crowded[life]), ~shared[life] & ~colocated[first]


def _company(table: Table, lives: list[Life], lost: bool) -> tuple[Column, Column]:
    """By job and attempt: whether its group had others when it came, and whether it ever had.

    Where attempts are lost it is not known how long their groups had them: then everybody may have had company.
    """
    size = (len(table.jobs), int(table["attempt"].max(initial=0)) + 1)
    crowded, shared = np.zeros(size, dtype=bool), np.full(size, lost)
    for life, others in neighbours(lives):
        crowded[life.job, life.attempt] = any(one.begin < life.begin < one.end for one in others)
        shared[life.job, life.attempt] |= bool(others)
    return crowded, shared
