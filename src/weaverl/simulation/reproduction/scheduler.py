"""How good and how fast decisions are: against the offline optimum, with drift, with thousands of jobs."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from weaverl.simulation.costs import Costs
from weaverl.simulation.reproduction import published
from weaverl.simulation.reproduction.ideal import OverIdeal, Planner, over_ideal
from weaverl.simulation.reproduction.records import DecisionPoint, Drift, Result, Row, Task
from weaverl.simulation.reproduction.replay import OURS, span
from weaverl.simulation.reproduction.runner import Runner
from weaverl.simulation.reproduction.variations import every_nth
from weaverl.simulation.traces.records import Trace

STUDY = "scheduler"
NOTE = (
    "The optimum is found by exhaustive search over groupings, nodes and rotation orders of the jobs that run at a "
    "moment, with the promises and memory limits of admission. It may regroup at any moment at no cost."
)


def philly_row(
    runner: Runner, traces: Sequence[Trace], costs: Costs, planner: Planner, step: int, every_hours: float
) -> Row:
    """Philly arrivals: SLOs with all of them, cost over the optimum with one in ``step``."""
    thin = [every_nth(trace, step) for trace in traces]
    results = runner.results([Task(study=STUDY, trace=trace, policy=OURS, costs=costs) for trace in (*traces, *thin)])
    whole, thinned = results[: len(traces)], results[len(traces) :]
    found = [over_ideal(result, trace, planner, every_hours) for result, trace in zip(thinned, thin, strict=True)]
    ratios = {result.outcome.trace: one.ratio for result, one in zip(thinned, found, strict=True)}
    met = span([100 * result.outcome.slo_attainment for result in whole], "{:.1f} %")
    low, high = published.PHILLY_OVER_OPTIMUM
    return Row(
        key="philly_over_optimum",
        section=STUDY,
        what="300 Philly arrivals: cost over the offline optimum",
        published=f"{low:.2f}x to {high:.2f}x, all SLOs met",
        ours=f"{span(list(ratios.values()))}; SLOs met {met}",
        values=ratios,
        differs=f"{_samples(found)} Exhaustive search cannot plan all {whole[0].outcome.jobs} arrivals, so the cost is "
        f"that of one job in {step}; the SLOs are those of all.",
        low=low,
        high=high,
    )


def drifts(
    runner: Runner,
    drifted: Mapping[str, Sequence[Trace]],
    costs: Costs,
    planner: Planner,
    step: int,
    every_hours: float,
) -> tuple[tuple[Drift, ...], tuple[Row, ...]]:
    """Jobs whose rollouts drift, under a placement that stays."""
    tasks = [
        Task(study="drift", trace=trace, policy=OURS, costs=costs)
        for traces in drifted.values()
        for whole in traces
        for trace in (whole, every_nth(whole, step))
    ]
    results = iter(runner.results(tasks))

    def pair(trace: Trace) -> tuple[Result, OverIdeal]:
        return next(results), over_ideal(next(results), every_nth(trace, step), planner, every_hours)

    pairs = {kind: [pair(trace) for trace in traces] for kind, traces in drifted.items()}
    found = tuple(
        Drift(
            kind=kind,
            over_ideal=fmean(ideal.ratio for _, ideal in some),
            slo_attainment=fmean(whole.outcome.slo_attainment for whole, _ in some),
        )
        for kind, some in pairs.items()
    )
    return found, tuple(_drift_row(one, pairs[one.kind], step) for one in found)


def _drift_row(drift: Drift, pairs: Sequence[tuple[Result, OverIdeal]], step: int) -> Row:
    said = published.DRIFT_OVER_IDEAL[drift.kind]
    return Row(
        key=f"drift_{drift.kind}",
        section=STUDY,
        what=f"Drift, {drift.kind}: cost over hourly ideal regrouping; SLO",
        published=f"{said:.2f}x; {published.DRIFT_SLO[drift.kind]:.1%}".replace("%", " %"),
        ours=f"{drift.over_ideal:.2f}x; {drift.slo_attainment:.1%}".replace("%", " %"),
        values={whole.outcome.trace: ideal.ratio for whole, ideal in pairs},
        differs=f"{_samples([ideal for _, ideal in pairs])} The cost is that of one job in {step}, so that exhaustive "
        "search can plan it; the SLOs are those of all. Kinds and sizes of drift are those of our traces.",
        low=said,
        high=said,
    )


def _samples(found: Sequence[OverIdeal]) -> str:
    samples, skipped = sum(one.samples for one in found), sum(one.too_large for one in found)
    left_out = f"; {skipped} more were too large and are left out" if skipped else ""
    return f"{samples:,} sampled moments with up to {max(one.most_jobs for one in found)} jobs{left_out}."


def decision_row(points: Sequence[DecisionPoint]) -> Row:
    """One decision at the number of jobs that was published, or at the nearest measured."""
    point = min(points, key=lambda one: abs(one.jobs - published.DECISION_JOBS))
    return Row(
        key="decision",
        section=STUDY,
        what=f"One decision with {published.DECISION_JOBS:,} jobs running",
        published=f"{published.DECISION_MS:g} ms",
        ours=f"{point.p50_ms:.2g} ms median, {point.p99_ms:.2g} ms 99th percentile",
        values={f"p50_ms, {one.jobs} jobs": one.p50_ms for one in points},
        differs=f"Measured here with {point.jobs:,} jobs, wall time on the machine named below; the worst of three "
        "arrivals: refused by memory everywhere, refused only by the simulated round everywhere, feasible everywhere.",
    )
