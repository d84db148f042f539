"""`--fleet SHARE`: a fixed fleet as large as a share of the nodes that `solo` would have at its peak."""

from collections.abc import Collection
from typing import TYPE_CHECKING

from weaverl.errors import UsageError

if TYPE_CHECKING:
    from weaverl.simulation.costs import Costs
    from weaverl.simulation.simulate import Setup
    from weaverl.simulation.traces.records import Trace

_LIMITS = ("max_nodes_per_pool", "max_rollout_nodes", "max_training_nodes")


def check_share(share: float | None, setup: "Setup") -> None:
    """Refuse a share that is none, and one beside other limits, before anything is run."""
    if share is None:
        return
    if not 0 < share < float("inf"):
        raise UsageError(f"--fleet is {share:g}: give a share of solo's peak above 0, such as 0.6")
    costs = setup.costs
    for name in _LIMITS:
        if (limit := getattr(costs, name)) is not None:
            raise UsageError(f"--fleet limits the nodes, and so does {name}, which is {limit}: leave one out")


def check_fleet(objectives: Collection[str], share: float | None, costs: "Costs") -> None:
    """Refuse ``throughput`` without limits: where nodes are as many as are wanted, every job gets nodes of its own."""
    limited = any(getattr(costs, name) is not None for name in _LIMITS)
    if "throughput" in objectives and share is None and not limited:
        raise UsageError(
            "--objective throughput is for a fixed fleet, and nothing limits the nodes: "
            "give --fleet SHARE or --max-nodes N, or leave the objective out"
        )


def on_fleet(trace: "Trace", setup: "Setup", share: float | None) -> "Setup":
    """The setup with the fleet's limits: `solo` is run first, without any."""
    if share is None:
        return setup
    import msgspec

    from weaverl.cli.progress import progress_bars
    from weaverl.simulation.fleet import limited, without_limits
    from weaverl.simulation.simulate import simulate

    with progress_bars() as bars:
        task = bars.add_task(f"{trace.name}, solo without limits", total=len(trace.jobs))
        solo = simulate(trace, without_limits(setup), lambda: bars.advance(task))
    return msgspec.structs.replace(setup, costs=limited(setup.costs, solo, share))
