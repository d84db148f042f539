"""Runs the demo: a cluster of its own, each job alone, all woven, and the plain script for comparison."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from weaverl.cli.demo.outcome import (
    DemoOutcome,
    Result,
    measured_durations,
    modelled_makespan,
    profile_of,
    split,
)
from weaverl.cli.demo.plan import DemoJobPlan, DemoPlan
from weaverl.cli.live_timeline import header_jobs
from weaverl.cli.machine import machine
from weaverl.cli.own_cluster import own_cluster
from weaverl.control.client import Client, connect
from weaverl.control.home import Home
from weaverl.control.log_tail import last_lines
from weaverl.control.processes import MARK, start
from weaverl.control.recovery import read_facts
from weaverl.control.status import JobStatus
from weaverl.control.timeline import pins_of, timeline_of
from weaverl.domain.facts import Fact
from weaverl.domain.groups import Pin
from weaverl.domain.jobs import ENDED, JobSpec, JobState
from weaverl.domain.timeline import Timeline
from weaverl.errors import ClusterError
from weaverl.reports.demo import DemoJob, DemoReport
from weaverl.reports.html import demo_page, demo_picture
from weaverl.reports.metrics import makespan
from weaverl.reports.timeline_file import TimelineHeader, write_timeline
from weaverl.scheduling.round_model import NO_SWITCHES
from weaverl.scheduling.state import switches_of
from weaverl.whole_file import write_whole

_SOLO, _WOVEN = 1, 2
"""Attempts of each job name: the run alone, and the woven one."""


def run_demo(plan: DemoPlan, console: Console) -> DemoOutcome:
    """Run everything, write the report into a folder that is there, and leave no process behind, whatever happens."""
    with own_cluster(plan.cluster, "weaverl-demo-") as (home, client), _bars(console) as bars:
        for job in plan.jobs:
            _run(plan, client, bars, [plan.spec(job, "solo", None)], "alone", _SOLO)
        facts = _facts(home)
        solo = {job.name: split(timeline_of(facts), job.name, _SOLO) for job in plan.jobs}
        pins = {name: found[_SOLO] for name, found in pins_of(facts).items()}
        predicted, limit = _predict(plan, solo, pins)
        prediction = f"predicted throughput ratio, before the woven run: {predicted:.4f}\n"
        write_whole(plan.out / "prediction.txt", prediction)
        bars.console.print(f"predicted for the woven run: {predicted:.2f}x", highlight=False)
        specs = [plan.spec(job, "woven", profile_of(solo[job.name])) for job in plan.jobs]
        _run(plan, client, bars, specs, "woven", _WOVEN)
        facts = _facts(home)
        shutil.copytree(home.directory / "logs", plan.out / "logs", dirs_exist_ok=True)
        _run_plain(plan, bars, f"{home.instance}/@plain")
    return _report(plan, facts, predicted, limit)


def _predict(plan: DemoPlan, solo: dict[str, Timeline], pins: dict[str, Pin]) -> tuple[float, float]:
    """Throughput ratio that the round model gives, with the cluster's switch costs and without any."""
    durations = {name: measured_durations(timeline, with_switches=False) for name, timeline in solo.items()}
    alone = sum(makespan(timeline) for timeline in solo.values())
    switches = switches_of(plan.cluster)
    with_switches, without = (modelled_makespan(pins, durations, cost) for cost in (switches, NO_SWITCHES))
    return alone / with_switches, alone / without


def _report(plan: DemoPlan, facts: list[Fact], predicted: float, limit: float) -> DemoOutcome:
    timeline = timeline_of(facts)
    woven = split(timeline, None, _WOVEN)
    pins = {name: found[_WOVEN] for name, found in pins_of(facts).items()}
    results = {run: [Result.read(plan.result_folder(job, run)) for job in plan.jobs] for run in _RUNS}
    durations = {
        job.name: measured_durations(split(timeline, job.name, _WOVEN), with_switches=True) for job in plan.jobs
    }
    jobs = tuple(
        DemoJob(
            name=job.name,
            slo=job.slo,
            solo=split(timeline, job.name, _SOLO),
            rewards_solo=solo.reward_values(),
            rewards_woven=together.reward_values(),
        )
        for job, solo, together in zip(plan.jobs, results["solo"], results["woven"], strict=True)
    )
    report = DemoReport(
        cluster=plan.cluster,
        jobs=jobs,
        woven=woven,
        predicted_ratio=predicted,
        schedule_efficiency=modelled_makespan(pins, durations, NO_SWITCHES) / makespan(woven),
        bit_equal=results["solo"] == results["woven"] == results["plain"],
        parameters=_parameters(plan),
        machine=machine(),
    )
    header = TimelineHeader(cluster=plan.cluster, jobs=header_jobs(facts))
    write_timeline(plan.out / "woven.jsonl", header, woven)
    for job in jobs:
        write_timeline(plan.out / f"solo-{job.name}.jsonl", header, job.solo)
    write_whole(plan.out / "report.html", demo_page(report))
    write_whole(plan.out / "gantt.svg", demo_picture(report))
    return DemoOutcome(report=report, model_limit=limit)


_RUNS = ("solo", "woven", "plain")


def _run(plan: DemoPlan, client: Client, bars: Progress, specs: list[JobSpec], title: str, attempt: int) -> None:
    """Submit jobs together, and show their iterations until all have finished."""
    for spec in specs:
        client.submit(spec)
    tasks = {spec.name: bars.add_task(f"{title}: {spec.name}", total=plan.iterations, doing="") for spec in specs}
    names = set(tasks)
    while True:
        found = {job.name: job for job in _statuses(client) if job.name in names and job.attempt == attempt}
        _refuse_queued(found.values())
        for name, job in found.items():
            bars.update(tasks[name], completed=job.iterations_done, doing=job.doing or str(job.state))
        if len(found) == len(names) and all(job.state in ENDED for job in found.values()):
            break
        time.sleep(0.3)
    for job in found.values():
        if job.state is not JobState.FINISHED:
            raise ClusterError("\n  | ".join((f"{job.name} {job.state}: {job.reason}", *job.last_lines)))


def _refuse_queued(jobs: Iterable[JobStatus]) -> None:
    """The demo compares jobs that run together: one that has to wait would spoil the comparison in silence."""
    for job in jobs:
        if job.state is JobState.QUEUED and job.verdicts:
            reasons = "; ".join(f"{verdict.kind}: {verdict.refused}" for verdict in job.verdicts)
            raise ClusterError(f"{job.name} was not admitted beside the others ({reasons}): a noisy machine? run again")


def _statuses(client: Client) -> tuple[JobStatus, ...]:
    status = client.status()
    return status.jobs if status else ()


class _PlainRun(NamedTuple):
    child: subprocess.Popen[bytes]
    job: DemoJobPlan
    cpus: tuple[int, ...]
    log: Path


def _run_plain(plan: DemoPlan, bars: Progress, mark: str) -> None:
    """The plain script for each job, without weaverl, as many at once as there are nodes.

    It bears the cluster's mark, so that the head ends it if this process is killed.
    """
    waiting = list(plan.jobs)
    free = [node.cpus for node in plan.cluster.nodes]
    running: list[_PlainRun] = []
    task = bars.add_task("the plain script, for comparison of bits", total=len(waiting), doing="")
    try:
        while waiting or running:
            while waiting and free:
                running.append(_start_plain(plan, waiting.pop(0), free.pop(), mark))
            for ended in [run for run in running if run.child.poll() is not None]:
                if ended.child.returncode != 0:
                    words = " ".join(last_lines(ended.log))
                    raise ClusterError(f"plain {ended.job.name} exited with {ended.child.returncode}: {words}")
                running.remove(ended)
                free.append(ended.cpus)
                bars.advance(task)
            time.sleep(0.2)
    finally:
        for run in running:
            run.child.kill()
            run.child.wait()


def _start_plain(plan: DemoPlan, job: DemoJobPlan, cpus: tuple[int, ...], mark: str) -> _PlainRun:
    log = plan.out / "logs" / f"plain-{job.name}.log"
    child = start(
        [sys.executable, "plain.py", *plan.arguments(job, "plain")],
        environment={**os.environ, "OMP_NUM_THREADS": "1", MARK: mark},
        directory=plan.examples / "grpo",
        log=log,
        cpus=cpus,
    )
    return _PlainRun(child, job, cpus, log)


@contextmanager
def _bars(console: Console) -> Iterator[Progress]:
    columns = (
        TextColumn("{task.description:44}"),
        BarColumn(24),
        TextColumn("{task.completed:>3.0f} of {task.total:.0f}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[doing]}"),
    )
    with Progress(*columns, console=console) as bars:
        yield bars


def _facts(home: Home) -> list[Fact]:
    return list(read_facts(connect(home.require_head().access)))


def _parameters(plan: DemoPlan) -> dict[str, str | int | float | bool | None]:
    presets = ", ".join(f"{job.name} = {job.preset} (seed {job.seed})" for job in plan.jobs)
    return {"jobs": presets, "iterations": plan.iterations, "policy": "weave-paper"}
