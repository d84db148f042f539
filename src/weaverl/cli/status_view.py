"""`weaverl status` and `weaverl explain` as tables."""

from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from weaverl.control.status import ClusterStatus, JobStatus
from weaverl.domain.jobs import JobState
from weaverl.reports.cells import counted
from weaverl.reports.sheets import sheet
from weaverl.reports.tables import console_for

_STYLES = {
    JobState.RUNNING: "green",
    JobState.FINISHED: "bold green",
    JobState.FAILED: "bold red",
    JobState.QUEUED: "yellow",
}


def print_status(status: ClusterStatus, console: Console) -> None:
    """Nodes, then jobs, in 80 columns where names are of usual length; then why jobs are what they are."""
    rate = f"${status.usd_per_hour:.2f} an hour"
    console.print(f"cluster {status.cluster}, policy {status.policy}, {rate}, epoch {status.epoch}", highlight=False)
    nodes = _table("node", "pool", "state", "group", "doing", "host memory")
    for node in status.nodes:
        memory = f"{node.host_used_bytes / 2**30:.2f}/{node.host_usable_bytes / 2**30:.2f} GiB"
        nodes.add_row(node.name, node.pool, node.state, node.group or "", node.doing, memory)
    console.print(nodes)
    older = f", {status.num_older_jobs} that ended earlier are not shown" if status.num_older_jobs else ""
    console.print(f"\n{counted(len(status.jobs), 'job')}{older}", highlight=False)
    jobs = _table("job", "state", "group", "done", "slow/SLO", "doing")
    for job in status.jobs:
        jobs.add_row(*_cells(job))
    console.print(jobs)
    for job in status.jobs:
        if job.reason:
            console.print(Text(f"{job.name}: {job.reason}"))


def whereabouts(status: ClusterStatus, job: JobStatus) -> str:
    """Where a job is, in a few words: its group and who else is there, or why it is queued."""
    if job.group is None:
        why = f", {job.verdicts[-1].refused}" if job.verdicts and job.verdicts[-1].refused else ""
        return f"{job.state}{why}"
    members = next((group.members for group in status.groups if group.name == job.group), ())
    others = ", ".join(name for name in members if name != job.name)
    return f"in group {job.group} on {', '.join(job.nodes)}{' with ' + others if others else ''}"


def _table(*titles: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for title in titles:
        table.add_column(title)
    return table


def print_explanation(job: JobStatus, stream: TextIO) -> None:
    """Every placement that was looked at, its price, and why it was refused."""
    console = console_for(stream)
    console.print(f"{job.name}: {job.state}{', ' + job.reason if job.reason else ''}", highlight=False)
    for line in job.last_lines:
        console.print(Text(f"  | {line}"))
    if not job.verdicts:
        console.print("it has not been looked at yet")
        return
    console.print("looked at, in this order:")
    heads = ("placement", "group", "adds $/hour", "predicted slowdowns", "verdict")
    rows = [
        (
            verdict.kind,
            verdict.group,
            f"{verdict.added_usd_per_hour:.2f}",
            ", ".join(f"{name} {value:.2f}x" for name, value in verdict.predicted_slowdowns.items()),
            verdict.refused or "taken",
        )
        for verdict in job.verdicts
    ]
    console.print(sheet(heads, rows, console, words=heads[3:]), crop=False)


def _cells(job: JobStatus) -> tuple[str | Text, ...]:
    total = f"/{job.iterations}" if job.iterations else ""
    predicted = f"{job.predicted_slowdown:.2f}" if job.predicted_slowdown else "-"
    state = Text(str(job.state), style=_STYLES.get(job.state, ""))
    return job.name, state, job.group or "", f"{job.iterations_done}{total}", f"{predicted}/{job.slo:.2f}", job.doing
