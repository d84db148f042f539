"""`weaverl demo`: two real RL jobs, solo and woven, with a report."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from weaverl.cli.outputs import check_writable, emit, is_standard_output, make_folder
from weaverl.errors import UsageError


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(demo)


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the report, timelines and logs.")] = Path("weaverl-demo"),
    as_json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the figures as JSON; - is standard output.")
    ] = None,
    mix: Annotated[bool, typer.Option("--mix", help="A rollout-heavy beside a training-heavy job.")] = False,
    jobs: Annotated[int, typer.Option(help="Number of jobs; the third is a small one.")] = 2,
    iterations: Annotated[int, typer.Option(help="GRPO iterations of each job.")] = 12,
    tiny: Annotated[bool, typer.Option("--tiny", hidden=True, help="A model that learns nothing, for tests.")] = False,
) -> None:
    """Run real GRPO jobs one after the other, then woven, and show what weaving saved."""
    from weaverl.cli.demo import DemoPlan, run_demo
    from weaverl.reports.tables import console_for, print_demo

    if jobs not in (2, 3):
        raise UsageError(f"--jobs is {jobs}: the demo weaves 2 or 3")
    if iterations < 3:
        raise UsageError(f"--iterations is {iterations}: a job needs 3 or more, two of them are its profile")
    check_writable(as_json)
    make_folder(out)
    plan = DemoPlan.of(mix=mix, num_jobs=jobs, iterations=iterations, tiny=tiny, out=out.absolute())
    outcome = run_demo(plan, console_for(sys.stderr if is_standard_output(as_json) else sys.stdout))

    def show() -> None:
        print_demo(outcome.report, console_for(sys.stdout))
        print(f"report: {plan.out / 'report.html'}")

    emit(outcome.to_json_dict(), as_json, show)
    for failure in outcome.failures():
        print(f"weaverl: {failure}", file=sys.stderr)
    raise typer.Exit(1 if outcome.failures() else 0)
