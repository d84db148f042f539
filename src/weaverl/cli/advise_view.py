"""Advice as tables, as figures for JSON, and as a picture of the woven rounds."""

from collections.abc import Sequence
from typing import TextIO

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from weaverl.domain.cluster import PoolKind
from weaverl.domain.jobs import PhaseKind
from weaverl.domain.timeline import Interval, Timeline
from weaverl.reports.gantt import gantt_svg
from weaverl.reports.gantt_frame import GanttRun
from weaverl.reports.sheets import sheet
from weaverl.reports.tables import console_for
from weaverl.simulation.advice import Advice, AdvisedJob, GroupAdvice, JobAdvice
from weaverl.simulation.timing_logs import WARMING, Run

DRAWN_ROUNDS = 4


def print_advice(advice: Advice, runs: Sequence[Run], jobs: Sequence[AdvisedJob], stream: TextIO) -> None:
    """What was read, what weaving saves, which nodes are shared, everybody's slowdown, and what to keep in mind."""
    console = console_for(stream)
    _print_read(runs, jobs, console)
    console.print()
    console.print(Text(_headline(advice), style="bold"))
    if len(jobs) == 1:
        return
    console.print()
    console.print(_nodes(advice, console), crop=False)
    console.print()
    console.print(_slowdowns(advice, console), crop=False)
    for note in _notes(advice, runs, jobs):
        console.print(Text(f"- {note}"))


def figures_of(advice: Advice, runs: Sequence[Run], jobs: Sequence[AdvisedJob]) -> dict[str, object]:
    """Everything as plain data; without the single phases."""
    return {
        "pays": advice.pays,
        "saved": advice.saved,
        **{
            name: getattr(advice, name)
            for name in (
                "rounds",
                "nodes_before",
                "nodes_after",
                "usd_per_hour_before",
                "usd_per_hour_after",
                "usd_per_hour_as_run",
                "usd_before",
                "usd_after",
                "usd_as_run",
            )
        },
        "groups": [
            {key: value for key, value in msgspec.to_builtins(group).items() if key not in ("phases", "pins")}
            for group in advice.groups
        ],
        "jobs": [msgspec.to_builtins(job) for job in advice.jobs],
        "runs": [
            {
                "name": run.name,
                "source": run.source,
                "framework": run.framework,
                "iterations": len(run.iterations),
                "skipped": run.skipped,
                "colocated": run.setup.colocated,
                "overlapped": run.overlapped,
                "rollout_gpus": job.spec.rollout_gpus,
                "training_gpus": job.spec.training_gpus,
                "profile": msgspec.to_builtins(job.spec.profile),
                "host_memory": msgspec.to_builtins(job.spec.host_memory),
            }
            for run, job in zip(runs, jobs, strict=True)
        ],
    }


def gantt_of(advice: Advice) -> str:
    """The first rounds of the groups that share nodes, as SVG; all groups if none does."""
    shared = [group for group in advice.groups if len(group.jobs) > 1] or list(advice.groups)
    used = {node for group in shared for node in (*group.rollout_nodes, *group.training_nodes)}
    nodes = tuple(node for node in advice.cluster.nodes if node.name in used)
    intervals = [interval for group in shared for interval in _intervals(group)]
    timeline = Timeline(intervals=tuple(sorted(intervals, key=lambda interval: interval.granted_at)))
    note = f"the first {DRAWN_ROUNDS} rounds, with the times that were measured"
    run = GanttRun(title="woven", timelines=(timeline,), note=note)
    names = [job for group in shared for job in group.jobs]
    return str(gantt_svg(msgspec.structs.replace(advice.cluster, nodes=nodes), names, [run]))


def _intervals(group: GroupAdvice) -> list[Interval]:
    return [
        Interval(
            job=phase.job,
            attempt=1,
            phase=PhaseKind(phase.pool),
            iteration=phase.iteration,
            slots=group.pins[phase.job].slots(PoolKind(phase.pool)),
            requested_at=phase.start_us,
            granted_at=phase.start_us,
            started_at=phase.start_us,
            ended_at=phase.end_us,
            released_at=phase.end_us,
        )
        for phase in group.phases
        if phase.iteration < DRAWN_ROUNDS
    ]


def _headline(advice: Advice) -> str:
    if len(advice.jobs) == 1:
        return "One job alone has nobody to share with: give the logs of the jobs that run beside it."
    after = f"${advice.usd_per_hour_after:.2f} an hour on {advice.nodes_after} nodes"
    before = f"${advice.usd_per_hour_before:.2f} on {advice.nodes_before}"
    if all(len(group.jobs) == 1 for group in advice.groups):
        return f"Weaving does not pay here: no two of these jobs can share nodes within their SLOs ({before} nodes)."
    if advice.saved <= 0:
        return (
            f"Weaving does not pay here: {after} instead of {before} with nodes of their own in both pools, but the "
            f"same iterations take so much longer that they cost {-advice.saved:.0%} more."
        )
    saved = f"{advice.saved:.0%} of the dollars for the same iterations, against nodes of their own in both pools"
    colocated = 1 - advice.usd_after / advice.usd_as_run
    if colocated <= 0:
        return (
            f"Weaving saves {saved}: {after} instead of {before}. But these jobs ran colocated, and that costs "
            f"{-colocated / (1 - colocated):.0%} less still: it does not pay here."
        )
    return f"Weaving saves {saved}: {after} instead of {before}."


def _print_read(runs: Sequence[Run], jobs: Sequence[AdvisedJob], console: Console) -> None:
    logs = [
        (
            run.name,
            run.framework,
            str(len(run.iterations)),
            str(sum(run.skipped.values())),
            f"{job.spec.rollout_gpus}+{job.spec.training_gpus}",
        )
        for run, job in zip(runs, jobs, strict=True)
    ]
    console.print(sheet(("job", "log", "steps", "left out", "GPUs"), logs, console), crop=False)
    console.print()
    times = [_times(job) for job in jobs]
    console.print(sheet(("job", "rollout", "longest", "training", "sync", "other"), times, console), crop=False)


def _times(job: AdvisedJob) -> tuple[str, ...]:
    profile = job.spec.profile
    assert profile is not None
    return (
        job.spec.name,
        f"{_seconds(profile.rollout_mean_seconds)} ±{profile.rollout_cv:.0%}",
        _seconds(profile.rollout_max_seconds),
        _seconds(profile.training_seconds),
        _seconds(profile.sync_seconds),
        _seconds(profile.other_seconds),
    )


def _nodes(advice: Advice, console: Console) -> Table:
    rows = [
        (
            ", ".join(group.jobs),
            _gpus(group.rollout_nodes, advice),
            _gpus(group.training_nodes, advice),
            f"{group.usd_per_hour:.2f}",
            f"{group.usd_per_hour_alone:.2f}",
        )
        for group in advice.groups
    ]
    return sheet(("jobs", "rollout nodes", "training nodes", "$/hour", "$/hour alone"), rows, console)


def _gpus(names: Sequence[str], advice: Advice) -> str:
    """Nodes as number, size and kind."""
    node = next(node for node in advice.cluster.nodes if node.name == names[0])
    pool = advice.cluster.rollout if node.pool is PoolKind.ROLLOUT else advice.cluster.training
    return f"{len(names)} x {node.num_devices} {pool.gpu}"


def _slowdowns(advice: Advice, console: Console) -> Table:
    rows = [_slowdown_row(job, advice) for job in advice.jobs]
    heads = ("job", "shares with", "slowdown", "at its longest rollouts", "SLO")
    return sheet(heads, rows, console, words=("job", "shares with"))


def _slowdown_row(job: JobAdvice, advice: Advice) -> tuple[str | Text, ...]:
    others = next(group.jobs for group in advice.groups if job.name in group.jobs)
    return (
        job.name,
        ", ".join(other for other in others if other != job.name) or "nobody",
        Text(f"{job.slowdown:.2f}x", style="bold red" if job.slowdown > job.slo else ""),
        f"{job.predicted_slowdown:.2f}x",
        f"{job.slo:.2f}x",
    )


def _notes(advice: Advice, runs: Sequence[Run], jobs: Sequence[AdvisedJob]) -> list[str]:
    notes = [note for job in advice.jobs if job.refused for note in _refusals(job)]
    if advice.usd_per_hour_as_run != advice.usd_per_hour_before:
        notes.append(_colocated(advice))
    for run in runs:
        notes += _notes_on(run)
    silent = [run.name for run in runs if not run.logged_sync]
    if silent:
        notes.append(f"{', '.join(silent)} logged no sync between pools: it is estimated from the model's size.")
    notes.append(
        "Slowdowns are the measured iterations walked through the rounds, switches included, queueing and faults not. "
        "Admission plans with the longest rollouts seen, which are the cap's only if some response met it."
    )
    return notes


def _colocated(advice: Advice) -> str:
    change = 1 - advice.usd_after / advice.usd_as_run
    return (
        f"As they ran, colocated on their training GPUs, these jobs cost ${advice.usd_per_hour_as_run:.2f} an hour; "
        f"woven on two pools the same iterations cost {abs(change):.0%} {'less' if change > 0 else 'more'} than that. "
        f"Times are as measured there: --rollout-scale and --training-scale say how the pools' GPUs differ."
    )


def _notes_on(run: Run) -> list[str]:
    notes = []
    if run.overlapped:
        notes.append(f"{run.name} overlaps rollout and training already: what weaving would fill is mostly full.")
    if run.apart:
        notes.append(f"{run.name} logged its rollouts and its steps apart: training is the mean over all steps.")
    left = ", ".join(f"{times} x {reason}" for reason, times in run.skipped.items() if reason != WARMING)
    if left:
        notes.append(f"{run.name}: left out {left}.")
    return notes


def _refusals(job: JobAdvice) -> list[str]:
    """Why a job stays alone, a reason for each group that it could have joined, and what SLO would change it."""
    reasons: dict[str, str] = {}
    for refusal in job.refused:
        reasons.setdefault(", ".join(refusal.jobs), refusal.reason)
    enough = min((refusal.slo for refusal in job.refused if refusal.slo), default=None)
    hint = f"; an SLO of {enough:.2f}x for all would do" if enough else ""
    told = "; ".join(f"with {names} - {reason}" for names, reason in reasons.items())
    return [f"{job.name} stays alone: {told}{hint}."]


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds >= 100 else f"{seconds:.1f} s"
