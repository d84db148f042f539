"""The whole reproduction: all studies, one after the other."""

from collections.abc import Callable
from typing import Any

import msgspec

from weaverl.simulation.costs import Costs
from weaverl.simulation.reproduction import cases, mechanisms, replay, scheduler, sharing, sweeps
from weaverl.simulation.reproduction.excerpt import woven_excerpt
from weaverl.simulation.reproduction.planner import OptimalPlanner
from weaverl.simulation.reproduction.records import DecisionPoint, Reproduction, Row, Sweep
from weaverl.simulation.reproduction.runner import Runner
from weaverl.simulation.reproduction.sources import Sources
from weaverl.simulation.reproduction.variations import first_jobs, shortened, with_short_starts

Decide = Callable[[int], DecisionPoint]
"""Measures one decision with so many jobs running."""


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """How much is run. ``shortened``: by how much the traces are; ``thin``: one job in so many is planned as well."""

    shortened: float = 1.0
    mix_iterations: int = 300
    sweep_traces: int = 3
    sweep_jobs: int = 100
    sweep_shortening: float = 10.0
    decision_jobs: tuple[int, ...] = (10, 100, 1000, 2000, 10_000, 100_000)
    philly_thin: int = 10
    drift_thin: int = 3
    ideal_hours: float = 1.0
    quick: bool = False


QUICK_SHORTENING = 10.0
QUICK = Sizes(
    shortened=QUICK_SHORTENING,
    mix_iterations=40,
    sweep_traces=1,
    sweep_jobs=60,
    sweep_shortening=2.0,
    decision_jobs=(10, 100, 1000, 2000),
    ideal_hours=0.2,
    quick=True,
)


NOTES = {
    replay.STUDY: replay.NOTE,
    sharing.STUDY: sharing.NOTE,
    mechanisms.STUDY: mechanisms.NOTE,
    scheduler.STUDY: scheduler.NOTE,
}
"""What goes for all rows of a section."""


def reproduce(sources: Sources, sizes: Sizes, runner: Runner, decide: Decide, machine: dict[str, Any]) -> Reproduction:
    """Make every run and sum it up."""
    costs = with_short_starts(Costs(), sizes.shortened)
    planner = OptimalPlanner(costs)
    replayed = replay.replay(runner, sources.production, costs)
    mixes = sharing.sharing(runner, sizes.mix_iterations)
    drifts, drift_rows = scheduler.drifts(runner, sources.drifted, costs, planner, sizes.drift_thin, sizes.ideal_hours)
    philly = scheduler.philly_row(runner, sources.philly, costs, planner, sizes.philly_thin, sizes.ideal_hours)
    decisions = tuple(decide(jobs) for jobs in sizes.decision_jobs)
    return Reproduction(
        rows=(
            *replay.replay_rows(replayed),
            *sharing.sharing_rows(mixes),
            *_small_rows(runner, sizes),
            philly,
            scheduler.decision_row(decisions),
            *drift_rows,
        ),
        replay={policy: tuple(results) for policy, results in replayed.items()},
        mixes=sharing.equal_cost_ratios(mixes),
        drifts=drifts,
        sweeps=_sweeps(runner, sources, sizes, costs),
        decisions=decisions,
        excerpt=woven_excerpt("Three jobs woven on two nodes a pool", cases.mixes(20)[2], 60.0, 40.0),
        parameters={"traces": sources.origin, **msgspec.to_builtins(Costs()), **msgspec.to_builtins(sizes)},
        machine=machine,
        quick=sizes.quick,
        confirmed=runner.confirmed,
        refuted=tuple(runner.refuted),
    )


def _small_rows(runner: Runner, sizes: Sizes) -> tuple[Row, ...]:
    """Rows of cases made by hand, and of what is no simulation."""
    return (
        sharing.careless_row(sharing.careless(runner, sizes.mix_iterations)),
        mechanisms.cold_switches(runner, sizes.mix_iterations),
        mechanisms.tail_migration(runner, sizes.mix_iterations),
        *mechanisms.sync_rows(),
        mechanisms.start_row(),
    )


def _sweeps(runner: Runner, sources: Sources, sizes: Sizes, costs: Costs) -> tuple[Sweep, ...]:
    """The sensitivity, on jobs that are shorter still."""
    traces = [
        shortened(first_jobs(trace, sizes.sweep_jobs), sizes.sweep_shortening)
        for trace in sources.production[: sizes.sweep_traces]
    ]
    shorter = with_short_starts(costs, sizes.sweep_shortening)
    return sweeps.sweeps(runner, sweeps.questions(sizes.quick), traces, shorter)
