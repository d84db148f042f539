"""What is done when jobs drift: dollars and broken promises, by how far they drift."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from weaverl.reports.palette import LIGHT
from weaverl.reports.plots.canvas import INK, MUTED, Picture, only_grid, save_picture
from weaverl.simulation.replacement.records import Reacted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAMES = {
    "none": "nobody moves",
    "rescue": "promises saved",
    "incremental": "one at a time",
    "resubmit": "stop and resubmit",
    "global": "regroup all",
}
_COLOURS = {
    "none": MUTED,
    "rescue": LIGHT.jobs[3],
    "incremental": LIGHT.jobs[0],
    "resubmit": LIGHT.jobs[1],
    "global": LIGHT.jobs[2],
}
_MARKS = {"none": "o", "rescue": "v", "incremental": "s", "resubmit": "^", "global": "D"}


def draw_reactions(folder: Path, found: Sequence[Reacted]) -> Picture:
    """Draw the runs that differ in how far their jobs drift, each kind of reaction as a line."""
    title = "Dollars over those without moves, promises broken and time of a plan, by drift and reaction"
    return save_picture(folder, "reactions", title, (10.4, 3.8), lambda figure: _paint(figure, found))


def _paint(figure: "Figure", found: Sequence[Reacted]) -> None:
    left, middle, right = figure.subplots(1, 3, width_ratios=(3, 3.2, 2.6))
    kinds = [kind for kind in NAMES if any(one.reaction == kind for one in found)]
    _lines(left, found, kinds)
    _misses(middle, found, kinds)
    _times(right, found, [kind for kind in kinds if kind != "none"])
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=len(kinds))


def _lines(axes: "Axes", found: Sequence[Reacted], kinds: Sequence[str]) -> None:
    factors = _factors(found)
    for kind in kinds:
        saved = [100 * (_mean(found, kind, factor) / _mean(found, "none", factor) - 1) for factor in factors]
        axes.plot(range(len(factors)), saved, color=_COLOURS[kind], marker=_MARKS[kind], label=NAMES[kind])
    axes.locator_params("y", steps=(1, 2, 5, 10), integer=True)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:+.0f} %" if round(value) else "0")
    _label(axes, factors, "Dollars, against nobody moves")


def _misses(axes: "Axes", found: Sequence[Reacted], kinds: Sequence[str]) -> None:
    factors = _factors(found)
    width = 0.8 / len(kinds)
    for place, kind in enumerate(kinds):
        at = [number + (place - (len(kinds) - 1) / 2) * width for number in range(len(factors))]
        missed = [sum(one.slo_missed for one in _of(found, kind, factor)) for factor in factors]
        axes.bar(at, missed, width=width * 0.9, color=_COLOURS[kind])
        for where, number in zip(at, missed, strict=True):
            if number:
                axes.annotate(str(number), (where, number), (0, 2), textcoords="offset points", ha="center", color=INK)
    jobs = sum(one.jobs for one in _of(found, kinds[0], factors[0]))
    _label(axes, factors, f"Promises broken, of {jobs}")
    axes.locator_params("y", integer=True)
    axes.set_ylim(0, max(axes.get_ylim()[1] * 1.1, 3))


def _times(axes: "Axes", found: Sequence[Reacted], kinds: Sequence[str]) -> None:
    only_grid(axes, "y")
    for place, kind in enumerate(kinds):
        some = [one for one in found if one.reaction == kind]
        middle, most = fmean(one.plan_p50_ms for one in some), max(one.plan_p99_ms for one in some)
        axes.plot((place, place), (middle, most), color=_COLOURS[kind], linewidth=5, alpha=0.4)
        axes.plot(place, middle, color=_COLOURS[kind], marker=_MARKS[kind], markersize=8)
        axes.annotate(f"{middle:,.0f}", (place, middle), (9, 0), textcoords="offset points", va="center", color=INK)
        axes.annotate(f"{most:,.0f}", (place, most), (9, 0), textcoords="offset points", va="center", color=MUTED)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    axes.yaxis.set_minor_formatter(lambda value, _: "")
    axes.set_xticks([])
    axes.set_xlim(-0.4, len(kinds) - 0.2)
    axes.set_title("Milliseconds of a plan")
    axes.set_xlabel("median to largest 99th percentile")


def _label(axes: "Axes", factors: Sequence[float], title: str) -> None:
    only_grid(axes, "y")
    axes.set_xticks(range(len(factors)), [f"{factor:g}x" for factor in factors])
    axes.set_xlabel("rollouts grow over a job's life to")
    axes.set_title(title)


def _factors(found: Sequence[Reacted]) -> list[float]:
    return sorted({one.drift for one in found if one.drift is not None})


def _of(found: Sequence[Reacted], kind: str, factor: float) -> list[Reacted]:
    return [one for one in found if one.reaction == kind and one.drift == factor]


def _mean(found: Sequence[Reacted], kind: str, factor: float) -> float:
    return fmean(one.usd for one in _of(found, kind, factor))
