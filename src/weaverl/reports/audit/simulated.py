"""A simulated run, worked out again from trace and timeline: dollars, promises, peaks, bubbles, and work done."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from weaverl.reports.audit.ahead import jobs_ahead, solo_by_iteration
from weaverl.reports.audit.bodies import bodies_of, interference, work
from weaverl.reports.audit.books import HOUR_US, Books, last_draws
from weaverl.reports.audit.checks import attempts, findings, peak
from weaverl.reports.audit.fleet import makespan, too_many
from weaverl.reports.audit.lives import lives_of
from weaverl.reports.audit.rules import rules
from weaverl.reports.audit.spreads import spread
from weaverl.reports.audit.table import (
    LOADING,
    TRAINING,
    AuditFinding,
    Column,
    Record,
    Table,
    read_table,
    runs_of,
)

POOLS = ("rollout", "training")
OPTIONAL = (
    *("bound_multiple", "bound_multiple_without_tail", "bound_multiple_with_tail", "slowdown", "worst_window"),
    *("wait_hours", "completion_hours", "fairness", "tenants", "interference"),
    *("mean_wait_hours", "mean_completion_hours", "makespan_bound_hours"),
    *("classes", "deadlines", "sharing"),
)
"""Figures that may not be there at all: then the auditor must find none either."""


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
    slowdowns, lives, finished = _slowdowns(table), lives_of(table), _finished(table, rows)
    owned = _owned(table)
    books, bodies = Books(table, lives, rows, finished, parameters), bodies_of(table, parameters)
    figures = {
        **owned,
        **_promises(finished, slowdowns, rows),
        **books.figures(owned["usd"], slowdowns),
        **interference(bodies),
        **makespan(table, rows, finished, parameters),
    }
    found = [
        *findings(table),
        *_owners(table),
        *too_many(table, parameters),
        *work(bodies, lives, rows, parameters),
        *rules(table, lives, rows, parameters),
        *books.pauses(reported),
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
    last = last_draws(table)
    sums = np.bincount(table["job"][last], weights=table["solo_us"][last], minlength=len(table.jobs))
    for number in np.flatnonzero(jobs_ahead(table)):
        draws = last[table["job"][last] == number]
        sums[number] = solo_by_iteration(table, draws, int(table["iteration"][draws].max(initial=-1)) + 1).sum()
    return {name: round(total) for name, total in zip(table.jobs, sums, strict=True)}


def _finished(table: Table, rows: Mapping[str, Record]) -> list[str]:
    """The jobs that ran all their iterations."""
    trained = np.flatnonzero((table["phase"] == TRAINING) & (table["part"] == 0))
    size = table["iteration"].max(initial=0) + 1
    ran = np.unique(table["job"][trained] * size + table["iteration"][trained])
    done = np.bincount(ran // size, minlength=len(table.jobs))
    return [name for name, number in zip(table.jobs, done, strict=True) if number == rows[name]["iterations"]]


def _promises(finished: list[str], slowdowns: Mapping[str, float], rows: Mapping[str, Record]) -> dict[str, float]:
    """How many jobs ran all their iterations, and how many of them kept their promise."""
    met = sum(slowdowns[name] <= rows[name]["slo"] * (1 + 1e-9) for name in finished)
    attainment = met / len(finished) if finished else 0.0
    slowdown = spread("slowdown", [slowdowns[name] for name in finished])
    return {"jobs_finished": float(len(finished)), "slo_attainment": attainment, **slowdown}


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


def _disagreements(figures: Mapping[str, float], reported: Record) -> Iterator[AuditFinding]:
    told = {name: value for name, value in _flat(reported) if value is not None}
    paid = {name for name in told if name.startswith("tenants.") and name.endswith(".usd")}
    if abs(sum(told[name] for name in paid) - figures["usd"]) > 1e-9 * max(1.0, figures["usd"]):
        yield AuditFinding("figure", f"the tenants are reported to pay {sum(told[name] for name in paid)} together")
    maybe = {name for name in told if name.split(".")[0] in OPTIONAL}
    if not paid & figures.keys():  # where there are faults only the sum is known
        maybe -= paid | {name for name in told if name.startswith("sharing.")}
    for name in sorted(figures.keys() | maybe):
        own, value = figures.get(name), told.get(name)
        if own is None or value is None or abs(own - value) > 1e-9 * max(1.0, abs(own)):
            yield AuditFinding("figure", f"{name} is reported as {value}, audited as {own}")


def _flat(record: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Figures within figures by their names with dots."""
    for key, value in record.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
