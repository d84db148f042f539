"""`weaverl bench drift` and `bench reactions`: ways to move running jobs, compared in the simulated world."""

import sys
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weaverl.cli.outputs import check_writable, emit, make_folder
from weaverl.cli.simulate import AsJson, Audit, Seed, TraceNames, complain_of_missing, load_trace, run_audited
from weaverl.cli.simulate_checks import check_named_once, check_names
from weaverl.errors import UsageError

if TYPE_CHECKING:
    from weaverl.simulation.outcome import Outcome
    from weaverl.simulation.replacement.hourly import Hourly
    from weaverl.simulation.replacement.records import AgainstHourly, Reacted
    from weaverl.simulation.simulate import Setup
    from weaverl.simulation.traces.records import Trace

Jobs = Annotated[int | None, typer.Option(min=1, help="Only so many of a trace's jobs, the first.")]
ALL = "none,rescue,incremental,resubmit,global"


def register(bench: typer.Typer) -> None:
    """Add the commands to ``bench``."""
    bench.command()(drift)
    bench.command()(reactions)


def drift(
    traces: TraceNames,
    search: Annotated[
        bool, typer.Option("--search", help="Each hour all jobs are also placed anew in several orders: slower.")
    ] = False,
    always: Annotated[
        bool, typer.Option("--always", help="Also whenever somebody comes or goes: a bound that no hour limits.")
    ] = False,
    seed: Seed = 0,
    jobs: Jobs = None,
    audit: Audit = None,
    as_json: AsJson = None,
) -> None:
    """Set what `weave` pays beside all running jobs regrouped every hour by its own planner, at no cost of moving."""
    from weaverl.simulation.replacement.hourly import Hourly
    from weaverl.simulation.simulate import Setup

    check_writable(as_json)
    setup = Setup(policy="weave", seed=seed, timings=False)
    found = [
        _against_hourly(trace, setup, audit, Hourly(searches=search, always=always)) for trace in _pieces(traces, jobs)
    ]
    emit(found, as_json, lambda: _print_hourly(found))
    raise typer.Exit(0 if all(one.audited is not False for one in found) else 1)


def reactions(
    traces: TraceNames,
    drift: Annotated[
        str | None,
        typer.Option(metavar="FACTORS", help="Rollouts grow to each of these over a job, not as in the trace."),
    ] = None,
    error: Annotated[
        str, typer.Option(metavar="SHARES", help="How far off its profile a job is before it has drifted.")
    ] = "0.08",
    reactions: Annotated[str, typer.Option(help="Separated by commas.")] = ALL,
    seed: Seed = 0,
    jobs: Jobs = None,
    audit: Audit = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Draw reactions.svg and .png there: dollars over drift factors."),
    ] = None,
    as_json: AsJson = None,
) -> None:
    """Compare what is done when a job has drifted: nothing, moves of two kinds, resubmission, or a regrouping of all.

    `rescue` is what policy `weave` does: moves that save a promise; `incremental` makes those that pay as well.
    Nobody is moved for another reason, so that nothing but the reaction differs.
    """
    from weaverl.reports.plots.canvas import require_matplotlib
    from weaverl.reports.plots.reactions import draw_reactions

    check_writable(as_json)
    factors = [None] if drift is None else _numbers("--drift", drift, 0.01, 100.0)
    errors, named = _numbers("--error", error, 0.001, 10.0), _reactions(reactions)
    loaded = _pieces(traces, jobs)
    if plot is not None:
        _check_drawable(factors, named)
        require_matplotlib()
        make_folder(plot)
    found = [
        _reacted(trace, reaction, factor, share, seed, audit)
        for trace, factor, share, reaction in product(loaded, factors, errors, named)
    ]
    if plot is not None:
        draw_reactions(plot, found)
    emit(found, as_json, lambda: _print_reactions(found))
    raise typer.Exit(0 if all(one.audited is not False for one in found) else 1)


def _check_drawable(factors: "list[float] | list[None]", named: list[str]) -> None:
    if None in factors or "none" not in named:
        raise UsageError(
            "--plot is over drift factors, against nobody moving: give --drift, and none among --reactions"
        )


def _pieces(names: list[str], jobs: int | None) -> "list[Trace]":
    loaded = [load_trace(name) for name in names]
    check_names(loaded)
    return [_piece(trace, jobs) for trace in loaded]


def _piece(trace: "Trace", jobs: int | None) -> "Trace":
    from weaverl.simulation.reproduction.variations import first_jobs

    return trace if jobs is None or jobs >= len(trace.jobs) else first_jobs(trace, jobs)


def _against_hourly(trace: "Trace", setup: "Setup", audit: bool | None, planner: "Hourly") -> "AgainstHourly":
    from msgspec.structs import replace

    from weaverl.simulation.replacement.hourly import PARAMETERS
    from weaverl.simulation.replacement.records import AgainstHourly
    from weaverl.simulation.simulate import Replacing

    ours = _complete(run_audited(trace, setup, audit))
    free = replace(setup, costs=replace(setup.costs, moved_start=0.0))
    hourly = _complete(run_audited(trace, free, audit, replacing=Replacing(planner, PARAMETERS)))
    return AgainstHourly(
        trace=trace.name,
        jobs=len(trace.jobs),
        usd=ours.usd,
        hourly_usd=hourly.usd,
        ratio=ours.usd / hourly.usd,
        slo_attainment=ours.slo_attainment,
        hourly_slo_attainment=hourly.slo_attainment,
        moves=ours.moves,
        hourly_moves=hourly.moves,
        audited=_both(ours.audited, hourly.audited),
    )


def _both(one: bool | None, other: bool | None) -> bool | None:
    return None if one is None or other is None else one and other


def _reacted(
    trace: "Trace", reaction: str, factor: float | None, error: float, seed: int, audit: bool | None
) -> "Reacted":
    from weaverl.cli.bench_handovers import percentile
    from weaverl.scheduling.state import Parameters
    from weaverl.simulation.replacement.reactions import Reacting, Reaction
    from weaverl.simulation.replacement.records import Reacted
    from weaverl.simulation.reproduction.variations import with_growth
    from weaverl.simulation.simulate import Replacing, Setup

    varied = trace if factor is None else with_growth(trace, factor)
    reacting, parameters = Reacting(Reaction(reaction)), Parameters(review_us=0, profile_error=error)
    setup = Setup(policy="weave", seed=seed, timings=False)
    outcome = _complete(run_audited(varied, setup, audit, None, Replacing(reacting, parameters), [reacting]))
    taken = [one / 1e6 for one in reacting.plan_ns] or [0.0]
    return Reacted(
        trace=trace.name,
        jobs=outcome.jobs,
        reaction=reaction,
        drift=factor,
        error=error,
        usd=outcome.usd,
        slo_attainment=outcome.slo_attainment,
        slo_missed=round((1.0 - outcome.slo_attainment) * outcome.jobs),
        largest_slowdown=0.0 if outcome.slowdown is None else outcome.slowdown.max,
        moves=outcome.moves,
        plans=len(reacting.plan_ns),
        plan_p50_ms=percentile(taken, 0.5),
        plan_p99_ms=percentile(taken, 0.99),
        audited=outcome.audited,
    )


def _complete(outcome: "Outcome") -> "Outcome":
    """The outcome, if all jobs have ended: half a run is no comparison."""
    complain_of_missing(outcome)
    if outcome.jobs_finished != outcome.jobs or not outcome.jobs:
        raise typer.Exit(1)
    return outcome


def _numbers(option: str, text: str, least: float, most: float) -> list[float]:
    found = []
    for part in text.split(","):
        try:
            number = float(part)
        except ValueError:
            number = float("nan")
        if not least <= number <= most:
            raise UsageError(f"{option} has {part!r}: give numbers from {least:g} to {most:g}, separated by commas")
        if number in found:
            raise UsageError(f"{option} has {number:g} twice: name each once")
        found.append(number)
    return found


def _reactions(text: str) -> list[str]:
    known = ALL.split(",")
    named = [name.strip() for name in text.split(",")]
    for name in named:
        if name not in known:
            raise UsageError(f"--reactions has {name!r}: choose some of {ALL}")
    check_named_once("--reactions", named)
    return named


def _print_hourly(found: "list[AgainstHourly]") -> None:
    from weaverl.reports.sheets import sheet
    from weaverl.reports.tables import console_for

    heads = ("trace", "jobs", "weave $", "hourly $", "ratio", "SLO met", "hourly SLO", "moves", "hourly moves")
    rows = [
        (
            one.trace,
            str(one.jobs),
            f"{one.usd:,.0f}",
            f"{one.hourly_usd:,.0f}",
            f"{one.ratio:.3f}",
            f"{one.slo_attainment:.1%}",
            f"{one.hourly_slo_attainment:.1%}",
            f"{one.moves:,}",
            f"{one.hourly_moves:,}",
        )
        for one in found
    ]
    console = console_for(sys.stdout)
    console.print(sheet(heads, rows, console), crop=False)


def _print_reactions(found: "list[Reacted]") -> None:
    from weaverl.reports.sheets import sheet
    from weaverl.reports.tables import console_for

    heads = ("trace", "drift", "error", "reaction", "dollars", "SLO missed", "moves", "plan p50 ms", "p99 ms")
    rows = [
        (
            one.trace,
            "trace" if one.drift is None else f"{one.drift:g}",
            f"{one.error:.0%}",
            one.reaction,
            f"{one.usd:,.0f}",
            str(one.slo_missed),
            f"{one.moves:,}",
            f"{one.plan_p50_ms:.1f}",
            f"{one.plan_p99_ms:.1f}",
        )
        for one in found
    ]
    console = console_for(sys.stdout)
    console.print(sheet(heads, rows, console), crop=False)
