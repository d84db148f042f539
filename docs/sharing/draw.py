"""The picture of ``docs/sharing.md``: the same jobs on the same fleet, without sharing and with it.

``python docs/sharing/draw.py [FOLDER]`` writes the SVG beside this file, or as SVG and PNG into a folder, and prints
the figures that the page quotes. The live scheduler decides, and the simulated world runs what it decided.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from weaverl.domain.sharing import Preemption, Sharing
from weaverl.reports.palette import LIGHT, text_on
from weaverl.reports.plots.canvas import INK, MUTED, only_grid, save_picture, swatch
from weaverl.simulation.costs import Costs
from weaverl.simulation.simulate import Finished, Setup, simulate_heard
from weaverl.simulation.timeline import Recorder
from weaverl.simulation.traces.records import Trace, TraceJob

HOUR_US, HOUR = 3600e6, 3600.0
NUM_NODES = 4
UNTIL = 10.0
URGENT, URGENT_AT = "high", 5.0
COLOURS = {"research": LIGHT.jobs[0], "product": LIGHT.jobs[1]}
SHARING = Sharing(
    tenants={"research": 3.0, "product": 1.0},
    half_life_seconds=24 * HOUR,
    preemption=Preemption(least_stay_seconds=1800),
)


class Block(NamedTuple):
    """A job on a node, in hours."""

    node: str
    job: str
    begin: float
    end: float


def jobs() -> Trace:
    """Thirty jobs of each tenant at once, which share no node, and later one of priority 1."""
    plain = [
        _job(f"{tenant[0]}{number}", tenant, 0.01 * number, iterations=9 + number % 4)
        for number in range(30)
        for tenant in ("research", "product")
    ]
    return Trace(name="shared", jobs=(*plain, _job(URGENT, "product", URGENT_AT, iterations=8, priority=1)))


def _job(name: str, tenant: str, hours: float, iterations: int, priority: int = 0) -> TraceJob:
    return TraceJob(
        job_id=name,
        tenant=tenant,
        arrival_seconds=hours * HOUR,
        iterations=iterations,
        model_billions=7.0,
        max_tokens=8192,
        turns=1,
        rollout_gpus=8,
        training_gpus=8,
        rollout_max_seconds=480.0,
        rollout_mean_seconds=300.0,
        rollout_cv=0.1,
        rollout_p80=0.5,
        training_seconds=200.0,
        sync_gib=14.0,
        rollout_host_gib=900.0,
        training_host_gib=900.0,
        slo=2.0,
        priority=priority,
    )


def run(sharing: Sharing | None) -> tuple[Finished, list[Block]]:
    """The run, and who had the training nodes when."""
    recorder = Recorder()
    setup = Setup(costs=Costs(max_nodes_per_pool=NUM_NODES), sharing=sharing, timings=False)
    finished = simulate_heard(jobs(), setup, (), recorder=recorder)
    blocks = []
    for name, job in recorder.jobs.items():
        times = [one for one in recorder.intervals() if one.job == name]
        for attempt, pin in job.pins.items():
            own = [one for one in times if one.attempt == attempt]
            begin, end = min(one.requested_at for one in own), max(one.released_at for one in own)
            blocks.append(Block(pin.training[0].node, name, begin / HOUR_US, end / HOUR_US))
    return finished, blocks


def draw(figure: Figure) -> list[str]:
    """Both runs, one above the other; what the page quotes."""
    told = []
    panels = figure.subplots(2, 1, sharex=True)
    for axes, sharing, title in zip(
        panels,
        (None, SHARING),
        ("Without sharing: by priority, then arrival", "With it: research 3, product 1"),
        strict=True,
    ):
        finished, blocks = run(sharing)
        _draw_run(axes, blocks, title)
        hours = finished.outcome.classes["1"].queued_hours.max
        held = {tenant: _held(blocks, tenant) for tenant in COLOURS}
        told.append(
            f"{title}: node hours in the first {UNTIL:.0f} h "
            + ", ".join(f"{tenant} {value:.1f}" for tenant, value in held.items())
            + f"; {URGENT} waited {60 * hours:.0f} min; {finished.outcome.preemptions} paused"
        )
    panels[-1].set_xlabel("hours")
    panels[0].legend(
        handles=[swatch(colour, tenant) for tenant, colour in COLOURS.items()],
        loc="lower right",
        bbox_to_anchor=(1.0, 1.0),
        ncols=2,
        frameon=False,
    )
    return told


def _draw_run(axes: Axes, blocks: list[Block], title: str) -> None:
    nodes = sorted({block.node for block in blocks})
    names = [block.job for block in blocks]
    for block in blocks:
        if block.begin >= UNTIL:
            continue
        tenant = "research" if block.job.startswith("r") else "product"
        place, width = len(nodes) - nodes.index(block.node), min(block.end, UNTIL) - block.begin
        is_high, was_paused = block.job == URGENT, names.count(block.job) > 1
        axes.barh(
            place,
            width,
            left=block.begin,
            height=0.82,
            color=COLOURS[tenant],
            edgecolor=INK if is_high else LIGHT.card,
            linewidth=2.2 if is_high else 1.0,
            zorder=3 if is_high else 2,
            hatch="///" if was_paused else None,
        )
        text = {"color": text_on(COLOURS[tenant]), "ha": "center", "va": "center", "fontsize": 8}
        if is_high or was_paused:
            text |= {"fontweight": "bold"}
        if was_paused:
            text |= {"bbox": {"facecolor": COLOURS[tenant], "edgecolor": "none", "pad": 1.5}}
        if width > 0.35:
            axes.text(block.begin + width / 2, place, block.job, **text)
    axes.axvline(URGENT_AT, color=INK, linewidth=1.0, linestyle=":")
    axes.text(URGENT_AT + 0.06, len(nodes) + 0.52, f"{URGENT} arrives", color=MUTED, fontsize=8, va="bottom")
    axes.set_title(title, loc="left", fontsize=10)
    axes.set_yticks(range(1, len(nodes) + 1), [f"node {len(nodes) - number}" for number in range(len(nodes))])
    axes.set_xlim(0, UNTIL)
    axes.set_ylim(0.5, len(nodes) + 0.5)
    only_grid(axes, "x")


def _held(blocks: list[Block], tenant: str) -> float:
    """Hours of nodes of a tenant up to the end of the picture."""
    own = [block for block in blocks if block.job.startswith("r") == (tenant == "research")]
    return sum(max(min(block.end, UNTIL) - block.begin, 0.0) for block in own)


def main() -> None:
    """Write the picture, and print what the page quotes."""
    told: list[str] = []
    with TemporaryDirectory() as aside:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else aside)
        picture = save_picture(
            folder,
            "fleet",
            "The same jobs without and with sharing",
            (9.0, 4.6),
            lambda figure: told.extend(draw(figure)),
        )
        if len(sys.argv) == 1:
            Path(__file__).with_name("fleet.svg").write_text(picture.svg.read_text())
    print("\n".join(told))


if __name__ == "__main__":
    main()
