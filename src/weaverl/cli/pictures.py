"""`weaverl timeline` and `report`: what ran where, as data and as a page."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weaverl.cli.outputs import check_writable, is_standard_output
from weaverl.control.client import connect
from weaverl.control.home import Home
from weaverl.errors import UsageError
from weaverl.whole_file import write_whole

if TYPE_CHECKING:
    from weaverl.reports.timeline_file import TimelineFile, TimelineHeader

Out = Annotated[Path | None, typer.Option("--out", help="File to write; - or nothing is standard output.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(timeline)
    app.command()(report)


def timeline(out: Out = None) -> None:
    """Write who ran where, from the cluster's log, as JSON lines."""
    from weaverl.cli.live_timeline import live_timeline
    from weaverl.reports.timeline_file import timeline_lines, write_timeline

    check_writable(out)
    record = Home().require_head()
    header, found = live_timeline(connect(record.access), record.cluster)
    if out is None or is_standard_output(out):
        for line in timeline_lines(header, (*found.intervals, *found.restores)):
            sys.stdout.buffer.write(line)
        _warn_if_partial(header)
        return
    write_timeline(out, header, found)
    _warn_if_partial(header)
    print(f"wrote {len(found.intervals)} intervals to {out}")


def report(
    source: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE_OR_DIR]", help="A timeline file, or a folder of WEAVERL_MODE=observe."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="The page to write.")] = Path("weaverl-report.html"),
) -> None:
    """Draw a run as a page: the live cluster's, a timeline file's, or what observe mode has measured.

    For a folder of observe mode the profile that a job file wants is printed too.
    """
    from weaverl.cli.live_timeline import live_timeline
    from weaverl.cli.observed import observed_timeline
    from weaverl.reports.html import run_page
    from weaverl.reports.metrics import file_figures
    from weaverl.reports.tables import console_for, print_run
    from weaverl.reports.timeline_file import TimelineFile, read_timeline

    check_writable(out)
    if source is None:
        record = Home().require_head()
        header, found = live_timeline(connect(record.access), record.cluster)
        file = TimelineFile(header=header, timeline=found)
    elif source.is_dir():
        file = observed_timeline(source)
    elif source.exists():
        file = read_timeline(source)
    else:
        raise UsageError(f"{source} does not exist: give a timeline file or a folder of observe mode")
    write_whole(out, run_page(file, title=str(source or file.header.cluster.name)))
    _warn_if_partial(file.header)
    print_run(file_figures(file), {job.name: job.slo for job in file.header.jobs}, console_for(sys.stdout))
    print(f"wrote {out}")
    if source is not None and source.is_dir():
        _print_profiles(file)


def _warn_if_partial(header: "TimelineHeader") -> None:
    if header.partial:
        print("weaverl: the beginning is missing: the cluster's log keeps recent history only", file=sys.stderr)


def _print_profiles(file: "TimelineFile") -> None:
    """What was observed, ready to be pasted into job files."""
    from weaverl.cli.observed import observed_profiles, profile_block

    profiles = observed_profiles(file)
    for job in file.header.jobs:
        if job.name in profiles:
            print(f"\n# for the job file of {job.name}\n{profile_block(profiles[job.name])}")
        else:
            print(f"\n# {job.name} ran no iteration with both a rollout and a training phase: no profile")
