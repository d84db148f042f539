"""The Microsoft Philly trace: the CSV of the AdaptDL artifact, and the original JSON job log.

Schema of the log: README of github.com/msr-fiddle/philly-traces.
"""

import re
from collections.abc import Iterable
from itertools import chain
from typing import TextIO

import msgspec

from weaverl.errors import TraceError
from weaverl.simulation.traces.sieve import BACKWARD, NEVER_STARTED, STILL_RUNNING, Sieve
from weaverl.simulation.traces.stamps import Stamps
from weaverl.simulation.traces.tables import Table

CSV_COLUMNS = ("timestamp", "duration", "num_gpus", "gpu_time", "cluster")
_UTILISATION_CELLS = re.compile(r"[^,]*,[^,]+(,(NA|[0-9.]+)){4,},?", re.ASCII)
NO_ATTEMPT_TIMES = "has an attempt without times"


def read_csv(lines: Iterable[str], source: str, stamps: Stamps) -> Sieve:
    """Jobs without ids, in no order; equal rows are different jobs. Ids are made from row numbers."""
    sieve = Sieve(source)
    lines = iter(lines)
    first = next(lines, "")
    if _UTILISATION_CELLS.fullmatch(first.strip()):
        raise TraceError(f"{source} is a utilisation log (time, machine, percent of each GPU): give the log of jobs")
    table = Table(chain([first], lines), source)
    table.require(CSV_COLUMNS)
    for row in table.rows():
        submit = row.stamp("timestamp", stamps)
        sieve.keep(
            f"row{row.line - 1:06d}", row.text("cluster"), submit, row.seconds("duration"), row.number("num_gpus")
        )
    return sieve


class Machine(msgspec.Struct):
    """GPUs that an attempt had on one machine."""

    ip: str
    gpus: list[str]


class Attempt(msgspec.Struct):
    """One time that the job was scheduled; times that were not logged are None."""

    start_time: str | None
    end_time: str | None
    detail: list[Machine]


class LoggedJob(msgspec.Struct):
    """One object of the job log."""

    status: str
    vc: str
    jobid: str
    attempts: list[Attempt]
    submitted_time: str
    user: str


def read_log(stream: TextIO, source: str, stamps: Stamps) -> Sieve:
    """Jobs with their attempts.

    A job's duration is the time inside its attempts, without the gaps between them, and its GPUs are those of its
    attempts, weighted by their times: GPU-hours are kept.

    Raises:
        TraceError: not the log's JSON; NaN and Infinity are not JSON.
    """
    try:
        jobs = msgspec.json.decode(stream.read(), type=list[LoggedJob])
    except msgspec.DecodeError as error:
        raise TraceError(f"{source} is not a Philly job log: {error}") from error
    sieve = Sieve(source)
    for job in jobs:
        _sift(job, sieve, stamps)
    return sieve


def _sift(job: LoggedJob, sieve: Sieve, stamps: Stamps) -> None:
    def seconds(text: str) -> float:
        return stamps.seconds(text, lambda problem: TraceError(f"{sieve.source}, job {job.jobid}: {problem}"))

    if not job.attempts:
        return sieve.skip(NEVER_STARTED)
    if job.attempts[-1].start_time and not job.attempts[-1].end_time:
        return sieve.skip(STILL_RUNNING)
    spans: list[tuple[float, int]] = []
    for attempt in job.attempts:
        if not attempt.start_time or not attempt.end_time:
            return sieve.skip(NO_ATTEMPT_TIMES)
        gpus = sum(len(machine.gpus) for machine in attempt.detail)
        spans.append((seconds(attempt.end_time) - seconds(attempt.start_time), gpus))
    if any(span < 0 for span, _ in spans):
        return sieve.skip(BACKWARD)
    duration = sum(span for span, _ in spans)
    used = sum(span * gpus for span, gpus in spans)
    gpus_meanwhile = used / duration if duration else float(spans[-1][1])
    return sieve.keep(job.jobid, job.vc, seconds(job.submitted_time), duration, gpus_meanwhile)
