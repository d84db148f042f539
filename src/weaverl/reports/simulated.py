"""Simulated runs as tables in the terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from weaverl.reports.sharing import has_sharing, print_sharing
from weaverl.reports.sheets import sheet
from weaverl.simulation.measured import Comparison
from weaverl.simulation.outcome import ByPool, Outcome, Spread

_COSTS = ("policy", "dollars", "$/h", "x bound", "solo /", "colocated /")
_FLEET = ("policy", "makespan h", "x least", "mean h to end", "mean wait h", "moves")
_FIGURES = ("policy", "hours", "SLO met", "slowdown p50/p99", "peak GPUs", "bubbles")


def print_outcome(outcome: Outcome, console: Console) -> None:
    """One run: a line a figure."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column()
    table.add_column(overflow="fold")
    for title, value in _facts(outcome):
        table.add_row(title, value)
    console.print(f"{outcome.trace} under {_policy(outcome)}, {_chance(outcome)}")
    console.print(table)
    if outcome.tenants:
        console.print(_tenants(outcome, console), crop=False)
    print_sharing(outcome, console)


def print_comparison(outcomes: Sequence[Outcome], ratios: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Several runs: for each trace what they cost and how they did, a row a policy. Ratios above 1: cheaper."""
    both = list(zip(outcomes, ratios, strict=True))
    for trace in dict.fromkeys(outcome.trace for outcome in outcomes):
        here = [(outcome, ratio) for outcome, ratio in both if outcome.trace == trace]
        console.print(Text(trace, style="bold", overflow="fold"))
        console.print(sheet(_COSTS, [_cost_row(*one) for one in here], console), crop=False)
        console.print()
        console.print(sheet(_FIGURES, [_figure_row(outcome) for outcome, _ in here], console), crop=False)
        console.print()
        if all(outcome.makespan_bound_hours is not None for outcome, _ in here):
            console.print(sheet(_FLEET, [_fleet_row(outcome) for outcome, _ in here], console), crop=False)
            console.print()
        for outcome, _ in here:
            if has_sharing(outcome):
                console.print(Text(outcome.policy, style="bold"))
                print_sharing(outcome, console)


def _cost_row(outcome: Outcome, ratio: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        _policy(outcome),
        f"{outcome.usd:,.0f}",
        f"{outcome.usd_per_hour:,.0f}",
        _multiple(outcome.bound_multiple),
        _multiple(ratio["solo"]),
        _multiple(ratio["colocated"]),
    )


def _figure_row(outcome: Outcome) -> tuple[str, ...]:
    slowdown, (rollout, training) = outcome.slowdown, _bubbles(outcome, "{:.0%}")
    return (
        _policy(outcome),
        f"{outcome.hours:,.0f}",
        f"{outcome.slo_attainment:.1%}",
        f"{slowdown.p50:.2f}/{slowdown.p99:.2f}" if slowdown else "-",
        f"{outcome.peak_gpus.rollout:.0f} + {outcome.peak_gpus.training:.0f}",
        f"{rollout} + {training}",
    )


def _fleet_row(outcome: Outcome) -> tuple[str, ...]:
    """On a fixed fleet: hours from the first arrival to the last end, and of a job from its arrival to its end."""
    wait, completion, least = outcome.mean_wait_hours, outcome.mean_completion_hours, outcome.makespan_bound_hours
    return (
        _policy(outcome),
        f"{outcome.makespan_hours:,.1f}",
        "-" if not least else f"{outcome.makespan_hours / least:.3f}",
        "-" if completion is None else f"{completion:.2f}",
        "-" if wait is None else f"{wait:.2f}",
        f"{outcome.moves:,}",
    )


def _policy(outcome: Outcome) -> str:
    """The policy, and its objective where that is not dollars."""
    objective = outcome.parameters.get("objective", "dollars")
    return outcome.policy if objective == "dollars" else f"{outcome.policy}, {objective}"


def _bubbles(outcome: Outcome, form: str) -> tuple[str, str]:
    """Of both pools; a pool that never had a GPU has no bubble."""
    bubbles, gpus = outcome.bubbles, outcome.peak_gpus
    rollout = form.format(bubbles.rollout) if gpus.rollout else "-"
    return rollout, form.format(bubbles.training) if gpus.training else "-"


def print_against_reality(found: Comparison, console: Console) -> None:
    """A measured run beside its simulation."""
    console.print(
        f"measured {found.measured_seconds:.2f} s, simulated with the same times {found.simulated_seconds:.2f} s "
        f"({found.deviation:+.1%})"
    )
    for node, same in found.order.items():
        console.print(f"{node}: granted in {'the same' if same else 'ANOTHER'} order")


def _facts(outcome: Outcome) -> list[tuple[str, str]]:
    audited = {True: "yes", False: "NO", None: "not asked for"}[outcome.audited]
    return [
        ("dollars", f"{outcome.usd:,.0f} ({outcome.usd_per_hour:,.0f} an hour over {outcome.hours:,.1f} h)"),
        ("over the bubble-free bound", _multiple(outcome.bound_multiple)),
        ("jobs", f"{outcome.jobs_finished} of {outcome.jobs} finished, {outcome.jobs_admitted} admitted"),
        ("SLO met", f"{outcome.slo_attainment:.1%}"),
        ("slowdown", _spread(outcome.slowdown, "x")),
        ("worst 20 iterations", _spread(outcome.worst_window, "x")),
        ("wait for admission", _spread(outcome.wait_hours, " h")),
        ("from arrival to end", _spread(outcome.completion_hours, " h")),
        *_makespan(outcome),
        ("peak GPUs", _pools(outcome.peak_gpus, "{:.0f}")),
        ("mean GPUs", _pools(outcome.mean_gpus, "{:.1f}")),
        ("bubbles", "{} rollout, {} training".format(*_bubbles(outcome, "{:.1%}"))),
        *_interference(outcome),
        ("moves, retries", f"{outcome.moves}{_pauses(outcome)}, {outcome.retries}"),
        *_deadlines(outcome),
        ("decisions", _spread(outcome.decision_ms, " ms")),
        ("audited", audited),
    ]


def _makespan(outcome: Outcome) -> list[tuple[str, str]]:
    """Where the nodes are a fixed fleet."""
    least, completion = outcome.makespan_bound_hours, outcome.mean_completion_hours
    if least is None or completion is None:
        return []
    return [
        ("makespan", f"{outcome.makespan_hours:,.1f} h, at least {least:,.1f} h under any policy"),
        ("mean from arrival to end", f"{completion:,.2f} h, of which {outcome.mean_wait_hours or 0.0:,.2f} h waiting"),
    ]


def _pauses(outcome: Outcome) -> str:
    """Where running jobs were paused for others."""
    if not outcome.preemptions:
        return ""
    return f" ({outcome.preemptions} to the queue, at most {outcome.most_preemptions} of a job)"


def _deadlines(outcome: Outcome) -> list[tuple[str, str]]:
    """Where jobs had any."""
    kept = outcome.deadlines
    return [] if kept is None else [("deadlines met", f"{kept.met} of {kept.jobs} ({kept.attainment:.1%})")]


def _interference(outcome: Outcome) -> list[tuple[str, str]]:
    """Where neighbours slowed anybody."""
    phases = (("rollout", outcome.interference.rollout), ("training", outcome.interference.training))
    shown = [(name, f"{value:.3f}x") for name, value in phases if value is not None]
    slowed = any(value != "1.000x" for _, value in shown)
    return [("interference", ", ".join(f"{value} {name}" for name, value in shown))] if slowed else []


def _tenants(outcome: Outcome, console: Console) -> Table:
    rows = [
        (name, str(one.jobs), f"{one.usd:,.0f}", f"{one.slo_attainment:.1%}", f"{one.speed:.3f}")
        for name, one in outcome.tenants.items()
    ]
    table = sheet(("tenant", "jobs", "dollars", "SLO met", "speed"), rows, console)
    fairness = "-" if outcome.fairness is None else f"{outcome.fairness:.4f}"
    table.caption = f"speed: solo time over time from arrival to end; Jain's index of it {fairness}"
    return table


def _chance(outcome: Outcome) -> str:
    return "mean rollout times" if outcome.seed is None else f"rollout times drawn with seed {outcome.seed}"


def _spread(values: Spread | None, unit: str) -> str:
    if values is None:
        return "-"
    named = (("p50", values.p50), ("p90", values.p90), ("p99", values.p99), ("max", values.max))
    return ", ".join(f"{name} {value:.3f}{unit}" for name, value in named)


def _pools(values: ByPool, form: str) -> str:
    return f"{form.format(values.rollout)} rollout, {form.format(values.training)} training"


def _multiple(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}x"
