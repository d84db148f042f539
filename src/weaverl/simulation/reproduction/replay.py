"""The two-week replay: what each policy costs on the same jobs, at peak, and in bubbles."""

from collections.abc import Mapping, Sequence
from math import isfinite, nan
from statistics import fmean

from weaverl.simulation.costs import Costs
from weaverl.simulation.outcome import usd_ratio
from weaverl.simulation.reproduction import published
from weaverl.simulation.reproduction.records import Result, Row, Task
from weaverl.simulation.reproduction.runner import Runner
from weaverl.simulation.traces.records import Trace

STUDY = "two-week replay"
OURS = "weave-paper"
POLICIES = ("solo", "colocated", "gavel", OURS)
NOTE = (
    "The published trace is not public. Ours are synthetic with its published marginals (model sizes, response caps, "
    "mean duration, SLO uniform on (1, 2)); phase times, iterations and arrivals are drawn. All is simulated, for "
    "every policy alike. The published algorithm, as we read it, plans at the response cap and never moves a job. Bars "
    "are means of the traces; costs over time and slowdowns are those of the first."
)
SYNTHETIC = "Synthetic traces, simulated."

Results = Mapping[str, Sequence[Result]]
"""By policy; the results of a policy in the order of the traces."""


def replay(runner: Runner, traces: Sequence[Trace], costs: Costs) -> Results:
    """Every policy on every trace."""
    plan = [Task(study=STUDY, trace=trace, policy=policy, costs=costs) for policy in POLICIES for trace in traces]
    results = iter(runner.results(plan))
    return {policy: [next(results) for _ in traces] for policy in POLICIES}


def replay_rows(results: Results) -> tuple[Row, ...]:
    """Cost, ratios, SLOs, peaks, bubbles."""
    return (
        _usd_per_hour(results),
        _total(results),
        _attainment(results),
        *(_ratio(results, policy, name) for policy, name in (("solo", "Solo-D"), ("colocated", "veRL"))),
        _peaks(results),
        *(_bubbles(results, pool) for pool in ("rollout", "training")),
    )


def cost_ratios(results: Results, policy: str) -> dict[str, float]:
    """Dollars of a policy over ours, by trace."""
    return {
        ours.outcome.trace: usd_over(other, ours) for other, ours in zip(results[policy], results[OURS], strict=True)
    }


def usd_over(other: Result, ours: Result) -> float:
    """Dollars over ours for the same work; not a number where one of them could not run every job."""
    ratio = usd_ratio(other.outcome, ours.outcome)
    return nan if ratio is None else ratio


def span(values: Sequence[float], form: str = "{:.2f}x") -> str:
    """Mean, with the range if there is one: ``1.37x (1.32x to 1.40x)``; what is no number is left out and counted."""
    known = [value for value in values if isfinite(value)]
    if not known:
        return "cannot be told"
    low, high, mean = (form.format(value) for value in (min(known), max(known), fmean(known)))
    found = mean if low == high else f"{mean} ({low} to {high})"
    return found if len(known) == len(values) else f"{found}, without {len(values) - len(known)} of {len(values)}"


def _row(key: str, what: str, said: str, ours: str, values: dict[str, float], differs: str = SYNTHETIC) -> Row:
    return Row(key=key, section=STUDY, what=what, published=said, ours=ours, values=values, differs=differs)


def _usd_per_hour(results: Results) -> Row:
    values = {policy: fmean(one.outcome.usd_per_hour for one in results[policy]) for policy in POLICIES}
    order = (OURS, "solo", "colocated")
    return _row(
        "usd_per_hour",
        "$/hour of WEAVE / Solo-D / veRL",
        " / ".join(f"{published.USD_PER_HOUR[policy]:.0f}" for policy in order),
        " / ".join(f"{values[policy]:.0f}" for policy in order),
        values,
        f"{SYNTHETIC} Hours run from the first admission to the last end. Gavel+ took {values['gavel']:.0f}.",
    )


def _total(results: Results) -> Row:
    values = {one.outcome.trace: one.outcome.usd for one in results[OURS]}
    usd = [value / 1000 for value in values.values()]
    said = f"${published.TOTAL_USD[OURS] / 1000:.1f}K"
    hours = fmean(one.outcome.hours for one in results[OURS])
    differs = f"{SYNTHETIC} Over {hours:.0f} hours here; the published figures make it 370."
    return _row("total_usd", "WEAVE, total cost", said, span(usd, "${:.1f}K"), values, differs)


def _attainment(results: Results) -> Row:
    values = {one.outcome.trace: one.outcome.slo_attainment for one in results[OURS]}
    ours = span([100 * value for value in values.values()], "{:.1f} %")
    differs = (
        f"{SYNTHETIC} A job's SLO is judged by its true solo time, iteration by iteration: planning both sides of the "
        "ratio at the response cap is not conservative for jobs whose true rollouts are short."
    )
    return _row("slo_attainment", "SLOs met by WEAVE", "100 %", ours, values, differs)


def _ratio(results: Results, policy: str, name: str) -> Row:
    ratios = cost_ratios(results, policy)
    said = published.COST_OVER_WEAVE[policy]
    bound = span([_multiple(one) for one in results[OURS]])
    return Row(
        key=f"cost_{policy}_over_weave",
        section=STUDY,
        what=f"Cost, {name} over WEAVE",
        published=f"{said:.2f}x",
        ours=span(list(ratios.values())),
        values=ratios,
        differs=f"{SYNTHETIC} WEAVE pays {bound} of the bubble-free bound.",
        low=said,
        high=said,
    )


def _multiple(result: Result) -> float:
    assert result.outcome.bound_multiple is not None
    return result.outcome.bound_multiple


def _peaks(results: Results) -> Row:
    values = {
        f"{policy}, {pool}": fmean(getattr(one.outcome.peak_gpus, pool) for one in results[policy])
        for policy in (OURS, "solo", "colocated")
        for pool in ("rollout", "training")
    }
    pairs = [f"{values[f'{policy}, rollout']:.0f} + {values[f'{policy}, training']:.0f}" for policy in (OURS, "solo")]
    peak = published.PEAK_GPUS
    return _row(
        "peak_gpus",
        "Peak GPUs (H20 + H800): WEAVE; Solo-D; veRL",
        "; ".join((*(f"{peak[policy][0]} + {peak[policy][1]}" for policy in (OURS, "solo")), "328 H800")),
        "; ".join((*pairs, f"{values['colocated, training']:.0f} H800")),
        values,
        f"{SYNTHETIC} No limit on nodes here; the published testbed has 328 GPUs a pool. Means over the traces.",
    )


def _bubbles(results: Results, pool: str) -> Row:
    solo, ours = (fmean(getattr(one.outcome.bubbles, pool) for one in results[policy]) for policy in ("solo", OURS))
    return _row(
        f"bubble_{pool}",
        f"{pool.capitalize()} bubble against Solo-D",
        f"-{published.BUBBLE_REDUCTION[pool]:.1%}".replace("%", " %"),
        f"{(ours - solo) / solo:+.1%} relative, {(ours - solo) * 100:+.1f} points".replace("%", " %"),
        {"solo": solo, OURS: ours, "relative": (ours - solo) / solo, "points": ours - solo},
        f"{SYNTHETIC} The source does not say whether its figure is relative or in points. Bubbles: {solo:.0%} under "
        f"Solo-D, {ours:.0%} woven; busy is inside a phase on devices really used, switches are not.",
    )
