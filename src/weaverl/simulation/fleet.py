"""A fixed fleet as large as a share of the nodes that `solo` would have at its peak if there were no limit."""

from math import ceil

import msgspec

from weaverl.simulation.costs import Costs
from weaverl.simulation.outcome import Outcome
from weaverl.simulation.simulate import Setup


def without_limits(setup: Setup) -> Setup:
    """The run of `solo` whose peaks a fleet is a share of."""
    costs = msgspec.structs.replace(
        setup.costs, max_nodes_per_pool=None, max_rollout_nodes=None, max_training_nodes=None
    )
    return msgspec.structs.replace(setup, policy="solo", objective="dollars", colocates=False, costs=costs)


def limited(costs: Costs, solo: Outcome, share: float) -> Costs:
    """Costs with each pool limited to a share of the run's peak there, rounded up to whole nodes."""
    rollout, training = (
        max(ceil(round(share * num_gpus / costs.gpus_per_node, 9)), 1)
        for num_gpus in msgspec.structs.astuple(solo.peak_gpus)
    )
    return msgspec.structs.replace(costs, max_rollout_nodes=rollout, max_training_nodes=training)
