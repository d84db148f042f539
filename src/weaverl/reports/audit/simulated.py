"""A simulated run, worked out again from trace and timeline: dollars, promises, peaks, bubbles, and work done."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from weaverl.reports.audit.checks import attempts, findings, peak, pins_of
from weaverl.reports.audit.table import (
    LOADING,
    ROLLOUT,
    TRAINING,
    AuditFinding,
    Column,
    Record,
    Table,
    read_table,
    runs_of,
)

HOUR_US = 3600e6
ROUNDING_US = 5
"""Times are rounded to microseconds where the speed of a phase changes."""
POOLS = ("rollout", "training")


@dataclass(frozen=True)
class SimulatedAudit:
    """All faults found, and the figures by their names in the JSON of the run."""

    findings: tuple[AuditFinding, ...]
    figures: dict[str, float]

    @property
    def audited(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings


def read_simulated(path: Path) -> Table:
    """The table of a timeline file that ``weaverl simulate`` wrote."""
    return read_table(path)[0]


def audit_simulated(
    table: Table, trace: list[Record], parameters: Mapping[str, Any], reported: Record
) -> SimulatedAudit:
    """Audit a simulated run.

    Args:
        table: all intervals, and which group had which node when.
        trace: rows of the trace, by the names of our schema.
        parameters: as printed with the run.
        reported: the run's figures; those that the auditor works out too must agree.
    """
    rows = {row["job_id"]: row for row in trace}
    slowdowns = _slowdowns(table)
    figures = {**_owned(table), **_promises(table, slowdowns, rows)}
    found = [
        *findings(table),
        *_owners(table),
        *_drawn(table, rows, parameters),
        *_work(table, parameters),
        *_disagreements(figures, reported),
    ]
    return SimulatedAudit(tuple(found), figures)


def _owned(table: Table) -> dict[str, float]:
    """Dollars, hours, peaks and bubbles from the times that groups had nodes."""
    nodes = {node["name"]: node for node in table.header["cluster"]["nodes"]}
    owned, peaks = dict.fromkeys(POOLS, 0), dict.fromkeys(POOLS, 0)
    for pool in POOLS:
        spans = [span for span in table.spans if nodes[span["node"]]["pool"] == pool]
        changes = [(span["taken_at"], nodes[span["node"]]["num_devices"]) for span in spans]
        changes += [(span["given_back_at"], -nodes[span["node"]]["num_devices"]) for span in spans]
        owned[pool] = -sum(at * devices for at, devices in changes)
        peaks[pool] = peak(changes)
    first = min((span["taken_at"] for span in table.spans), default=0)
    last = max((span["given_back_at"] for span in table.spans), default=0)
    hours = (last - first) / HOUR_US
    usd = sum(owned[pool] / HOUR_US * table.header["cluster"][pool]["usd_per_gpu_hour"] for pool in POOLS)
    busy = _busy(table, nodes)
    figures = {"usd": usd, "hours": hours, "usd_per_hour": usd / hours if hours else 0.0}
    for pool in POOLS:
        figures[f"peak_gpus.{pool}"] = peaks[pool]
        figures[f"mean_gpus.{pool}"] = owned[pool] / (hours * HOUR_US) if hours else 0.0
        figures[f"bubbles.{pool}"] = 1 - busy[pool] / owned[pool] if owned[pool] else 0.0
    return figures


def _busy(table: Table, nodes: Mapping[str, Record]) -> dict[str, int]:
    """Device-microseconds inside bodies of rollouts and trainings, by the pool of the devices used."""
    busy = dict.fromkeys(POOLS, 0)
    body = table["ended_at"] - table["started_at"]
    of_slots = np.bincount(table["slots"], weights=body * (table["phase"] != LOADING), minlength=len(table.slots))
    for where, time in zip(table.slots, of_slots, strict=True):
        for node, _ in where:
            busy[nodes[node]["pool"]] += round(time)
    return busy


def _slowdowns(table: Table) -> dict[str, float]:
    """Wall time of all attempts over the solo time of the iterations, by job.

    The first attempt begins with the end of its cold start, later ones with its begin; each lasts to its last
    interval, and where a fault ended it that is a cold start of no length. An iteration counts as run in its last
    attempt.
    """
    wall: dict[str, int] = {}
    for rows in attempts(table):
        name, is_first = table.jobs[table["job"][rows[0]]], table["attempt"][rows[0]] == 1
        loading = rows[table["phase"][rows] == LOADING]
        begin = table["ended_at" if is_first else "requested_at"][loading].min()
        wall[name] = wall.get(name, 0) + int(table["ended_at"][rows].max() - begin)
    solo = _solo(table)
    return {name: wall[name] / solo[name] for name in wall if solo.get(name)}


def _solo(table: Table) -> dict[str, int]:
    rows = np.flatnonzero((table["phase"] != LOADING) & (table["part"] == 0))
    order = rows[np.lexsort([table[key][rows] for key in ("attempt", "phase", "iteration", "job")])]
    ends = np.append(runs_of([table[key][order] for key in ("job", "iteration", "phase")])[1:], len(order)) - 1
    last = order[ends] if len(order) else order
    sums = np.bincount(table["job"][last], weights=table["solo_us"][last], minlength=len(table.jobs))
    return {name: round(total) for name, total in zip(table.jobs, sums, strict=True)}


def _promises(table: Table, slowdowns: Mapping[str, float], rows: Mapping[str, Record]) -> dict[str, float]:
    """How many jobs ran all their iterations, and how many of them kept their promise."""
    trained = np.flatnonzero((table["phase"] == TRAINING) & (table["part"] == 0))
    size = table["iteration"].max(initial=0) + 1
    ran = np.unique(table["job"][trained] * size + table["iteration"][trained])
    done = np.bincount(ran // size, minlength=len(table.jobs))
    finished = [name for name, number in zip(table.jobs, done, strict=True) if number == rows[name]["iterations"]]
    met = sum(slowdowns[name] <= rows[name]["slo"] * (1 + 1e-9) for name in finished)
    values = [slowdowns[name] for name in finished]
    figures = {"jobs_finished": float(len(finished)), "slo_attainment": met / len(finished) if finished else 0.0}
    if values:
        percentiles = np.percentile(values, [50, 90, 99, 100])
        names = ("slowdown.p50", "slowdown.p90", "slowdown.p99", "slowdown.max")
        figures |= dict(zip(names, percentiles.tolist(), strict=True))
    return figures


def _owners(table: Table) -> Iterator[AuditFinding]:
    """No node has two groups at once, and nothing ran on a node that no group had."""
    by_node: dict[str, list[tuple[int, int, str]]] = {}
    for span in table.spans:
        by_node.setdefault(span["node"], []).append((span["taken_at"], span["given_back_at"], span["group"]))
    for node, spans in by_node.items():
        spans.sort()
        for (_, end, one), (start, _, other) in itertools.pairwise(spans):
            if start < end:
                yield AuditFinding("owners", f"{node} was taken by {other} before {one} gave it back")
    order = np.argsort(table["slots"], kind="stable")
    for rows in np.split(order, runs_of([table["slots"][order]])[1:]) if len(order) else []:
        where = table.slots[table["slots"][rows[0]]]
        for node in dict.fromkeys(node for node, _ in where):
            for row in rows[~_within(table, rows, by_node.get(node, []))][:1]:
                yield AuditFinding("owners", f"{table.name(row)} ran on {node}, which no group had then")


def _within(table: Table, rows: Column, spans: list[tuple[int, int, str]]) -> Column:
    starts = np.array([start for start, _, _ in spans] or [2**62])
    ends = np.array([end for _, end, _ in spans] or [-1])
    place = np.searchsorted(starts, table["granted_at"][rows], side="right") - 1
    return (place >= 0) & (table["released_at"][rows] <= ends[place])


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


def _work(table: Table, parameters: Mapping[str, Any]) -> Iterator[AuditFinding]:
    """The parts of each phase did its work: at the speed of the devices held, and slower in a moved tail."""
    rows = np.flatnonzero((table["phase"] == ROLLOUT) | (table["phase"] == TRAINING))
    order = rows[np.lexsort([table[key][rows] for key in ("part", "phase", "iteration", "attempt", "job")])]
    if not len(order):
        return
    starts = runs_of([table[key][order] for key in ("job", "attempt", "iteration", "phase")])
    held = np.array([len(where) for where in table.slots])[table["slots"][order]]
    asked = np.repeat(_asked(table, order[starts]), np.diff(np.append(starts, len(order))))
    body = (table["ended_at"] - table["started_at"])[order]
    is_tail = np.concatenate(([False], held[1:] < held[:-1]))
    is_tail[starts] = False
    before_tail = np.append(is_tail[1:], False)
    useful = body - before_tail * parameters["tail_move_seconds"] * 1e6
    speed = np.where(is_tail, 1.0 / parameters["tail_stretch"], held / asked)
    done = np.add.reduceat(useful * speed, starts)
    expected = table["solo_us"][order[starts]] * _pace(table, order[starts], parameters)
    for place in np.flatnonzero(np.abs(done - expected) > ROUNDING_US):
        row = order[starts[place]]
        yield AuditFinding(
            "work", f"{table.name(row)} did {done[place]:.0f} us of work, {expected[place]:.0f} were to do"
        )


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


def _disagreements(figures: Mapping[str, float], reported: Record) -> Iterator[AuditFinding]:
    for name, own in figures.items():
        value: Any = reported
        for key in name.split("."):
            value = value[key]
        if abs(own - value) > 1e-9 * max(1.0, abs(own)):
            yield AuditFinding("figure", f"{name} is reported as {value}, audited as {own}")
