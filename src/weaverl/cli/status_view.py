"""`weaverl status` and `weaverl explain` as tables."""

from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from weaverl.control.status import ClusterStatus, JobStatus
from weaverl.domain.jobs import ENDED, JobState
from weaverl.reports.axis import duration
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
    policy = status.policy if status.objective == "dollars" else f"{status.policy} for {status.objective}"
    console.print(f"cluster {status.cluster}, policy {policy}, {rate}, epoch {status.epoch}", highlight=False)
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
        for line in filter(None, (job.reason, job.standing, _lateness(job), _plan(job))):
            console.print(Text(f"{job.name}: {line}"))
    if status.tenants:
        _print_tenants(status, console)


def _print_tenants(status: ClusterStatus, console: Console) -> None:
    unit = "$" if status.shared_by == "dollars" else "GPU-h"
    console.print(f"\n{counted(len(status.tenants), 'tenant')}", highlight=False)
    table = _table("tenant", "weight", "running", "waiting", f"{unit} an hour", f"{unit}, decayed", "over weight")
    for one in status.tenants:
        figures = (f"{one.per_hour:,.2f}", f"{one.used:,.2f}", f"{one.used / one.weight:,.2f}")
        table.add_row(one.name, f"{one.weight:g}", str(one.running), str(one.waiting), *figures)
    console.print(table)


def whereabouts(status: ClusterStatus, job: JobStatus) -> str:
    """Where a job is, in a few words: its group and who else is there, or why it is queued."""
    if job.group is None:
        why = f", {job.verdicts[-1].refused}" if job.verdicts and job.verdicts[-1].refused else ""
        return f"{job.state}{why}"
    members = next((group.members for group in status.groups if group.name == job.group), ())
    others = ", ".join(name for name in members if name != job.name)
    return f"in group {job.group} on {', '.join(job.nodes)}{' with ' + others if others else ''}"


def _lateness(job: JobStatus) -> str:
    if not job.late or job.slack_seconds is None:
        return ""
    slack = f"{duration(abs(job.slack_seconds))} {'left' if job.slack_seconds >= 0 else 'to make good'}"
    return f"late, with {slack}: its slots are kept free for it"


def _plan(job: JobStatus) -> str:
    return f"is to move {job.planned_move}" if job.planned_move else ""


def _table(*titles: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for title in titles:
        table.add_column(title)
    return table


def print_explanation(job: JobStatus, stream: TextIO) -> None:
    """How it stands to its promise, its moves, and every placement that was looked at, its price, and why not."""
    console = console_for(stream)
    console.print(f"{job.name}: {job.state}{', ' + job.reason if job.reason else ''}", highlight=False)
    for line in job.last_lines:
        console.print(Text(f"  | {line}"))
    for line in filter(None, (job.standing, _standing(job), _lateness(job), _plan(job), _stays(job))):
        console.print(Text(line))
    if not job.verdicts:
        console.print("it has not been looked at yet")
        return
    console.print("looked at, in this order:")
    prices = any(verdict.added_usd is not None for verdict in job.verdicts)
    in_all = ("adds $ in all",) if prices else ()
    heads = ("placement", "group", "adds $/hour", *in_all, "predicted slowdowns", "verdict")
    rows = [
        (
            verdict.kind,
            verdict.group,
            f"{verdict.added_usd_per_hour:.2f}",
            *(("" if verdict.added_usd is None else f"{verdict.added_usd:,.2f}",) if prices else ()),
            ", ".join(f"{name} {value:.2f}x" for name, value in verdict.predicted_slowdowns.items()),
            verdict.refused or "taken",
        )
        for verdict in job.verdicts
    ]
    console.print(sheet(heads, rows, console, words=heads[-2:]), crop=False)


def _standing(job: JobStatus) -> str:
    if job.slowdown is None or job.slack_seconds is None:
        return ""
    slack, moved = duration(abs(job.slack_seconds)), f", moved {counted(job.moves, 'time')}" if job.moves else ""
    if job.state in ENDED:
        return f"slowed to {job.slowdown:.2f}x in all, its SLO is {job.slo:.2f}x{moved}"
    room = f"{slack} may still be lost" if job.slack_seconds >= 0 else f"{slack} have to be made good"
    return f"slowed to {job.slowdown:.2f}x so far, its SLO is {job.slo:.2f}x: {room}{moved}"


def _stays(job: JobStatus) -> str:
    return f"its last planned move was dropped: {job.stays_because}" if job.stays_because else ""


def _cells(job: JobStatus) -> tuple[str | Text, ...]:
    total = f"/{job.iterations}" if job.iterations else ""
    slowdown = f"{job.slowdown:.2f}" if job.slowdown else "-"
    state = Text(str(job.state), style=_STYLES.get(job.state, ""))
    return job.name, state, job.group or "", f"{job.iterations_done}{total}", f"{slowdown}/{job.slo:.2f}", job.doing
