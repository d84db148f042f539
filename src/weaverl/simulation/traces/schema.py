"""Our own trace schema, read strictly and written with fixed decimals: one row a job, times in seconds."""

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import TextIO

import msgspec

from weaverl.errors import TraceError
from weaverl.simulation.traces.records import TraceJob
from weaverl.simulation.traces.tables import Row, Table
from weaverl.whole_file import whole_file

COLUMNS = (
    "job_id",
    "tenant",
    "arrival_s",
    "iterations",
    "model_b",
    "max_tokens",
    "turns",
    "rollout_gpus",
    "training_gpus",
    "rollout_max_s",
    "rollout_mean_s",
    "rollout_cv",
    "rollout_p80",
    "training_s",
    "sync_gib",
    "rollout_host_gib",
    "training_host_gib",
    "slo",
    "rollout_growth",
)
_GROWTH = "rollout_growth"
_PRIORITY, _DEADLINE, _STALENESS = "priority", "deadline_s", "staleness"
"""Columns that are written only if a job has them."""
_ALL_COLUMNS = (*COLUMNS, _PRIORITY, _DEADLINE, _STALENESS)
_MOST_PRIORITY = 1_000_000


def read_jobs(lines: Iterable[str], source: str) -> list[TraceJob]:
    """The jobs of a file in our schema, sorted stably by arrival.

    Columns may come in any order; ``rollout_growth`` (1), ``priority`` (0), ``deadline_s`` (none, as in an empty
    cell) and ``staleness`` (0) may be absent. All or nothing.

    Raises:
        TraceError: a missing, unknown or repeated column, a cell that is out of range, an id that is there twice.
    """
    table = Table(lines, source)
    table.require([name for name in COLUMNS if name != _GROWTH])
    unknown = [name for name in table.header if name not in _ALL_COLUMNS]
    if unknown:
        raise TraceError(
            f"{source} has column {', '.join(unknown)} that we do not know: the columns are {','.join(_ALL_COLUMNS)}"
        )
    jobs: list[TraceJob] = []
    first_lines: dict[str, int] = {}
    for row in table.rows():
        job = _job(row)
        first = first_lines.setdefault(job.job_id, row.line)
        if first != row.line:
            raise row.fault("job_id", f"{job.job_id} is the id of line {first} too: ids are unique")
        jobs.append(job)
    return sorted(jobs, key=lambda job: job.arrival_seconds)


def write_jobs(jobs: Iterable[TraceJob], path: Path) -> None:
    """Write a file in our schema, whole or not at all: the same jobs give the same bytes.

    Six decimals: seconds to the simulated clock's microsecond.
    """
    with whole_file(path) as stream:
        write_rows(jobs, stream)


def write_rows(jobs: Iterable[TraceJob], stream: TextIO) -> None:
    """The header and the rows, to an open stream."""
    writer = csv.writer(stream, lineterminator="\n")
    rows = list(jobs)
    unused = set()
    if not any(job.priority for job in rows):
        unused.add(_PRIORITY)
    if all(job.deadline_seconds is None for job in rows):
        unused.add(_DEADLINE)
    if not any(job.staleness for job in rows):
        unused.add(_STALENESS)
    kept = [place for place, name in enumerate(_ALL_COLUMNS) if name not in unused]
    writer.writerow([_ALL_COLUMNS[place] for place in kept])
    writer.writerows(_cells(job, kept) for job in rows)


def _cells(job: TraceJob, kept: list[int]) -> list[str]:
    values = msgspec.structs.astuple(job)
    return [_cell(values[place]) for place in kept]


def _cell(value: str | int | float | None) -> str:
    if value is None:
        return ""
    return f"{value:.6f}" if isinstance(value, float) else str(value)


def _job(row: Row) -> TraceJob:
    job = TraceJob(
        job_id=row.text("job_id"),
        tenant=row.text("tenant"),
        arrival_seconds=row.number("arrival_s", at_least=0),
        iterations=row.integer("iterations", at_least=1),
        model_billions=row.number("model_b", above=0),
        max_tokens=row.integer("max_tokens", at_least=1),
        turns=row.integer("turns", at_least=1),
        rollout_gpus=row.integer("rollout_gpus", at_least=1),
        training_gpus=row.integer("training_gpus", at_least=1),
        rollout_max_seconds=row.number("rollout_max_s", above=0),
        rollout_mean_seconds=row.number("rollout_mean_s", above=0),
        rollout_cv=row.number("rollout_cv", at_least=0),
        rollout_p80=row.number("rollout_p80", above=0),
        training_seconds=row.number("training_s", above=0),
        sync_gib=row.number("sync_gib", at_least=0),
        rollout_host_gib=row.number("rollout_host_gib", at_least=0),
        training_host_gib=row.number("training_host_gib", at_least=0),
        slo=row.number("slo", at_least=1),
        rollout_growth=row.number(_GROWTH, above=0) if _GROWTH in row.cells else 1.0,
        priority=row.integer(_PRIORITY, at_least=-_MOST_PRIORITY) if _PRIORITY in row.cells else 0,
        deadline_seconds=row.number(_DEADLINE, above=0) if row.cells.get(_DEADLINE) else None,
        staleness=row.integer(_STALENESS, at_least=0) if _STALENESS in row.cells else 0,
    )
    if job.rollout_mean_seconds > job.rollout_max_seconds:
        raise row.fault(
            "rollout_mean_s", f"{job.rollout_mean_seconds:g} is over rollout_max_s {job.rollout_max_seconds:g}"
        )
    if job.rollout_p80 > 1:
        raise row.fault("rollout_p80", f"{job.rollout_p80:g} must be a fraction of the rollout: over 0, at most 1")
    if job.staleness > 1:
        raise row.fault(
            _STALENESS, f"{job.staleness} is fully asynchronous, which is not simulated: 0 or 1 (a step off-policy)"
        )
    return job
