"""Reward curves as SVG: a job's run alone as a wide pale line, its woven run as a thin one on top."""

import math
from collections.abc import Sequence

from weaverl.reports import palette
from weaverl.reports.axis import ticks
from weaverl.reports.markup import Markup, element, join

WIDTH = 480.0
HEIGHT = 200.0
LEFT = 46.0
RIGHT = 12.0
TOP = 12.0
BOTTOM = 34.0


def reward_curves(
    name: str, place: int, solo: Sequence[float], woven: Sequence[float], limits: tuple[float, float] | None = None
) -> Markup:
    """Curves of one job by iteration; a value that is not finite leaves a gap.

    ``place`` gives the colour, ``limits`` the lowest and highest reward on the axis, by default the curves' own.
    """
    low, high = limits or limits_of((*solo, *woven))
    last = max(len(solo), len(woven), 2) - 1
    colour = place % palette.num_colours()

    def at(iteration: float, value: float) -> tuple[float, float]:
        across = LEFT + iteration / last * (WIDTH - LEFT - RIGHT)
        return across, TOP + (high - value) / (high - low) * (HEIGHT - TOP - BOTTOM)

    parts = [_row(at(0, mark)[1], f"{mark:g}") for mark in ticks(low, high, 6)]
    parts += [_column(at(mark, low)[0], f"{mark:g}") for mark in ticks(0, last, 8) if mark == int(mark)]
    parts.append(element("text", "iteration", class_="muted", x=WIDTH - RIGHT, y=HEIGHT - 3, text_anchor="end"))
    for values, style, radius in ((solo, f"w{colour} wide", 5.0), (woven, f"l{colour} thin", 2.2)):
        points = [at(iteration, value) if math.isfinite(value) else None for iteration, value in enumerate(values)]
        parts += _line(points, style, radius)
    return element(
        "svg", *parts, class_="curves", viewBox=f"0 0 {WIDTH:g} {HEIGHT:g}", role="img", aria_label=f"reward of {name}"
    )


def missing(solo: Sequence[float], woven: Sequence[float]) -> int:
    """How many values cannot be drawn."""
    return sum(not math.isfinite(value) for value in (*solo, *woven))


def limits_of(rewards: Sequence[float]) -> tuple[float, float]:
    """The lowest and highest reward of an axis that shows all that are finite."""
    finite = [reward for reward in rewards if math.isfinite(reward)]
    low, high = min(finite, default=0.0), max(finite, default=1.0)
    pad = (high - low) * 0.08 or max(abs(low) * 0.1, 0.5)
    return low - pad, high + pad


def _row(y: float, label: str) -> Markup:
    return join(
        (
            element("line", class_="grid", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y),
            element("text", label, class_="muted", x=LEFT - 8, y=y + 4, text_anchor="end"),
        )
    )


def _column(x: float, label: str) -> Markup:
    return element("text", label, class_="muted", x=x, y=HEIGHT - BOTTOM + 17, text_anchor="middle")


def _line(points: Sequence[tuple[float, float] | None], style: str, radius: float) -> list[Markup]:
    """Polylines between the gaps; a point with no neighbour is a dot."""
    stretches: list[list[tuple[float, float]]] = [[]]
    for point in points:
        if point is None:
            stretches.append([])
        else:
            stretches[-1].append(point)
    return [
        element("polyline", class_=style, fill="none", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in stretch))
        if len(stretch) > 1
        else element("circle", class_=style, cx=stretch[0][0], cy=stretch[0][1], r=radius)
        for stretch in stretches
        if stretch
    ]
