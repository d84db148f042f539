"""Ours beside what was published: all ratios at a glance, mixes of jobs, drift."""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING

from weaverl.reports.plots.canvas import INK, MUTED, bar_label, only_grid, pale
from weaverl.reports.plots.names import policy_colour, policy_name
from weaverl.simulation.reproduction.records import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OURS = "weave-paper"
_TIMES = (1, 1.5, 2, 3, 4, 6, 8, 12, 16)


def overview(figure: "Figure", rows: Sequence[Row]) -> None:
    """Every published ratio as a span, ours as dots on the same line."""
    axes = figure.add_subplot()
    only_grid(axes, "x")
    shown = [row for row in rows if row.low is not None and row.high is not None and row.values]
    for place, row in enumerate(shown):
        assert row.low is not None and row.high is not None
        label = "published" if place == 0 else None
        axes.plot(
            (row.low, row.high),
            (place, place),
            color=pale(MUTED, 0.45),
            linewidth=7,
            solid_capstyle="butt",
            marker="|",
            markersize=12,
            markeredgewidth=2.5,
            label=label,
        )
        dots = list(row.values.values())
        axes.scatter(
            dots, [place] * len(dots), s=34, color=policy_colour(OURS), zorder=3, label="ours" if place == 0 else None
        )
    axes.set_yticks(range(len(shown)), [row.what.partition(";")[0] for row in shown], color=INK)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.minorticks_off()
    axes.set_xticks(_TIMES, [f"{times:g}x" for times in _TIMES])
    axes.spines["left"].set_visible(False)
    axes.set_title("Published figures and ours")
    figure.legend(loc="outside lower center", ncols=2)


def grouped_bars(
    figure: "Figure",
    title: str,
    axis: str,
    groups: Mapping[str, Mapping[str, float]],
    published: Mapping[str, Mapping[str, tuple[float, float]]],
) -> None:
    """Bars by group and policy from 1 up; a published span lies over its bar."""
    axes = figure.add_subplot()
    only_grid(axes, "y")
    policies = list(dict.fromkeys(policy for bars in groups.values() for policy in bars))
    width = 0.8 / len(policies)
    for place, (group, bars) in enumerate(groups.items()):
        for policy, value in bars.items():
            at = place + (policies.index(policy) - (len(policies) - 1) / 2) * width
            label = policy_name(policy) if place == 0 else None
            axes.bar(at, value, width=width * 0.9, color=policy_colour(policy), label=label)
            span = published.get(group, {}).get(policy)
            if span is not None:
                axes.plot((at, at), span, color=INK, linewidth=1.4, marker="_", markersize=11, markeredgewidth=1.8)
            bar_label(axes, f"{value:.2f}x" if isfinite(value) else "-", at, policy_colour(policy))
    axes.plot([], [], color=INK, marker="_", markersize=11, markeredgewidth=1.8, linewidth=1.4, label="published")
    axes.axhline(1.0, color=MUTED, linewidth=1)
    axes.set_xticks(range(len(groups)), list(groups), color=INK)
    axes.set_ylabel(axis)
    axes.set_title(title)
    axes.margins(y=0.1)
    figure.legend(loc="outside lower center", ncols=4)
