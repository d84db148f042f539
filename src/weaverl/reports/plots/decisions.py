"""How long one placement decision takes as the cluster fills."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from weaverl.reports.plots.canvas import INK, MUTED
from weaverl.reports.plots.names import policy_colour
from weaverl.simulation.reproduction.records import DecisionPoint

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def decision_figure(figure: "Figure", points: Sequence[DecisionPoint], published: tuple[int, float]) -> None:
    """Median and 99th percentile against running jobs, both axes logarithmic, with the published figure as a mark."""
    axes = figure.add_subplot()
    colour = policy_colour("weave-paper")
    jobs = [point.jobs for point in points]
    medians, tails = [point.p50_ms for point in points], [point.p99_ms for point in points]
    axes.fill_between(jobs, medians, tails, color=colour, alpha=0.15, linewidth=0)
    axes.plot(jobs, tails, color=colour, linewidth=1, label="99th percentile")
    axes.plot(jobs, medians, color=colour, marker="o", label="median")
    axes.plot(*published, marker="D", markersize=8, color=INK, linestyle="none", label="published")
    axes.annotate(
        f"published: {published[1]:g} ms\nat {published[0]:,} jobs",
        published,
        (11, 0),
        textcoords="offset points",
        va="center",
        color=INK,
    )
    for point in (points[0], points[-1]):
        axes.annotate(
            f"{point.p50_ms:.2g} ms",
            (point.jobs, point.p50_ms),
            (-8, -19),
            textcoords="offset points",
            ha="left",
            color=MUTED,
        )
    axes.set(xscale="log", yscale="log", xlabel="running jobs", ylabel="milliseconds")
    axes.margins(x=0.08, y=0.12)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_title("One decision: the worst of three kinds of arrival")
    axes.legend(loc="upper left")
