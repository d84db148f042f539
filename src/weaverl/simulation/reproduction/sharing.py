"""Two or three jobs that share nodes: throughput at equal cost, slowdown, and what carelessness does."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from weaverl.simulation.costs import Costs
from weaverl.simulation.reproduction import published
from weaverl.simulation.reproduction.cases import careless_pair, mixes
from weaverl.simulation.reproduction.records import Result, Row, Task
from weaverl.simulation.reproduction.replay import OURS, POLICIES, span, usd_over
from weaverl.simulation.reproduction.runner import Runner
from weaverl.simulation.traces.records import Trace

STUDY = "sharing"
NOTE = (
    "The source gives kinds of mixes (time multiplexing, rollout-heavy, spatial), not phase times; ours are in "
    "simulation/reproduction/cases.py. Throughput at equal cost is work per dollar, for the same work."
)
_MIXES = "Phase times are ours."

Results = Mapping[str, Mapping[str, Result]]
"""By mix, then by policy."""


def sharing(runner: Runner, iterations: int) -> Results:
    """Every policy on every mix."""
    cases = mixes(iterations)
    results = iter(
        runner.results([Task(study=STUDY, trace=mix, policy=policy) for mix in cases for policy in POLICIES])
    )
    return {mix.name: {policy: next(results) for policy in POLICIES} for mix in cases}


def equal_cost_ratios(results: Results) -> dict[str, dict[str, float]]:
    """Throughput of ours at equal cost over each other policy's, by mix: their dollars over ours, for equal work."""
    return {
        mix: {policy: usd_over(by_policy[policy], by_policy[OURS]) for policy in POLICIES if policy != OURS}
        for mix, by_policy in results.items()
    }


def sharing_rows(results: Results) -> tuple[Row, ...]:
    """Throughput at equal cost over three policies, and the slowdown of the jobs."""
    ratios = equal_cost_ratios(results)
    solo = dict(zip(ratios, published.MIX_OVER_SOLO, strict=True))
    return (
        _over("solo", "Solo-D", ratios, ", ".join(f"{value:.2f}x" for value in solo.values()), published.MIX_OVER_SOLO),
        *(
            _over(policy, name, ratios, f"{low:.2f}x to {high:.2f}x", (low, high))
            for policy, name, (low, high) in (
                ("gavel", "Gavel+", published.MIX_OVER["gavel"]),
                ("colocated", "veRL", published.MIX_OVER["colocated"]),
            )
        ),
        _slowdowns(results),
    )


def _over(policy: str, name: str, ratios: Mapping[str, Mapping[str, float]], said: str, spread: Sequence[float]) -> Row:
    values = {mix: by_policy[policy] for mix, by_policy in ratios.items()}
    return Row(
        key=f"mix_over_{policy}",
        section=STUDY,
        what=f"Throughput at equal cost over {name}",
        published=said,
        ours=", ".join(span([value]) for value in values.values()),
        values=values,
        differs=_MIXES,
        low=min(spread),
        high=max(spread),
    )


def _slowdowns(results: Results) -> Row:
    values = {
        f"{mix}, job {place}": slowdown - 1
        for mix, by_policy in results.items()
        for place, slowdown in enumerate(by_policy[OURS].slowdowns)
    }
    low, high = published.SHARING_SLOWDOWN
    return Row(
        key="sharing_slowdown",
        section=STUDY,
        what="Slowdown of a job from sharing, same mixes",
        published=f"{low:.1%} to {high:.1%}".replace("%", " %"),
        ours=f"{min(values.values()):.1%} to {max(values.values()):.1%}".replace("%", " %"),
        values=values,
        differs=f"{_MIXES} Neighbours do not disturb each other here (interference 1.0): these are waits and "
        "switches alone.",
    )


def careless(runner: Runner, iterations: int) -> Mapping[str, Result]:
    """Two rollout-heavy jobs that admission must put together, and the same with an SLO of 1.2x."""
    pair = careless_pair(iterations)
    picky = Trace(name=f"{pair.name}, SLO 1.2x", jobs=tuple(replace(job, slo=1.2) for job in pair.jobs))
    costs = Costs(tail_migration=False)
    tasks = [Task(study=STUDY, trace=trace, policy=OURS, costs=costs) for trace in (pair, picky)]
    together, apart = runner.results(tasks)
    return {"together": together, "apart": apart}


def careless_row(results: Mapping[str, Result]) -> Row:
    """How far carelessness slows two jobs, and that admission does not do it."""
    slowdowns = sorted(results["together"].slowdowns)
    apart = max(results["apart"].slowdowns)
    low, high = published.CARELESS
    return Row(
        key="careless_pair",
        section=STUDY,
        what="Two rollout-heavy jobs put together carelessly",
        published=f"{low:.2f}x and {high:.2f}x",
        ours=" and ".join(f"{value:.2f}x" for value in slowdowns),
        values={f"job {place}": value for place, value in enumerate(slowdowns)},
        differs="Phase times are ours (rollouts 3.3 to 3.8 times the training, no tail migration): any such pair gives "
        "figures of this size. Carelessness is an SLO of 10x; with 1.2x the same admission gives each its own rollout "
        f"node, and the slower of the two is at {apart:.2f}x.",
        low=low,
        high=high,
    )
