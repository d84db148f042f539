"""`weaverl whatif`: what the submission of a job would do, without submitting it."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weaverl.errors import RefusedError, UsageError

if TYPE_CHECKING:
    from weaverl.scheduling.scheduler import Scheduler


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(whatif)


def whatif(
    job_file: Annotated[Path, typer.Argument(metavar="JOB.yaml", show_default=False)],
    cluster: Annotated[
        Path | None, typer.Option(help="Ask of this cluster file, not of the cluster that is up.", show_default=False)
    ] = None,
    jobs: Annotated[
        list[Path] | None,
        typer.Option(metavar="JOB.yaml", help="A job that runs there already; once for each, in order of arrival."),
    ] = None,
    as_json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the answer as JSON; - is standard output.")
    ] = None,
) -> None:
    """Say where a job would be placed, what it would cost, whom it would slow, and how long it would wait.

    Asked of the cluster that is up, or of files. Nothing is submitted or changed.
    """
    from weaverl.cli.outputs import check_writable, emit
    from weaverl.cli.whatif_view import print_answer
    from weaverl.config.job_file import load_job
    from weaverl.simulation.what_if import what_if

    check_writable(as_json)
    if jobs and cluster is None:
        raise UsageError("--jobs needs --cluster CLUSTER.yaml: the cluster that is up has its own jobs")
    spec = load_job(job_file)
    scheduler = _live() if cluster is None else _of_files(cluster, jobs or [])
    answer = what_if(scheduler, spec)
    emit(answer, as_json, lambda: print_answer(answer, sys.stdout))


def _live() -> "Scheduler":
    """The scheduler of the cluster that is up, as its log tells."""
    from weaverl.control.client import connect
    from weaverl.control.home import Home
    from weaverl.control.recovery import recover
    from weaverl.scheduling.state import parameters_of

    home = Home()
    record = home.head()
    if record is None:
        problem = f"no cluster is up in {home.directory}"
        raise UsageError(f"{problem}: give --cluster CLUSTER.yaml and --jobs, or run `weaverl up CLUSTER.yaml` first")
    scheduler = recover(connect(record.access), record.cluster).scheduler
    scheduler.state.parameters = parameters_of(record.cluster)
    return scheduler


def _of_files(cluster_file: Path, job_files: list[Path]) -> "Scheduler":
    """A scheduler of a cluster file on which the jobs were submitted, in order."""
    from weaverl.config.cluster_file import load_cluster
    from weaverl.config.job_file import load_job
    from weaverl.scheduling.state import parameters_of
    from weaverl.simulation.standing import standing_scheduler, submit

    cluster = load_cluster(cluster_file)
    scheduler = standing_scheduler(cluster, parameters_of(cluster))
    for path in job_files:
        try:
            submit(scheduler, load_job(path))
        except RefusedError as error:
            raise UsageError(f"--jobs {path}: {error}") from error
    return scheduler
