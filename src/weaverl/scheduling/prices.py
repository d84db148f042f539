"""Prices of a job's own GPUs, and of work in this cluster as it is.

A second of a job's work is worth the price of the GPUs that it would have alone. The price of work is what the nodes
cost over what the work done on them is worth: 1 with every job on nodes of its own, less where nodes are shared, more
where jobs are slowed down. It is what work is expected to cost that is left for later, when others will have come and
gone. Sums are whole micro-dollars, so that a state restored from its log has the same.
"""

from weaverl.domain.groups import Group
from weaverl.domain.jobs import JobSpec
from weaverl.scheduling.state import ClusterState, Spending

_MICRO = 1e6
_CHEAPEST = 0.25
"""No price is below that, whatever slowdowns are foreseen."""


def usd_alone(state: ClusterState, spec: JobSpec) -> float:
    """Price an hour of the GPUs that a job asks, if they were its own."""
    rollout, training = state.cluster.rollout, state.cluster.training
    return spec.rollout_gpus * rollout.usd_per_gpu_hour + spec.training_gpus * training.usd_per_gpu_hour


def fold_group(state: ClusterState, group: Group) -> None:
    """Fold a group's new shape, after the slowdowns that were foreseen for it."""
    spending = state.spending
    paid, worth = spending.groups.pop(group.name, (0, 0))
    spending.paid, spending.worth = spending.paid - paid, spending.worth - worth
    if group.members:
        paid, worth = spending.groups[group.name] = _rates(state, group)
        spending.paid, spending.worth = spending.paid + paid, spending.worth + worth


def fold_missing(state: ClusterState) -> None:
    """Fold the groups of a state that was written before prices were kept."""
    for name, group in state.groups.items():
        if name not in state.spending.groups:
            fold_group(state, group)


def price_of_work(spending: Spending) -> float:
    """Dollars that are paid for work that is worth one: from a quarter to 1, and 1 where nothing runs."""
    if not spending.worth:
        return 1.0
    return min(max(spending.paid / spending.worth, _CHEAPEST), 1.0)


def _rates(state: ClusterState, group: Group) -> tuple[int, int]:
    """Micro-dollars an hour of a group's nodes, and of the work that its members do."""
    worth = (usd_alone(state, one.spec) / (one.predicted_slowdown or 1.0) for one in state.members(group))
    return round(state.usd_per_hour(group.nodes) * _MICRO), sum(round(one * _MICRO) for one in worth)
