"""Alibaba's PAI 2020 trace: a job table and a task table, both without a header line.

Schema: ``*.header`` files and README of github.com/alibaba/clusterdata, cluster-trace-gpu-v2020. Times are seconds
shifted by a constant; 0 and an empty cell both mean that a time is not known.
"""

import msgspec

from weaverl.simulation.traces.sieve import NEVER_STARTED, NO_GPUS, NO_SUBMISSION, STILL_RUNNING, Sieve
from weaverl.simulation.traces.tables import Row, Table

JOB_COLUMNS = ("job_name", "inst_id", "user", "status", "start_time", "end_time")
TASK_COLUMNS = (
    "job_name",
    "task_name",
    "inst_num",
    "status",
    "start_time",
    "end_time",
    "plan_cpu",
    "plan_mem",
    "plan_gpu",
    "gpu_type",
)


class Demand(msgspec.Struct):
    """What the GPU tasks of one job ask for, and when those with a known start ran."""

    gpus: float = 0.0
    start: float | None = None
    end: float = 0.0
    is_running: bool = False


def read_tables(jobs: Table, tasks: Table) -> Sieve:
    """Jobs with the GPUs of their tasks: the sum of ``inst_num x plan_gpu / 100``.

    A job is submitted at its own start time; it runs from the first known start to the last end of its GPU tasks.
    """
    demands = _demands(tasks)
    sieve = Sieve(jobs.source)
    for row in jobs.rows():
        _sift(row, demands.pop(row.text("job_name"), Demand()), sieve)
    if demands:
        sieve.warnings.append(f"{tasks.source}: tasks of {len(demands)} jobs that the job table does not have")
    return sieve


def _demands(tasks: Table) -> dict[str, Demand]:
    demands: dict[str, Demand] = {}
    for row in tasks.rows():
        demand = demands.setdefault(row.text("job_name"), Demand())
        gpus = _optional(row, "inst_num") * _optional(row, "plan_gpu") / 100
        if gpus > 0:
            demand.gpus += gpus
            _run(demand, _optional(row, "start_time"), _optional(row, "end_time"))
    return demands


def _run(demand: Demand, start: float, end: float) -> None:
    """Count a task's time. Without a start its end means nothing; with a start and no end it still runs."""
    if start:
        demand.start = start if demand.start is None else min(demand.start, start)
        demand.end = max(demand.end, end)
        demand.is_running = demand.is_running or not end


def _sift(row: Row, demand: Demand, sieve: Sieve) -> None:
    submit = _optional(row, "start_time")
    if demand.gpus <= 0:
        sieve.skip(NO_GPUS)
    elif not submit:
        sieve.skip(NO_SUBMISSION)
    elif demand.start is None:
        sieve.skip(NEVER_STARTED)
    elif demand.is_running:
        sieve.skip(STILL_RUNNING)
    else:
        sieve.keep(row.text("job_name"), row.text("user"), submit, demand.end - demand.start, demand.gpus)


def _optional(row: Row, column: str) -> float:
    return row.number(column, at_least=0) if row.cells[column] else 0.0
