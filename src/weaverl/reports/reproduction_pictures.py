"""The pictures of a reproduction, each from the figures that it shows."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from weaverl.reports.plots import comparisons, costs
from weaverl.reports.plots.canvas import Picture, save_picture
from weaverl.reports.plots.decisions import decision_figure
from weaverl.reports.plots.drift import drift_figure
from weaverl.reports.plots.gantt import gantt_excerpt
from weaverl.reports.plots.sensitivity import sensitivity_figure
from weaverl.reports.plots.slowdowns import slowdown_figure
from weaverl.simulation.reproduction import published
from weaverl.simulation.reproduction.records import Reproduction

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Paint = Callable[["Figure"], None]


class Pictures(msgspec.Struct, frozen=True, kw_only=True):
    """All pictures, by the place where the report shows them."""

    overview: Picture
    sensitivity: Picture
    gantt: Picture
    of_section: dict[str, tuple[Picture, ...]]


def draw_pictures(found: Reproduction, folder: Path) -> Pictures:
    """Draw them all into a folder."""

    def save(name: str, title: str, size: tuple[float, float], paint: Paint) -> Picture:
        return save_picture(folder, name, title, size, paint)

    excerpt = found.excerpt
    return Pictures(
        overview=save(
            "overview",
            "Published figures and ours",
            (9.2, 5.0),
            lambda figure: comparisons.overview(figure, found.rows),
        ),
        sensitivity=save(
            "sensitivity", "Where weaving pays", (11, 10.5), lambda figure: sensitivity_figure(figure, found.sweeps)
        ),
        gantt=save(
            "gantt",
            excerpt.title,
            (10, 3.4),
            lambda figure: gantt_excerpt(figure, excerpt),
        ),
        of_section={
            "two-week replay": _replay(found, save),
            "sharing": (
                save(
                    "mixes", "Throughput at equal cost in three mixes", (9.2, 4), lambda figure: _mixes(figure, found)
                ),
            ),
            "scheduler": (
                save(
                    "decision_time",
                    "Time of one decision against running jobs",
                    (7.5, 4.2),
                    lambda figure: decision_figure(
                        figure, found.decisions, (published.DECISION_JOBS, published.DECISION_MS)
                    ),
                ),
                save(
                    "drift",
                    "Cost and SLOs under drift",
                    (9.2, 3.8),
                    lambda figure: drift_figure(figure, found.drifts, published.DRIFT_OVER_IDEAL, published.DRIFT_SLO),
                ),
            ),
        },
    )


def _replay(found: Reproduction, save: Callable[..., Picture]) -> tuple[Picture, ...]:
    first = [results[0] for results in found.replay.values()]
    without_solo = [one for one in first if one.outcome.policy not in ("solo",)]
    return (
        save(
            "cost",
            "Dollars an hour by policy",
            (8.6, 3.4),
            lambda figure: costs.cost_bars(figure, found.replay, published.USD_PER_HOUR),
        ),
        save(
            "cost_over_time",
            "Dollars an hour over time, by policy and pool",
            (9.2, 1.7 * len(first) + 0.9),
            lambda figure: costs.cost_over_time(figure, first),
        ),
        save(
            "peak_gpus",
            "GPUs at peak by policy",
            (9.2, 3.2),
            lambda figure: costs.peak_bars(figure, found.replay, published.PEAK_GPUS),
        ),
        save(
            "bubbles", "Bubbles by policy and pool", (7.5, 3.8), lambda figure: costs.bubble_bars(figure, found.replay)
        ),
        save(
            "slowdowns",
            "Slowdowns of all jobs, and against their SLOs",
            (9.6, 4.2),
            lambda figure: slowdown_figure(figure, without_solo),
        ),
    )


def _mixes(figure: "Figure", found: Reproduction) -> None:
    over_solo = dict(zip(found.mixes, published.MIX_OVER_SOLO, strict=True))
    comparisons.grouped_bars(
        figure,
        "Throughput of WEAVE at equal cost over each",
        "times",
        found.mixes,
        {mix: {"solo": (over_solo[mix], over_solo[mix]), **published.MIX_OVER} for mix in found.mixes},
    )
