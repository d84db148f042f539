"""How much jobs are slowed by sharing, against what they were promised."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from weaverl.reports.palette import LIGHT
from weaverl.reports.plots.canvas import INK, MUTED, finite, note, pale
from weaverl.reports.plots.names import policy_colour, policy_name
from weaverl.simulation.reproduction.records import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def slowdown_figure(figure: "Figure", runs: Sequence[Result]) -> None:
    """Left: the distribution of slowdowns by policy, and of SLOs. Right: the last run's jobs against their SLOs."""
    left, right = figure.subplots(1, 2)
    dropped = sum(_curve(left, run) for run in runs)
    _steps(left, sorted(runs[-1].slos), color=INK, linestyle=(0, (4, 3)), linewidth=1.4, label="SLO asked")
    left.set_xlim(0.98, max(2.05, *(_high(run) for run in runs)))
    left.set_ylim(0, 102)
    left.set_xlabel("slowdown over the job's life")
    left.set_ylabel("jobs with at most that, %")
    left.set_title("Slowdown of all jobs")
    left.legend(loc="lower right")
    if dropped:
        note(left, f"{dropped} jobs without a slowdown are left out")
    _against_slo(right, runs[-1])


def _curve(axes: "Axes", run: Result) -> int:
    values, dropped = finite(run.slowdowns)
    _steps(axes, sorted(values), color=policy_colour(run.outcome.policy), label=policy_name(run.outcome.policy))
    return dropped


def _steps(axes: "Axes", values: list[float], **style: Any) -> None:
    shares = [100 * (place + 1) / len(values) for place in range(len(values))]
    axes.step([0.0, *values, 1e3], [0.0, *shares, 100.0], where="post", **style)


def _high(run: Result) -> float:
    """Past almost all slowdowns; a few far out would squeeze the rest."""
    values = sorted(finite(run.slowdowns)[0])
    return min(values[int(0.99 * (len(values) - 1))] * 1.05, 4.0) if values else 1.0


def _against_slo(axes: "Axes", run: Result) -> None:
    pairs = [(slo, slowdown) for slo, slowdown in zip(run.slos, run.slowdowns, strict=True) if finite((slowdown,))[0]]
    high = max([2.05, *(value * 1.02 for pair in pairs for value in pair)])
    axes.fill_between((1, high), (1, high), high, color=pale(LIGHT.bad, 0.1), linewidth=0)
    axes.plot((1, high), (1, high), color=LIGHT.bad, linewidth=1)
    late = [pair for pair in pairs if pair[1] > pair[0]]
    for some, colour in ((pairs, policy_colour(run.outcome.policy)), (late, LIGHT.bad)):
        axes.scatter([pair[0] for pair in some], [pair[1] for pair in some], s=13, color=colour, alpha=0.8, linewidth=0)
    axes.set_xlim(0.98, high)
    axes.set_ylim(0.98, high)
    axes.set_xlabel("SLO asked")
    axes.set_ylabel("slowdown")
    axes.set_title(f"{policy_name(run.outcome.policy)}: {len(pairs) - len(late)} of {len(pairs)} within their SLO")
    axes.text(1.03, high - 0.03 * (high - 1), "promise broken", color=MUTED, fontsize=8.5, va="top")
