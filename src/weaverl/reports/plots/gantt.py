"""An excerpt of a woven group: who holds which node, a few rounds of it."""

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import msgspec

from weaverl.domain.cluster import PoolKind
from weaverl.domain.jobs import PhaseKind
from weaverl.domain.timeline import Interval
from weaverl.reports.palette import LIGHT, text_on
from weaverl.reports.plots.canvas import INK, MUTED, only_grid, pale, swatch
from weaverl.simulation.reproduction.records import Excerpt

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MINUTE = 60e6
_NARROW_MINUTES = 1.5
"""A bar shorter than that has no room for its name."""
_HEIGHT = 0.78
"""Of a lane, of the room that it has."""

Lane = tuple[PoolKind, str]
"""A pool and one of its nodes."""


class _Bar(msgspec.Struct, frozen=True):
    """Devices next to each other on one node: where they lie in its lane, parts of 1 from the top."""

    lane: Lane
    top: float
    height: float


def gantt_excerpt(figure: "Figure", excerpt: Excerpt) -> None:
    """Phases by node: bodies in the job's colour, restores before them pale, a node's devices from top to bottom."""
    axes = figure.add_subplot()
    only_grid(axes, "x")
    end_us = excerpt.start_us + excerpt.minutes * _MINUTE
    shown = [one for one in excerpt.intervals if one.slots and one.granted_at < end_us]
    shown = [one for one in shown if one.released_at > excerpt.start_us]
    devices = 1 + max((slot.device for one in shown for slot in one.slots), default=0)
    lanes = sorted({bar.lane for one in shown for bar in _bars(one, devices)})
    for interval in shown:
        colour = LIGHT.job(excerpt.jobs.index(interval.job))
        for bar in _bars(interval, devices):
            _draw(axes, interval, lanes.index(bar.lane), bar, colour, excerpt)
    axes.set_yticks(range(len(lanes)), [f"{pool.value}, {node}" for pool, node in lanes], color=INK)
    axes.set_ylim(len(lanes) - 0.5, -0.5)
    axes.set_xlim(0, excerpt.minutes)
    axes.set_xlabel("minutes")
    axes.set_title(excerpt.title)
    axes.spines["left"].set_visible(False)
    _legend(figure, excerpt.jobs)


def _bars(interval: Interval, devices: int) -> list[_Bar]:
    pool = PoolKind.ROLLOUT if interval.phase is PhaseKind.ROLLOUT else PoolKind.TRAINING
    bars: list[_Bar] = []
    by_node: dict[str, list[int]] = {}
    for slot in interval.slots:
        by_node.setdefault(slot.node, []).append(slot.device)
    for node, held in by_node.items():
        for _, run in groupby(enumerate(sorted(held)), lambda pair: pair[1] - pair[0]):
            places = [device for _, device in run]
            bars.append(_Bar((pool, node), places[0] / devices, len(places) / devices))
    return bars


def _draw(axes: "Axes", interval: Interval, lane: int, bar: _Bar, colour: str, excerpt: Excerpt) -> None:
    granted, begun, ended, left = (
        (at - excerpt.start_us) / _MINUTE
        for at in (interval.granted_at, interval.started_at, interval.ended_at, interval.released_at)
    )
    middle = lane + (bar.top + bar.height / 2 - 0.5) * _HEIGHT
    height = bar.height * _HEIGHT
    axes.barh(middle, left - granted, left=granted, height=height, color=pale(colour), linewidth=0)
    axes.barh(middle, ended - begun, left=begun, height=height, color=colour, edgecolor="white", linewidth=0.6)
    first, last = max(begun, 0.0), min(ended, excerpt.minutes)
    if last - first > _NARROW_MINUTES and bar.height > 0.5:
        axes.text(
            (first + last) / 2,
            middle,
            f"{interval.job} {interval.iteration}",
            ha="center",
            va="center",
            color=text_on(colour),
            fontsize=8,
        )


def _legend(figure: "Figure", jobs: Sequence[str]) -> None:
    named = [swatch(LIGHT.job(place), job) for place, job in enumerate(jobs)]
    figure.legend(handles=[*named, swatch(pale(MUTED), "switch")], loc="outside lower center", ncols=len(named) + 1)
