"""Where weaving pays: savings against one parameter at a time, as small multiples."""

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from weaverl.reports.palette import LIGHT
from weaverl.reports.plots.canvas import MUTED, finite, pale
from weaverl.reports.plots.names import policy_colour
from weaverl.simulation.reproduction.records import Sweep
from weaverl.simulation.reproduction.sweeps import WORTH

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS = 3
_LINE = 48
_LINE_POINTS = 10.5


def sensitivity_figure(figure: "Figure", sweeps: Sequence[Sweep]) -> None:
    """A panel a parameter, a row on one scale: cost of alternatives over weaving's; shaded where it does not pay."""
    panels = figure.subplots(math.ceil(len(sweeps) / COLUMNS), COLUMNS, sharey="row", squeeze=False)
    handles: dict[str, Artist] = {}
    for number, row in enumerate(panels):
        some = sweeps[number * COLUMNS : (number + 1) * COLUMNS]
        low, high = _range(some)
        for axes, sweep in zip(row, some, strict=False):
            _panel(axes, sweep, low, high)
            artists, names = axes.get_legend_handles_labels()
            handles |= dict(zip(names, artists, strict=True))
        for axes in row[len(some) :]:
            axes.set_visible(False)
        row[0].set_ylabel("cost over weaving's")
    figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=4)


def _range(sweeps: Sequence[Sweep]) -> tuple[float, float]:
    points = [point for sweep in sweeps for point in sweep.points]
    ratios, _ = finite(ratio for point in points for ratio in (point.solo_ratio, point.colocated_ratio))
    return min([0.85, *(ratio - 0.05 for ratio in ratios)]), max([1.15, *(ratio * 1.06 for ratio in ratios)])


def _panel(axes: "Axes", sweep: Sweep, low: float, top: float) -> None:
    values = [point.value for point in sweep.points]
    axes.axhspan(low, WORTH, color=pale(LIGHT.bad, 0.1), linewidth=0)
    axes.axhline(WORTH, color=LIGHT.bad, linewidth=1, label=f"weaving pays from here up ({WORTH:g}x)")
    if sweep.standard is not None:
        axes.axvline(sweep.standard, color=MUTED, linewidth=1, linestyle=(0, (2, 2)), label="evaluation protocol")
    for policy, ratios, name in (
        ("solo", [point.solo_ratio for point in sweep.points], "Solo-D over WEAVE"),
        ("colocated", [point.colocated_ratio for point in sweep.points], "veRL over WEAVE"),
    ):
        axes.plot(values, ratios, color=policy_colour(policy), marker="o", markersize=4, label=name)
    if sweep.logarithmic:
        axes.set_xscale("log")
        axes.minorticks_off()
        axes.set_xticks(values, [f"{value:g}" for value in values])
    axes.set_ylim(low, top)
    axes.set_xlabel(sweep.axis)
    lines = textwrap.wrap(sweep.answer, _LINE)
    axes.set_title(sweep.title, pad=8 + _LINE_POINTS * len(lines))
    axes.annotate(
        "\n".join(lines),
        (0, 1),
        (0, 5),
        xycoords="axes fraction",
        textcoords="offset points",
        fontsize=8,
        color=MUTED,
        va="bottom",
    )
