"""`weaverl status` and `weaverl explain` as tables."""

from typing import TextIO

from rich.table import Table
from rich.text import Text

from weaverl.control.status import ClusterStatus, JobStatus
from weaverl.domain.jobs import JobState
from weaverl.reports.tables import console_for

_STYLES = {
    JobState.RUNNING: "green",
    JobState.FINISHED: "bold green",
    JobState.FAILED: "bold red",
    JobState.QUEUED: "yellow",
}


def print_status(status: ClusterStatus, stream: TextIO) -> None:
    """Nodes, then jobs."""
    console = console_for(stream)
    rate = f"${status.usd_per_hour:.2f} an hour"
    nodes = Table(title=f"cluster {status.cluster}, {rate}, epoch {status.epoch}", title_justify="left")
    for title in ("node", "pool", "state", "group", "doing", "host memory"):
        nodes.add_column(title)
    for node in status.nodes:
        memory = f"{node.host_used_bytes / 2**30:.2f} of {node.host_usable_bytes / 2**30:.2f} GiB"
        nodes.add_row(node.name, node.pool, node.state, node.group or "", node.doing, memory)
    console.print(nodes)
    jobs = Table(title=f"{len(status.jobs)} jobs", title_justify="left")
    for title in ("job", "state", "group", "iterations", "predicted slowdown", "doing", "reason"):
        jobs.add_column(title)
    for job in status.jobs:
        jobs.add_row(*_cells(job))
    console.print(jobs)


def print_explanation(job: JobStatus, stream: TextIO) -> None:
    """Every placement that was looked at, its price, and why it was refused."""
    console = console_for(stream)
    console.print(f"{job.name}: {job.state}{', ' + job.reason if job.reason else ''}", highlight=False)
    for line in job.last_lines:
        console.print(Text(f"  | {line}"))
    if not job.verdicts:
        console.print("it has not been looked at yet")
        return
    table = Table(title="placements in the order they were looked at", title_justify="left")
    for title in ("placement", "group", "adds $/hour", "predicted slowdowns", "verdict"):
        table.add_column(title)
    for verdict in job.verdicts:
        slowdowns = ", ".join(f"{name} {value:.2f}x" for name, value in verdict.predicted_slowdowns.items())
        taken = verdict.refused or "taken"
        table.add_row(verdict.kind, verdict.group, f"{verdict.added_usd_per_hour:.2f}", slowdowns, taken)
    console.print(table)


def _cells(job: JobStatus) -> tuple[str | Text, ...]:
    total = f" of {job.iterations}" if job.iterations else ""
    predicted = f"{job.predicted_slowdown:.2f}x" if job.predicted_slowdown else "-"
    state = Text(str(job.state), style=_STYLES.get(job.state, ""))
    slowdown = f"{predicted}, SLO {job.slo:.2f}x"
    return job.name, state, job.group or "", f"{job.iterations_done}{total}", slowdown, job.doing, job.reason
