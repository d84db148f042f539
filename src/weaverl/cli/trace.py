"""`weaverl trace`: generate, convert, export and show traces of jobs."""

import sys
from contextlib import AbstractContextManager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from weaverl.cli.outputs import check_writable, emit, is_standard_output, require_finite
from weaverl.cli.simulate import MOST_SEED
from weaverl.errors import UsageError

if TYPE_CHECKING:
    from weaverl.simulation.traces.read import Format
    from weaverl.simulation.traces.records import Trace

_Word = TypeVar("_Word", bound=StrEnum)

Source = Annotated[Path, typer.Argument(metavar="FILE", help="A trace: text, gzip, tar or zip.", show_default=False)]
Out = Annotated[Path, typer.Option("--out", metavar="FILE", help="CSV file to write; - is standard output.")]
FormatName = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="NAME",
        help="philly, philly-json, helios, pai-2020, pai-2023, dlrm-2025 or gavel; without it the header tells.",
    ),
]
Zone = Annotated[str | None, typer.Option("--tz", metavar="ZONE", help="Time zone of stamps: America/Los_Angeles.")]
Member = Annotated[str | None, typer.Option(metavar="NAME", help="Which file of an archive.")]
Tasks = Annotated[Path | None, typer.Option(metavar="FILE", help="PAI 2020's task table; else beside the job table.")]
Rate = Annotated[float | None, typer.Option(help="Gavel: training steps a second.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    trace = typer.Typer(help="Traces of jobs: generate, convert, export, show.", no_args_is_help=True)
    for command in (generate, convert, export, show):
        trace.command()(command)
    app.add_typer(trace, name="trace")


def generate(
    out: Out,
    preset: Annotated[str, typer.Option(metavar="NAME", help="production or philly-like.")] = "production",
    seed: Annotated[int, typer.Option(max=MOST_SEED, help="The same seed gives the same bytes.")] = 0,
    jobs: Annotated[int | None, typer.Option(help="Number of jobs.", show_default="200; philly-like 300")] = None,
    iterations: Annotated[
        int | None, typer.Option(help="Iterations of every job.", show_default="by the preset's lengths")
    ] = None,
    hours: Annotated[
        float | None, typer.Option(help="Time over which jobs arrive.", show_default="as busy as the preset")
    ] = None,
    drift: Annotated[str, typer.Option(metavar="NAME", help="none, increasing, decreasing or mixed.")] = "none",
) -> None:
    """Make a synthetic trace; its distributions are in docs/traces.md."""
    from weaverl.simulation.costs import Costs
    from weaverl.simulation.traces.generate import Drift, Order, Preset
    from weaverl.simulation.traces.generate import generate as generate_trace

    check_writable(out)
    order = Order(
        preset=_one_of(Preset, preset, "--preset"),
        seed=seed,
        num_jobs=jobs,
        iterations=iterations,
        hours=hours,
        drift=_one_of(Drift, drift, "--drift"),
    )
    with _busy(f"drawing jobs of {preset}"):
        trace = generate_trace(order, Costs())
    _write(trace, out)


def convert(
    source: Source,
    out: Out,
    format_: FormatName = None,
    seed: Annotated[
        int, typer.Option(max=MOST_SEED, help="Draws the profiles, and the window if no start is given.")
    ] = 0,
    start_hours: Annotated[float | None, typer.Option(help="Start of the window.", show_default="by the seed")] = None,
    hours: Annotated[float, typer.Option(help="Length of the window.")] = 580.0,
    jobs: Annotated[int, typer.Option(help="At most so many jobs, by lot.")] = 300,
    min_gpus: Annotated[float, typer.Option(help="Leave smaller jobs out.")] = 0.0,
    shortest_hours: Annotated[float, typer.Option(help="Leave shorter jobs out.")] = 0.5,
    longest_hours: Annotated[float, typer.Option(help="Leave longer jobs out.")] = 168.0,
    zone: Zone = None,
    member: Member = None,
    tasks: Tasks = None,
    steps_per_second: Rate = None,
) -> None:
    """Make a trace from a public one: real arrivals and durations of a window, with synthetic RL profiles."""
    from weaverl.simulation.costs import Costs
    from weaverl.simulation.traces.convert import Window, with_profiles
    from weaverl.simulation.traces.read import Reading, read_arrivals

    check_writable(out)
    if jobs < 1 or not hours > 0 or seed < 0:
        raise UsageError(
            f"--jobs {jobs}, --hours {hours:g}, --seed {seed}: at least 1 job, over 0 hours, seed 0 or more"
        )
    limits = {"--start-hours": start_hours, "--min-gpus": min_gpus}
    require_finite({**limits, "--shortest-hours": shortest_hours, "--longest-hours": longest_hours})
    window = Window(
        start_hours=start_hours,
        hours=hours,
        most_jobs=jobs,
        min_gpus=min_gpus,
        shortest_hours=shortest_hours,
        longest_hours=longest_hours,
    )
    reading = Reading(zone=zone, member=member, tasks=tasks, steps_per_second=_positive(steps_per_second))
    chosen = _format(format_)
    with _busy(f"reading {source}"):
        arrivals = read_arrivals(source, chosen, reading)
    for warning in arrivals.warnings:
        print(f"weaverl: {source}: {warning}", file=sys.stderr)
    _write(with_profiles(arrivals, window, seed, Costs()), out)


def export(out: Out) -> None:
    """Write the jobs of the cluster's log as a trace: real arrivals, SLOs and measured phases."""
    from weaverl.control.client import connect
    from weaverl.control.home import Home
    from weaverl.control.recovery import read_facts
    from weaverl.control.timeline import timeline_of
    from weaverl.simulation.traces.export import export_trace

    check_writable(out)
    record = Home().require_head()
    facts = list(read_facts(connect(record.access)))
    trace = export_trace(record.cluster.name, facts, timeline_of(facts))
    if not trace.jobs:
        raise UsageError(f"cluster {record.cluster.name} has no job with a whole iteration yet: submit one and wait")
    _write(trace, out)


def show(
    source: Source,
    format_: FormatName = None,
    zone: Zone = None,
    member: Member = None,
    tasks: Tasks = None,
    steps_per_second: Rate = None,
    as_json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the figures as JSON; - is standard output.")
    ] = None,
) -> None:
    """Print what a trace holds: jobs, span, sizes, what was skipped and why, and what its jobs cost alone."""
    from weaverl.cli.trace_view import figures_of, print_figures
    from weaverl.simulation.traces.read import Reading

    check_writable(as_json)
    reading = Reading(zone=zone, member=member, tasks=tasks, steps_per_second=_positive(steps_per_second))
    chosen = _format(format_)
    with _busy(f"reading {source}"):
        figures = figures_of(source, chosen, reading)
    emit(figures, as_json, lambda: print_figures(figures, sys.stdout))


def _busy(what: str) -> AbstractContextManager[object]:
    """Says on a terminal what takes its time."""
    from weaverl.reports.tables import console_for

    return console_for(sys.stderr).status(what)


def _write(trace: "Trace", out: Path) -> None:
    from weaverl.simulation.traces.schema import write_jobs, write_rows

    if is_standard_output(out):
        write_rows(trace.jobs, sys.stdout)
        return
    write_jobs(trace.jobs, out)
    skipped = "".join(f"; {count} {reason}" for reason, count in trace.skipped.items())
    print(f"wrote {len(trace.jobs)} of {trace.rows} jobs to {out}{skipped}")


def _format(name: str | None) -> "Format | None":
    from weaverl.simulation.traces.read import Format

    return None if name is None else _one_of(Format, name, "--format")


def _one_of(words: type[_Word], word: str, option: str) -> _Word:
    try:
        return words(word)
    except ValueError:
        raise UsageError(f"{option} is {word!r}: choose one of {', '.join(words)}") from None


def _positive(rate: float | None) -> float | None:
    if rate is not None and not 0 < rate < float("inf"):
        raise UsageError(f"--steps-per-second is {rate:g}: give a finite number over 0")
    return rate
