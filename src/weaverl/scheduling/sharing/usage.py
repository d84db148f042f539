"""Usage of tenants: dollars or GPU-hours of the nodes that their jobs hold, a shared node split among its jobs."""

from collections import Counter
from math import fsum

from weaverl.domain.groups import Group
from weaverl.domain.sharing import Measure, Sharing
from weaverl.scheduling.sharing.accounts import Account, used_by
from weaverl.scheduling.state import ClusterState

_AHEAD = 0.05
"""Nodes that are held now count as if for so much of a half-life more: who was just served is not next as well."""


def fold_group(state: ClusterState, sharing: Sharing, group: Group) -> None:
    """Fold a group's new shape: from now on its tenants pay for its nodes as they are."""
    shares = state.shares
    before = shares.groups.pop(group.name, {})
    if group.members:
        shares.groups[group.name] = _per_hour(state, sharing, group)
    for tenant in dict.fromkeys((*before, *shares.groups.get(group.name, {}))):
        account = shares.accounts.setdefault(tenant, Account(at=state.now))
        account.used, account.at = used_by(account, state.now, sharing.half_life_seconds * 1e6), state.now
        account.per_hour = fsum(one[tenant] for one in shares.groups.values() if tenant in one)


def usage_per_weight(state: ClusterState, sharing: Sharing, tenant: str) -> float:
    """What decides between tenants: decayed usage, with a little of what is held now ahead, over weight."""
    account = state.shares.accounts.get(tenant)
    if account is None:
        return 0.0
    ahead = account.per_hour * sharing.half_life_seconds / 3600.0 * _AHEAD
    return (used_by(account, state.now, sharing.half_life_seconds * 1e6) + ahead) / sharing.weight(tenant)


def _per_hour(state: ClusterState, sharing: Sharing, group: Group) -> dict[str, float]:
    """What a group's nodes come to an hour for each tenant of its jobs."""
    found: dict[str, float] = {}
    for node, tenants in _holders(state, group).items():
        cost = _node_per_hour(state, sharing, node)
        for tenant, number in tenants.items():
            found[tenant] = found.get(tenant, 0.0) + cost * number / tenants.total()
    return found


def _holders(state: ClusterState, group: Group) -> dict[str, Counter[str]]:
    """How many jobs of which tenant have slots on each node."""
    holders: dict[str, Counter[str]] = {}
    for record in state.members(group):
        if record.pin is not None:
            for node in dict.fromkeys(slot.node for slot in record.pin.rollout + record.pin.training):
                holders.setdefault(node, Counter())[record.spec.tenant] += 1
    return holders


def _node_per_hour(state: ClusterState, sharing: Sharing, node: str) -> float:
    if sharing.by is Measure.DOLLARS:
        return state.usd_per_hour((node,))
    return float(state.nodes[node].node.num_devices)
