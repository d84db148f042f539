"""What drifting jobs cost a placement that stays as it is."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from weaverl.reports.plots.canvas import INK, MUTED, bar_label, only_grid
from weaverl.reports.plots.names import policy_colour
from weaverl.simulation.reproduction.records import Drift

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def drift_figure(
    figure: "Figure", drifts: Sequence[Drift], over_ideal: Mapping[str, float], slo: Mapping[str, float]
) -> None:
    """Left: cost over ideal regrouping each hour. Right: SLOs met. Published values as marks."""
    left, right = figure.subplots(1, 2)
    _bars(left, [(one.kind, one.over_ideal) for one in drifts], over_ideal, "{:.2f}x")
    left.axhline(1.0, color=MUTED, linewidth=1)
    left.set_title("Cost over hourly ideal regrouping")
    left.set_ylabel("times")
    attainment = [(one.kind, one.slo_attainment * 100) for one in drifts]
    _bars(right, attainment, {kind: value * 100 for kind, value in slo.items()}, "{:.1f} %")
    right.set_ylim(0, 108)
    right.set_title("SLOs met")
    right.set_ylabel("% of jobs")
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=2)


def _bars(axes: "Axes", values: Sequence[tuple[str, float]], published: Mapping[str, float], form: str) -> None:
    only_grid(axes, "y")
    for place, (kind, value) in enumerate(values):
        first = place == 0
        axes.bar(place, value, width=0.5, color=policy_colour("weave-paper"), label="ours" if first else None)
        said = published[kind]
        axes.plot(
            (place - 0.33, place + 0.33),
            (said, said),
            color=INK,
            linewidth=2.4,
            solid_capstyle="butt",
            label="published" if first else None,
        )
        bar_label(axes, form.format(value), place, policy_colour("weave-paper"))
    axes.set_xticks(range(len(values)), [kind for kind, _ in values], color=INK)
    axes.margins(y=0.12)
