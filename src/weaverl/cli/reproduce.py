"""`weaverl reproduce`: every published figure beside ours, as a report."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weaverl.cli.outputs import make_folder
from weaverl.errors import UsageError

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from weaverl.simulation.reproduction.records import DecisionPoint

ARRIVALS = 200
"""Of each kind, to time decisions on."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(reproduce)


def reproduce(
    out: Annotated[Path, typer.Option(help="Folder for the report: README.md, index.html, results.json, figures/.")],
    quick: Annotated[bool, typer.Option("--quick", help="A minute or two instead of about six: less of it.")] = False,
    traces: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder with production-* and philly-* traces; else generated.")
    ] = None,
    workers: Annotated[int, typer.Option(help="Processes that simulate.")] = 2,
) -> None:
    """Print every figure of the WEAVE paper beside ours, and how far the savings reach."""
    from weaverl.cli.machine import machine
    from weaverl.cli.progress import progress_bars
    from weaverl.reports.audited_tasks import audited_task
    from weaverl.reports.plots.canvas import require_matplotlib
    from weaverl.reports.reproduction import write_report
    from weaverl.simulation.reproduction import sources
    from weaverl.simulation.reproduction.reproduce import QUICK, QUICK_SHORTENING, Sizes, reproduce
    from weaverl.simulation.reproduction.runner import Runner

    if workers < 1:
        raise UsageError(f"--workers is {workers}: give 1 or more")
    require_matplotlib()
    found = sources.from_folder(traces) if traces is not None else sources.generated()
    if quick:
        found = sources.quick(found, QUICK_SHORTENING)
    make_folder(out)
    with progress_bars(stay=True) as bars, Runner(audited_task, workers, _a_bar_a_study(bars)) as runner:
        reproduction = reproduce(found, QUICK if quick else Sizes(), runner, decide, machine())
    write_report(reproduction, out)
    for run in reproduction.refuted:
        print(f"weaverl: the auditor does not agree with the figures of {run}", file=sys.stderr)
    print(f"wrote {out / 'index.html'} and {out / 'README.md'}")
    raise typer.Exit(1 if reproduction.refuted else 0)


def decide(jobs: int, arrivals: int = ARRIVALS) -> "DecisionPoint":
    """Time decisions with so many jobs running, on ``arrivals`` of each kind."""
    from weaverl.cli.bench_decision import measure_decisions
    from weaverl.simulation.reproduction.records import DecisionPoint

    figures = measure_decisions(jobs, arrivals, lambda admitted: None)
    return DecisionPoint(jobs=figures.jobs, p50_ms=figures.p50_ms, p99_ms=figures.p99_ms)


def _a_bar_a_study(bars: "Progress") -> Callable[[str, int, int], None]:
    tasks: dict[str, TaskID] = {}

    def step(study: str, done: int, total: int) -> None:
        if study not in tasks or done == 1:
            tasks[study] = bars.add_task(study, total=total)
        bars.update(tasks[study], completed=done)

    return step
