"""A picture's paper and ink: the only place that loads matplotlib, and its style.

The same figures give the same bytes: no dates, no random ids, one font that comes with matplotlib.
"""

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from weaverl.errors import UsageError
from weaverl.reports.palette import LIGHT, mix, text_on

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, MUTED, RULE = LIGHT.ink, LIGHT.muted, LIGHT.rule
_DPI = 160

_STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "text.color": INK,
    "text.parse_math": False,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": LIGHT.lane_rule,
    "axes.titlelocation": "left",
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlepad": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": RULE,
    "grid.linewidth": 0.7,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 2.0,
    "lines.markersize": 5,
    "lines.solid_capstyle": "round",
    "figure.facecolor": LIGHT.card,
    "axes.facecolor": LIGHT.card,
    "svg.hashsalt": "weaverl",
    "svg.fonttype": "path",
}


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """A figure in a folder. ``title`` says what is seen, for who cannot see it."""

    name: str
    title: str
    svg: Path
    png: Path


def require_matplotlib() -> None:
    """Raise UsageError if pictures cannot be drawn here."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise UsageError("matplotlib is not installed, pictures need it: pip install 'weaverl[plots]'") from None


def save_picture(
    folder: Path, name: str, title: str, size: tuple[float, float], paint: Callable[["Figure"], None]
) -> Picture:
    """Paint a figure of ``size`` inches and write it as SVG and PNG.

    Raises:
        UsageError: matplotlib is not installed.
    """
    require_matplotlib()
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    picture = Picture(name=name, title=title, svg=folder / f"{name}.svg", png=folder / f"{name}.png")
    with rc_context(_STYLE):
        figure = Figure(figsize=size, layout="constrained")
        paint(figure)
        figure.savefig(picture.svg, metadata={"Date": None, "Creator": None})
        figure.savefig(picture.png, dpi=_DPI, metadata={"Software": None})
    return picture


def finite(values: Iterable[float]) -> tuple[list[float], int]:
    """The values that can be drawn, and how many cannot."""
    given = list(values)
    kept = [value for value in given if math.isfinite(value)]
    return kept, len(given) - len(kept)


def note(axes: "Axes", text: str) -> None:
    """A line of small print below the axes' label."""
    axes.annotate(
        text, (0, 0), (0, -38), xycoords="axes fraction", textcoords="offset points", fontsize=8, color=MUTED, va="top"
    )


def only_grid(axes: "Axes", axis: str) -> None:
    """Grid lines across one axis alone (``x`` or ``y``)."""
    axes.grid(False)
    axes.grid(True, axis="x" if axis == "x" else "y")


def bar_label(axes: "Axes", text: str, at: float, colour: str) -> None:
    """A bar's value inside of its foot, where no mark lies over it."""
    axes.annotate(
        text,
        (at, 0),
        (0, 6),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        ha="center",
        weight="bold",
        color=text_on(colour),
    )


def swatch(colour: str, label: str) -> "Artist":
    """A colour with its meaning, for a legend."""
    from matplotlib.patches import Patch

    return Patch(color=colour, label=label)


def pale(colour: str, share: float = 0.4) -> str:
    """A colour thinned with the paper."""
    return mix(colour, LIGHT.card, share)
