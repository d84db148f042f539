"""What each policy pays: an hour on average, at peak, and over time."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from weaverl.reports.palette import text_on
from weaverl.reports.plots.canvas import INK, MUTED, only_grid, pale, swatch
from weaverl.reports.plots.names import policy_colour, policy_name
from weaverl.simulation.reproduction.records import CostStep, Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

Results = Mapping[str, Sequence[Result]]
"""Results by policy, cheapest last; the runs of a policy are on different traces."""


def cost_bars(figure: "Figure", runs: Results, published: Mapping[str, float]) -> None:
    """Dollars an hour of each policy: the mean as a bar, a dot a trace, what was published as a mark."""
    axes = figure.add_subplot()
    only_grid(axes, "x")
    for place, (policy, some) in enumerate(runs.items()):
        colour, mean = policy_colour(policy), fmean(run.outcome.usd_per_hour for run in some)
        axes.barh(place, mean, height=0.62, color=colour)
        dots = [run.outcome.usd_per_hour for run in some]
        axes.scatter(dots, [place] * len(dots), s=16, color="white", edgecolor=INK, linewidth=0.7, zorder=3)
        edge = max(dots)
        if policy in published:
            _published_mark(axes, published[policy], place)
            edge = max(edge, published[policy])
        said = f" (published {published[policy]:,.0f})" if policy in published else ""
        axes.annotate(f"${mean:,.0f}{said}", (edge, place), (9, 0), textcoords="offset points", va="center", color=INK)
    _published_mark(axes, None, 0)
    axes.scatter([], [], s=16, color="white", edgecolor=INK, linewidth=0.7, label="ours, each trace")
    _policies_down(axes, list(runs))
    axes.set_xlim(0, axes.get_xlim()[1] * 1.2)
    _thousands(axes.xaxis)
    axes.set_xlabel("dollars an hour, first admission to last end")
    axes.set_title("Two-week replay, dollars an hour")
    figure.legend(loc="outside lower center", ncols=2)


def peak_bars(figure: "Figure", runs: Results, published: Mapping[str, tuple[int, int]]) -> None:
    """GPUs at peak, pool by pool, with what was published as a mark."""
    pools = figure.subplots(1, 2, sharey=True, sharex=True)
    for axes, pool, title in zip(
        pools, (0, 1), ("Rollout GPUs (H20) at peak", "Training GPUs (H800) at peak"), strict=True
    ):
        only_grid(axes, "x")
        for place, (policy, some) in enumerate(runs.items()):
            if policy == "colocated" and pool == 0:
                axes.annotate("none", (0, place), (5, 0), textcoords="offset points", va="center", color=MUTED)
                continue
            peaks = [run.outcome.peak_gpus.training if pool else run.outcome.peak_gpus.rollout for run in some]
            axes.barh(place, fmean(peaks), height=0.62, color=policy_colour(policy))
            if policy in published:
                _published_mark(axes, published[policy][pool], place)
            axes.annotate(
                f"{fmean(peaks):.0f}",
                (0, place),
                (6, 0),
                textcoords="offset points",
                va="center",
                weight="bold",
                color=text_on(policy_colour(policy)),
            )
        axes.set_title(title)
        axes.set_xlabel("GPUs, mean over traces")
    _policies_down(pools[0], list(runs))
    pools[0].set_xlim(0, pools[0].get_xlim()[1] * 1.12)
    _published_mark(pools[0], None, 0)
    figure.legend(loc="outside lower center")


def cost_over_time(figure: "Figure", runs: Sequence[Result]) -> None:
    """Dollars an hour at each moment, pools stacked, a row a policy."""
    rows = figure.subplots(len(runs), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    top = max((step.rollout_usd_per_hour + step.training_usd_per_hour for run in runs for step in run.steps), default=1)
    for axes, run in zip(rows, runs, strict=True):
        colour = policy_colour(run.outcome.policy)
        days, rollout, training = _staircase(run.steps)
        axes.stackplot(days, training, rollout, step="post", colors=(colour, pale(colour)), linewidth=0)
        axes.axhline(run.outcome.usd_per_hour, color=INK, linewidth=1, linestyle=(0, (4, 3)))
        paid = f"${run.outcome.usd_per_hour:,.0f} an hour, ${run.outcome.usd:,.0f} in all"
        axes.set_title(f"{policy_name(run.outcome.policy)}: {paid}")
        axes.set_ylabel("$ an hour")
        axes.margins(x=0)
        _thousands(axes.yaxis)
    rows[0].set_ylim(0, top * 1.08)
    rows[-1].set_xlabel("days since the first admission")
    _pool_legend(figure)


def bubble_bars(figure: "Figure", runs: Results) -> None:
    """Share of provisioned device time in which nothing ran, pool by pool."""
    axes = figure.add_subplot()
    only_grid(axes, "y")
    width = 0.8 / len(runs)
    for place, (policy, some) in enumerate(runs.items()):
        for pool, values in enumerate(
            ([run.outcome.bubbles.rollout for run in some], [run.outcome.bubbles.training for run in some])
        ):
            if policy == "colocated" and pool == 0:
                continue  # it has no rollout pool
            at, mean = pool + (place - (len(runs) - 1) / 2) * width, fmean(values) * 100
            label = policy_name(policy) if pool == 1 else None
            axes.bar(at, mean, width=width * 0.9, color=policy_colour(policy), label=label)
            axes.annotate(f"{mean:.0f} %", (at, mean), (0, 3), textcoords="offset points", ha="center", color=INK)
    axes.set_xticks((0, 1), ("rollout pool", "training pool"), color=INK)
    axes.set_ylim(0, 100)
    axes.set_ylabel("idle share of what was paid, %")
    axes.set_title("Bubbles")
    figure.legend(loc="outside lower center", ncols=4)


def _policies_down(axes: "Axes", policies: list[str]) -> None:
    axes.set_yticks(range(len(policies)), [policy_name(policy) for policy in policies], color=INK)
    axes.invert_yaxis()
    axes.spines["left"].set_visible(False)


def _thousands(axis: "Axis") -> None:
    axis.set_major_formatter(lambda value, _: f"{value:,.0f}")


def _published_mark(axes: "Axes", value: float | None, place: float) -> None:
    """A bar across; without a value only its line in the legend."""
    axes.plot(
        [] if value is None else [value, value],
        [] if value is None else [place - 0.4, place + 0.4],
        color=INK,
        linewidth=2.4,
        solid_capstyle="butt",
        label="published" if value is None else None,
    )


def _staircase(steps: Sequence[CostStep]) -> tuple[list[float], list[float], list[float]]:
    return (
        [step.hours / 24 for step in steps],
        [step.rollout_usd_per_hour for step in steps],
        [step.training_usd_per_hour for step in steps],
    )


def _pool_legend(figure: "Figure") -> None:
    pools = [swatch(pale(MUTED), "rollout pool"), swatch(MUTED, "training pool")]
    figure.legend(handles=pools, loc="outside lower center", ncols=2)
