"""An excerpt of a woven group: who holds which node, a few rounds of it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from weaverl.domain.cluster import PoolKind
from weaverl.domain.jobs import PhaseKind
from weaverl.domain.timeline import Interval
from weaverl.reports.palette import LIGHT, text_on
from weaverl.reports.plots.canvas import INK, MUTED, only_grid, pale

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MINUTE = 60e6
_NARROW_MINUTES = 1.2
"""A bar shorter than that has no room for its name."""

Lane = tuple[PoolKind, str]
"""A pool and one of its nodes."""


def gantt_excerpt(
    figure: "Figure", title: str, jobs: Sequence[str], intervals: Sequence[Interval], start_us: int, minutes: float
) -> None:
    """Phases by node from ``start_us`` on: bodies in the job's colour, restores before them pale."""
    axes = figure.add_subplot()
    only_grid(axes, "x")
    end_us = start_us + minutes * _MINUTE
    shown = [one for one in intervals if one.slots and one.granted_at < end_us and one.released_at > start_us]
    lanes = sorted({lane for one in shown for lane in _lanes(one)})
    for interval in shown:
        for lane in _lanes(interval):
            _bar(axes, interval, lanes.index(lane), LIGHT.job(list(jobs).index(interval.job)), start_us)
    axes.set_yticks(range(len(lanes)), [f"{pool.value} node {node}" for pool, node in lanes], color=INK)
    axes.invert_yaxis()
    axes.set_xlim(0, minutes)
    axes.set_xlabel("minutes")
    axes.set_title(title)
    axes.spines["left"].set_visible(False)
    _legend(figure, jobs)


def _lanes(interval: Interval) -> list[Lane]:
    pool = PoolKind.ROLLOUT if interval.phase is PhaseKind.ROLLOUT else PoolKind.TRAINING
    return [(pool, node) for node in dict.fromkeys(slot.node for slot in interval.slots)]


def _bar(axes: "Axes", interval: Interval, lane: int, colour: str, start_us: int) -> None:
    granted, begun, ended, left = (
        (at - start_us) / _MINUTE
        for at in (interval.granted_at, interval.started_at, interval.ended_at, interval.released_at)
    )
    axes.barh(lane, left - granted, left=granted, height=0.7, color=pale(colour), linewidth=0)
    axes.barh(lane, ended - begun, left=begun, height=0.7, color=colour, edgecolor="white", linewidth=0.8)
    middle = (begun + ended) / 2
    if ended - begun > _NARROW_MINUTES:
        axes.text(
            middle,
            lane,
            f"{interval.job} {interval.iteration}",
            ha="center",
            va="center",
            color=text_on(colour),
            fontsize=8,
            clip_on=True,
        )


def _legend(figure: "Figure", jobs: Sequence[str]) -> None:
    from matplotlib.patches import Patch

    named = [Patch(color=LIGHT.job(place), label=job) for place, job in enumerate(jobs)]
    figure.legend(
        handles=[*named, Patch(color=pale(MUTED), label="switch")], loc="outside lower center", ncols=len(named) + 1
    )
