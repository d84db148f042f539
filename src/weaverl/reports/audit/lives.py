"""Attempts of a simulated run: from when to when each lived, in which group, and who was there with it."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from weaverl.reports.audit.checks import attempts, pins_of
from weaverl.reports.audit.table import LOADING, SYNC, Column, Table


@dataclass(frozen=True)
class Life:
    """One attempt. ``loaded_at`` is None if its cold start came to nothing; ``group`` if it was pinned nowhere.

    ``last_iteration`` was to come or under way when it ended. ``moved``: the attempt ended so that the job goes on
    elsewhere or later; ``at_boundary``: the iteration before was over then, and nothing of the last had begun.
    """

    job: int
    name: str
    attempt: int
    rows: Column
    begin: int
    loaded_at: int | None
    end: int
    group: str | None
    last_iteration: int
    moved: bool
    at_boundary: bool


def lives_of(table: Table) -> list[Life]:
    """All attempts, those of a job in their order."""
    owners = defaultdict(list)
    for span in table.spans:
        owners[span["node"]].append(span)
    pins, moved = pins_of(table), _moved(table)
    found = []
    for rows in attempts(table):
        job, attempt = int(table["job"][rows[0]]), int(table["attempt"][rows[0]])
        pin = pins.get((table.jobs[job], attempt), {"rollout": set(), "training": set()})
        nodes = frozenset(node for node, _ in pin["rollout"] | pin["training"])
        begin = int(table["requested_at"][rows].min())
        group = next(
            (s["group"] for n in nodes for s in owners[n] if s["taken_at"] <= begin < s["given_back_at"]), None
        )
        end = int(table["released_at"][rows].max())
        marks = rows[(table["phase"][rows] == LOADING) & (table["released_at"][rows] == end)]
        last = int(table["iteration"][marks].min(initial=table["iteration"][rows].max()))
        before = rows[(table["phase"][rows] == SYNC) & (table["iteration"][rows] == last - 1)]
        is_begun = bool(((table["phase"][rows] != LOADING) & (table["iteration"][rows] == last)).any())
        at_boundary = bool((table["ended_at"][before] <= end).any()) and not is_begun
        name, loaded = table.jobs[job], _loaded_at(table, rows)
        is_moved = (name, attempt) in moved
        found.append(Life(job, name, attempt, rows, begin, loaded, end, group, last, is_moved, at_boundary))
    return found


def _moved(table: Table) -> set[tuple[str, int]]:
    """The attempts that were ended by a move or a pause."""
    jobs = table.header["jobs"]
    return {(job["name"], pin["attempt"]) for job in jobs for pin in job.get("pins", ()) if pin.get("moved")}


def _loaded_at(table: Table, rows: Column) -> int | None:
    """The end of the cold start: of the first loading, if a phase or the mark of the attempt's end came later."""
    loading = rows[table["phase"][rows] == LOADING]
    asked = table["requested_at"][loading]
    if not len(loading) or (len(loading) == len(rows) and asked.min() == asked.max()):
        return None
    return int(table["ended_at"][loading[asked.argmin()]])


def neighbours(lives: list[Life]) -> Iterator[tuple[Life, list[Life]]]:
    """Each attempt with those of other jobs that its group had while it lived, if only for a moment."""
    by_group = defaultdict(list)
    for life in lives:
        by_group[life.group].append(life)
    for together in by_group.values():
        for life in together:
            others = (one for one in together if one.job != life.job)
            yield life, [one for one in others if one.begin <= life.end and life.begin <= one.end]


def has_faults(parameters: Mapping[str, Any]) -> bool:
    """Whether nodes or jobs may fail. When a lost attempt has left its group is not in the timeline."""
    return bool(parameters["node_mtbf_hours"] or parameters["job_mtbf_hours"])
