"""`weaverl submit`, `logs`, `cancel`, `explain`."""

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from weaverl.cli.cluster import require_status
from weaverl.cli.outputs import naming
from weaverl.control.client import Client, connect
from weaverl.control.home import Home
from weaverl.control.log_tail import follow as follow_logs
from weaverl.control.status import JobStatus
from weaverl.domain.jobs import ENDED, JobState
from weaverl.errors import UsageError

Follow = Annotated[bool, typer.Option("--follow", "-f", help="Show the job's output until it ends.")]
_PUBLISHED_SECONDS = 2.0

JobName = Annotated[str, typer.Argument(metavar="JOB", show_default=False)]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(submit)
    app.command()(logs)
    app.command()(cancel)
    app.command()(explain)


def submit(
    job_file: Annotated[Path, typer.Argument(metavar="JOB.yaml", show_default=False)], follow: Follow = False
) -> None:
    """Hand a job in. With -f its output is shown until it ends; Ctrl-C then stops the showing, not the job."""
    from weaverl.config.checks import check_job_fits
    from weaverl.config.job_file import load_job

    spec = load_job(job_file)
    home = Home()
    record = home.require_head()
    with naming(job_file):
        check_job_fits(spec, record.cluster)
    client = Client(connect(record.access))
    before = _find(client, spec.name)
    client.submit(spec)
    print(f"submitted {spec.name}{_whereto(client, spec.name, before)}", flush=True)
    if follow:
        raise typer.Exit(_show(home, client, spec.name, 1 if before is None else before.attempt + 1))


def logs(job: JobName, follow: Follow = False) -> None:
    """Show what a job's processes have written."""
    home = Home()
    if follow or not home.job_logs(job):
        client = Client(connect(home.require_head().access))
        known = _require_job(home, job)
        if follow:
            raise typer.Exit(_show(home, client, job, known.attempt))
    for path, line in follow_logs(lambda: home.job_logs(job), lambda: True):
        print(f"{path.stem} | {line}")


def cancel(job: JobName) -> None:
    """End a job."""
    Client(connect(Home().require_head().access)).cancel(job)
    print(f"cancelling {job}")


def explain(job: JobName) -> None:
    """Say where a job was placed, and why every other placement was refused."""
    from weaverl.cli.status_view import print_explanation

    print_explanation(_require_job(Home(), job), sys.stdout)


def wait_for_end(client: Client, job: str, attempt: int = 0) -> JobStatus:
    """The status of a job once it has ended."""
    while (found := _find_end(client, job, attempt)) is None:
        time.sleep(0.2)
    return found


def _whereto(client: Client, job: str, before: JobStatus | None) -> str:
    """Where a job has gone that was just taken, as soon as the controller has published it."""
    from weaverl.cli.status_view import whereabouts

    deadline = time.monotonic() + _PUBLISHED_SECONDS
    while time.monotonic() < deadline:
        status = client.status()
        found = next((one for one in status.jobs if one.name == job), None) if status else None
        if status is not None and found is not None and (before is None or found.attempt > before.attempt):
            return f": {whereabouts(status, found)}"
        time.sleep(0.02)
    return ""


def _show(home: Home, client: Client, job: str, attempt: int) -> int:
    """Output of this and later attempts until the job ends; the exit code is 0 if it finished, 1 if not."""
    try:
        for path, line in follow_logs(
            lambda: home.job_logs(job, attempt), lambda: _find_end(client, job, attempt) is not None
        ):
            print(f"{path.stem} | {line}", flush=True)
        end = wait_for_end(client, job, attempt)
    except KeyboardInterrupt:
        print(f"\n{job} goes on; `weaverl cancel {job}` ends it", file=sys.stderr)
        return 130
    print(f"{job} {end.state}{': ' + end.reason if end.reason else ''}", file=sys.stderr)
    return 0 if end.state is JobState.FINISHED else 1


def _find_end(client: Client, job: str, attempt: int) -> JobStatus | None:
    """The job's status if it has ended; an end before that attempt is of an earlier submission."""
    found = _find(client, job)
    return found if found is not None and found.state in ENDED and found.attempt >= attempt else None


def _find(client: Client, job: str) -> JobStatus | None:
    status = client.status()
    return next((one for one in status.jobs if one.name == job), None) if status else None


def _require_job(home: Home, name: str) -> JobStatus:
    status = require_status(home)
    found = next((job for job in status.jobs if job.name == name), None)
    if found is None:
        known = ", ".join(job.name for job in status.jobs) or "no jobs yet"
        raise UsageError(f"job {name} is not known here; there are: {known}")
    return found
