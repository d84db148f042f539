"""What single mechanisms are worth: warm starts, tail migration, two-level sync."""

from msgspec.structs import replace

from weaverl.simulation.costs import Costs
from weaverl.simulation.reproduction import published
from weaverl.simulation.reproduction.cases import switching_pair, tail_pairs
from weaverl.simulation.reproduction.records import Row, Task
from weaverl.simulation.reproduction.replay import OURS
from weaverl.simulation.reproduction.runner import Runner

STUDY = "mechanisms"
NOTE = "Small cases of our own in which one mechanism is on or off, and what a cost model says without a run."
INSIDE_GBPS = 400.0
"""Bandwidth inside a cluster, published."""


def cold_switches(runner: Runner, iterations: int) -> Row:
    """Two jobs that take turns, with warm starts and with cold ones."""
    warm = Costs()
    cold = replace(
        warm, rollout_switch_seconds=warm.cold_start_seconds, training_switch_seconds=warm.cold_start_seconds
    )
    pair = switching_pair(iterations)
    results = runner.results([Task(study=STUDY, trace=pair, policy=OURS, costs=costs) for costs in (warm, cold)])
    lost = 1 - results[0].outcome.hours / results[1].outcome.hours
    return Row(
        key="cold_switches",
        section=STUDY,
        what="Training throughput lost to cold starts at each switch",
        published=f"{published.COLD_SWITCH_LOSS:.0%}".replace("%", " %"),
        ours=f"{lost:.0%}".replace("%", " %"),
        values={"lost": lost},
        differs="Two 32B jobs with phases of 140 to 150 s; the source does not give its phase times, on which the loss "
        "depends. The cold start is a parameter (80 to 135.8 s by model size); the loss is simulated.",
    )


def tail_migration(runner: Runner, iterations: int) -> Row:
    """Pairs on one rollout node, with tails moved and not: hours without over hours with."""
    pairs = tail_pairs(iterations)
    tasks = [
        Task(study=STUDY, trace=pair, policy=OURS, costs=Costs(tail_migration=moved))
        for pair in pairs
        for moved in (False, True)
    ]
    results = runner.results(tasks)
    gains = {
        without.outcome.trace: without.outcome.hours / moved.outcome.hours
        for without, moved in zip(results[::2], results[1::2], strict=True)
    }
    low, high = published.TAIL_MIGRATION
    return Row(
        key="tail_migration",
        section=STUDY,
        what="Long-tail migration, end-to-end throughput",
        published=f"{low:.2f}x to {high:.2f}x",
        ours=f"{min(gains.values()):.2f}x to {max(gains.values()):.2f}x",
        values=gains,
        differs="Pairs of jobs of ours on one rollout node that is their bottleneck, 80 % of responses done at 0.4 "
        "to 0.8 of the rollout; the cost of a move is a parameter (a quarter of the devices, 1.05 x as long, 1 s).",
        low=low,
        high=high,
    )


def two_level_sync(nodes: int, costs: Costs, *, pipelined: bool) -> float:
    """Time of flat over two-level sync between ``nodes`` training and as many rollout nodes, by bytes on each link.

    Flat: each rollout rank takes a full copy over the slow link. Two-level: one copy in all crosses it, then an
    all-gather inside the rollout pool, behind the crossing if pipelined. Each pair of nodes has the slow link's rate.
    """
    ranks = nodes * costs.gpus_per_node
    slow = costs.link_gbps * nodes
    gather = 0.0 if pipelined else (ranks - 1) / ranks / INSIDE_GBPS
    return (ranks / slow) / (1 / slow + gather)


def sync_rows() -> tuple[Row, ...]:
    """Ratios by the cost model; the runtime's own measurement is another command's."""
    return tuple(
        _sync_row(nodes, spread) for nodes, spread in ((1, published.TWO_LEVEL_8), (2, published.TWO_LEVEL_16))
    )


def _sync_row(nodes: int, spread: tuple[float, float]) -> Row:
    gpus = nodes * Costs().gpus_per_node
    values = {
        name: two_level_sync(nodes, Costs(), pipelined=pipelined)
        for name, pipelined in (("in sequence", False), ("pipelined", True))
    }
    differs = (
        "By the cost model alone (bytes over the 20 Gbps and 400 Gbps links), not measured: the runtime's two-level "
        "sync is not built yet."
    )
    if nodes > 1:
        differs += " The published ratio is far lower here; what its flat baseline sends over two nodes is not said."
    return Row(
        key=f"two_level_sync_{gpus}",
        section=STUDY,
        what=f"Two-level sync over flat, {gpus} to {gpus} GPUs",
        published=f"{spread[0]:.2f}x to {spread[1]:.2f}x",
        ours=f"{values['in sequence']:.1f}x in sequence, {values['pipelined']:.1f}x pipelined",
        values=values,
        differs=differs,
        low=spread[0],
        high=spread[1],
    )


def start_row() -> Row:
    """Starts are what the simulator is given; there is nothing of ours to print beside them."""
    return Row(
        key="starts",
        section=STUDY,
        what="Cold start worst; warm start rollout, training (7B to 70B)",
        published="135.8 s; 0.9 to 1.9 s, 4.1 to 5.9 s; up to 71.5x",
        ours="not measured here",
        differs="Parameters of the simulator, taken from the source: to print them as ours would be to copy them. The "
        "runtime's own starts are measured by the demo and by the residency benchmark, on the hardware at hand.",
    )
