"""How a shared cluster stands, for people: what each tenant has used, and where each waiting job is in the queue."""

import msgspec

from weaverl.domain.sharing import Sharing
from weaverl.scheduling.sharing.accounts import used_by
from weaverl.scheduling.sharing.order import Place, places
from weaverl.scheduling.sharing.promises import ends_by
from weaverl.scheduling.state import ClusterState, JobRecord


class TenantStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant. ``used``: decayed, in dollars or GPU-hours, as ``per_hour`` is an hour."""

    name: str
    weight: float
    used: float
    per_hour: float
    running: int
    waiting: int


def tenants(state: ClusterState) -> tuple[TenantStatus, ...]:
    """All tenants that have used anything or wait, if the cluster is shared."""
    sharing = state.cluster.sharing
    if sharing is None:
        return ()
    live = [record for record in state.jobs.values() if record.live]
    names = sorted({*state.shares.accounts, *(record.spec.tenant for record in live)})
    return tuple(_tenant(state, sharing, name, live) for name in names)


def standings(state: ClusterState) -> dict[str, str]:
    """Of each job that waits in a shared cluster, where it stands; of one that its deadline binds, how."""
    sharing = state.cluster.sharing
    if sharing is None:
        return {}
    queue = places(state, sharing)
    found = {
        place.record.spec.name: _standing(state, place, number + 1, len(queue)) for number, place in enumerate(queue)
    }
    bound = (record for record in state.jobs.values() if record.live and record.bound is not None)
    return {record.spec.name: f"its deadline binds it to {record.slo:.2f}x" for record in bound} | found


def _tenant(state: ClusterState, sharing: Sharing, name: str, live: list[JobRecord]) -> TenantStatus:
    own = [record for record in live if record.spec.tenant == name]
    account = state.shares.accounts.get(name)
    return TenantStatus(
        name=name,
        weight=sharing.weight(name),
        used=0.0 if account is None else used_by(account, state.now, sharing.half_life_seconds * 1e6),
        per_hour=0.0 if account is None else account.per_hour,
        running=sum(record.pin is not None for record in own),
        waiting=sum(record.pin is None for record in own),
    )


def _standing(state: ClusterState, place: Place, number: int, total: int) -> str:
    record = place.record
    words = [f"number {number} of {total} in the queue, priority {record.spec.priority}"]
    if place.level // 2 > record.spec.priority:
        words.append(f"raised to {place.level // 2} by its wait")
    if place.is_urgent:
        words.append("urgent for its deadline")
    deadline = ends_by(record)
    if deadline is not None and deadline < state.now:
        words.append("its deadline is over")
    if record.preemptions:
        words.append(f"paused {'once' if record.preemptions == 1 else f'{record.preemptions} times'}")
    return ", ".join(words)
