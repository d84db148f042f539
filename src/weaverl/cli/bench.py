"""`weaverl bench`: measuring commands."""

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weaverl.cli import bench_drift
from weaverl.cli.outputs import check_writable, emit
from weaverl.cli.simulate import MOST_SEED
from weaverl.errors import UsageError

if TYPE_CHECKING:
    from weaverl.cli.bench_decision import DecisionFigures
    from weaverl.cli.bench_permits import PermitFigures
    from weaverl.cli.bench_snapshots import SnapshotFigures


MOST_WORKERS = 1024
"""Each is a process of its own that imports everything: more are a slip of the keyboard."""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    bench = typer.Typer(help="Measure this machine: what weaving costs here.", no_args_is_help=True)
    bench.callback()(_group)
    bench.command()(permits)
    bench.command()(decision)
    bench.command()(snapshots)
    bench_drift.register(bench)
    app.add_typer(bench, name="bench")


def _group() -> None:
    """Measure this machine: what weaving costs here."""


def permits(
    jobs: Annotated[int, typer.Option(help="Number of jobs that share a slot.")] = 8,
    as_json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the figures as JSON; - is standard output.")
    ] = None,
    handovers: Annotated[
        int, typer.Option(hidden=True, help="Hand-overs to measure at least, idle and loaded.")
    ] = 2000,
) -> None:
    """Time hand-overs of a slot between waiting jobs, on a cluster of its own: idle, and with all cores busy."""
    from weaverl.cli.bench_permits import measure_permits
    from weaverl.reports.tables import console_for

    if jobs < 2:
        raise UsageError(f"--jobs is {jobs}: a hand-over takes 2 or more")
    if handovers < 100:
        raise UsageError(f"--handovers is {handovers}: a 99th percentile needs 100 or more")
    check_writable(as_json)
    figures = measure_permits(jobs, handovers, console_for(sys.stderr))
    emit(figures, as_json, lambda: _print_permits(figures))


def decision(
    jobs: Annotated[int, typer.Option(help="Number of jobs that run when another arrives.")] = 2000,
    as_json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the figures as JSON; - is standard output.")
    ] = None,
    sweep: Annotated[bool, typer.Option("--sweep", help="10, 30, 100, ... up to --jobs running jobs: a list.")] = False,
    policy: Annotated[str, typer.Option(help="weave-paper or weave.")] = "weave-paper",
    arrivals: Annotated[int, typer.Option(hidden=True, help="Arrivals of each kind to time.")] = 200,
) -> None:
    """Time the decision on an arrival: refused by memory everywhere, by promises everywhere, or feasible everywhere."""
    from weaverl.cli.bench_decision import MOST_JOBS, POLICIES, measure_decisions, sizes_up_to
    from weaverl.cli.progress import progress_bars

    if not 2 <= jobs <= MOST_JOBS:
        raise UsageError(f"--jobs is {jobs}: groups of two and more take from 2 to {MOST_JOBS:,} jobs")
    if policy not in POLICIES:
        raise UsageError(f"--policy is {policy!r}: its decisions are not timed here; choose {' or '.join(POLICIES)}")
    if arrivals < 10:
        raise UsageError(f"--arrivals is {arrivals}: percentiles take 10 or more of each kind")
    check_writable(as_json)
    sizes = sizes_up_to(jobs) if sweep else [jobs]
    with progress_bars() as bars:
        figures = []
        for size in sizes:
            task = bars.add_task(f"admitting {size:,} jobs", total=size)
            figures.append(measure_decisions(size, arrivals, partial(bars.advance, task), policy))
    emit(figures if sweep else figures[0], as_json, lambda: _print_decisions(figures))


def snapshots(
    number: Annotated[int, typer.Option("--snapshots", help="How many; half of them of 7 or 8 jobs.")] = 200,
    seed: Annotated[int, typer.Option(min=0, max=MOST_SEED, help="Of the traces and the moments.")] = 0,
    workers: Annotated[
        int | None, typer.Option(help="Processes; the figures are the same for any number.  [default: one a core]")
    ] = None,
    horizon_hours: Annotated[
        float | None,
        typer.Option(
            "--horizon",
            metavar="HOURS",
            help="Dollars are counted so far ahead; inf: until all jobs end.  [default: as far as the policy looks]",
        ),
    ] = None,
    as_json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the figures as JSON; - is standard output.")
    ] = None,
) -> None:
    """Set policy weave beside the best regrouping of its jobs, searched exhaustively, at random moments."""
    from weaverl.cli.bench_snapshots import measure_snapshots
    from weaverl.cli.progress import progress_bars
    from weaverl.domain.units import HOUR_US
    from weaverl.scheduling.objectives import HORIZON_US

    if number < 1:
        raise UsageError(f"--snapshots is {number}: give 1 or more")
    if workers is not None and not 1 <= workers <= MOST_WORKERS:
        raise UsageError(f"--workers is {workers}: give 1 to {MOST_WORKERS:,}")
    if horizon_hours is not None and not horizon_hours > 0.0:
        raise UsageError(f"--horizon is {horizon_hours}: give hours above 0, or inf")
    check_writable(as_json)
    with progress_bars() as bars:
        advance = partial(bars.advance, bars.add_task("regrouping", total=number))
        processes = workers or len(os.sched_getaffinity(0))
        horizon_us = HORIZON_US if horizon_hours is None else horizon_hours * HOUR_US
        figures = measure_snapshots(number, seed, processes, advance, horizon_us)
    emit(figures, as_json, lambda: _print_snapshots(figures))


def _print_snapshots(figures: "SnapshotFigures") -> None:
    from weaverl.reports.sheets import sheet
    from weaverl.reports.tables import console_for

    heads = ("jobs", "snapshots", "mean", "worst", "least", "settled mean", "settled worst")
    rows = []
    for jobs, one in (*figures.by_jobs.items(), ("all", figures)):
        ratios = (one.mean_ratio, one.worst_ratio, one.least_ratio, one.settled_mean_ratio, one.settled_worst_ratio)
        rows.append((jobs, str(one.snapshots), *(f"{ratio:.3f}" for ratio in ratios)))
    console = console_for(sys.stdout)
    console.print(sheet(heads, rows, console), crop=False)
    until = "until all jobs end" if figures.horizon_hours is None else f"of {figures.horizon_hours:g} hours"
    console.print(f"Expected dollars {until}, over those of the best regrouping; settled: after free moves.")


def _print_decisions(figures: "list[DecisionFigures]") -> None:
    from weaverl.reports.sheets import sheet
    from weaverl.reports.tables import console_for

    kinds = (f"{kind.replace('_', ' ')} ms" for kind in figures[0].kinds)
    heads = ("jobs", "groups", "p50 ms", "p99 ms", *kinds, "admitting all s")
    rows = []
    for one in figures:
        times = (one.p50_ms, one.p99_ms, *(kind.p50_ms for kind in one.kinds.values()))
        cells = (f"{milliseconds:.2f}" for milliseconds in times)
        rows.append((f"{one.jobs:,}", f"{one.groups:,}", *cells, f"{one.admissions_seconds:.1f}"))
    console = console_for(sys.stdout)
    console.print(sheet(heads, rows, console), crop=False)


def _print_permits(figures: "PermitFigures") -> None:
    from rich.table import Table

    from weaverl.reports.tables import console_for

    table = Table("", "p50", "p99", "of", "disk", box=None)
    for title, p50, p99, number, sync in (
        ("idle", figures.handover_p50_ms, figures.handover_p99_ms, figures.handovers, figures.sync_p50_ms),
        (
            "all cores busy",
            figures.loaded_p50_ms,
            figures.loaded_p99_ms,
            figures.loaded_handovers,
            figures.loaded_sync_p50_ms,
        ),
    ):
        table.add_row(f"hand-over, {title}", f"{p50:.2f} ms", f"{p99:.2f} ms", str(number), f"{sync:.2f} ms")
    console = console_for(sys.stdout)
    console.print(table)
    console.print(
        f"{figures.jobs} jobs. A hand-over waits for the disk twice, and takes {figures.controller_us:.0f} us of the "
        f"controller's CPU and {figures.store_us:.0f} us of the store's. Without a controller a phase costs "
        f"{figures.plain_call_us:.2f} us over a plain call."
    )
