"""Timelines and simulation: a simulated run's file and audit, and a measured run's simulation."""

from itertools import chain
from pathlib import Path

import msgspec

from weaverl.domain.cluster import Cluster
from weaverl.domain.groups import Pin
from weaverl.errors import UsageError
from weaverl.reports.audit import SimulatedAudit, audit_simulated, table_of_rows
from weaverl.reports.timeline_file import TimelineHeader, read_timeline, timeline_job, write_records
from weaverl.simulation.measured import Comparison, compare_with_simulation
from weaverl.simulation.outcome import Outcome
from weaverl.simulation.timeline import Recorder
from weaverl.simulation.traces.records import Trace


def write_recorded(path: Path, cluster: Cluster, recorder: Recorder) -> None:
    """Write the timeline file of a simulated run, or leave what was there."""
    write_records(path, header_of(cluster, recorder), chain(recorder.intervals(), recorder.restores(), recorder.spans))


def audit_recorded(trace: Trace, cluster: Cluster, recorder: Recorder, outcome: Outcome) -> SimulatedAudit:
    """Have a simulated run audited: from its timeline and trace alone."""
    header = msgspec.to_builtins(header_of(cluster, recorder))
    slots = [[(slot.node, slot.device) for slot in where] for where in recorder.slots]
    spans = [msgspec.to_builtins(span) for span in recorder.spans]
    table = table_of_rows(header, list(recorder.jobs), slots, recorder.rows, spans, recorder.restored_rows)
    rows = [msgspec.to_builtins(job) for job in trace.jobs]
    return audit_simulated(table, rows, outcome.parameters, msgspec.to_builtins(outcome))


def header_of(cluster: Cluster, recorder: Recorder) -> TimelineHeader:
    """The header: all nodes that there ever were, and the jobs that were admitted."""
    jobs = tuple(timeline_job(job.spec, job.pins, job.moved) for job in recorder.jobs.values())
    return TimelineHeader(cluster=cluster, jobs=jobs)


def compare_timeline(path: Path) -> Comparison:
    """Simulate the run of a timeline file with its own times.

    Raises:
        UsageError: the file is none, or the run cannot be simulated.
    """
    read = read_timeline(path)
    attempts = {one.job: one.attempt for one in read.timeline.intervals}
    if not attempts:
        raise UsageError(f"{path} has no interval: nothing was run")
    for job in read.header.jobs:
        if job.staleness:
            raise UsageError(f"job {job.name} has staleness {job.staleness}: simulate a run of synchronous jobs")
    pins = {
        job.name: Pin(pin.rollout, pin.training)
        for job in read.header.jobs
        for pin in job.pins
        if attempts.get(job.name) == pin.attempt
    }
    if missing := sorted(attempts.keys() - pins.keys()):
        raise UsageError(f"{path} does not say where {', '.join(missing)} was pinned; write it with `weaverl timeline`")
    return compare_with_simulation(read.header.cluster, pins, read.timeline)
