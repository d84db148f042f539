"""The order of the queue in a shared cluster.

Each waiting job stands on a level. Priority p is level 2p; an urgent job, which has used up half of the time that its
deadline leaves it to wait, is one level higher: above its own class and below the next. A job rises by a class for
each ``ageing`` that it has waited, up to the highest level that any waiting job has by its own. On the levels of
classes the tenant with the least usage per weight is next, on those between them the job that falls due first. A
job that was paused waits anew, but goes before those of its tenant and class that were submitted later. One for which
others were paused goes first on its level, whatever their leave has changed in what tenants use.

So nobody starves: a job comes to the highest level in a known time, and there nobody is before it for ever. On a level
between classes who comes later falls due later. On one of a class this holds within a tenant, and of other tenants
each job that is served adds to what its tenant has used, while what the waiting one's has used decays.
"""

from collections.abc import Iterable, Iterator
from math import inf
from typing import NamedTuple

from weaverl.domain.sharing import Sharing
from weaverl.scheduling.index import index_of
from weaverl.scheduling.sharing.promises import latest_start
from weaverl.scheduling.sharing.usage import usage_per_weight
from weaverl.scheduling.state import ClusterState, JobRecord


class Place(NamedTuple):
    """Where a waiting job stands. ``due``: by when it ought to start, for its deadline if it is urgent, or its age."""

    record: JobRecord
    level: int
    is_urgent: bool
    due: float


def in_turn(state: ClusterState) -> Iterator[str]:
    """The waiting jobs, each once; after an admission those that are left in the order of then."""
    sharing = state.cluster.sharing
    if sharing is None:
        yield from index_of(state).queue()
        return
    seen: set[str] = set()
    version = index_of(state).version
    waiting = queue_order(state, sharing)
    while waiting:
        name = waiting.pop(0)
        seen.add(name)
        yield name
        if index_of(state).version != version:
            version = index_of(state).version
            waiting = [one for one in queue_order(state, sharing) if one not in seen]


def queue_order(state: ClusterState, sharing: Sharing) -> list[str]:
    """The names of the waiting jobs, the next one first."""
    return [place.record.spec.name for place in places(state, sharing)]


def places(state: ClusterState, sharing: Sharing) -> list[Place]:
    """All waiting jobs, the next one first."""
    waiting = [state.jobs[name] for name in index_of(state).queue()]
    usage = {tenant: usage_per_weight(state, sharing, tenant) for tenant in _tenants(waiting)}

    def key(place: Place) -> tuple[float, bool, float, float, int, str]:
        record = place.record
        used = usage[record.spec.tenant]
        ranks = (place.due, used) if place.level % 2 else (used, place.due)
        return (-place.level, not record.way_made, *ranks, record.submitted_at, record.spec.name)

    return sorted(_placed(state, sharing, waiting), key=key)


def _placed(state: ClusterState, sharing: Sharing, waiting: list[JobRecord]) -> list[Place]:
    latest = [latest_start(state, record) for record in waiting]
    urgent = [
        start is not None and 2 * state.now >= record.queued_at + start
        for record, start in zip(waiting, latest, strict=True)
    ]
    own = [2 * record.spec.priority + is_urgent for record, is_urgent in zip(waiting, urgent, strict=True)]
    top, ageing_us = max(own, default=0), round(sharing.ageing_seconds * 1e6)
    found = []
    for record, start, is_urgent, level in zip(waiting, latest, urgent, own, strict=True):
        aged = record.spec.priority + (state.now - record.queued_at) // ageing_us
        level = max(level, min(2 * aged, top))
        raised = level // 2 - record.spec.priority + 1
        due = min(record.submitted_at + raised * ageing_us, start if start is not None and is_urgent else inf)
        found.append(Place(record, level, is_urgent, due))
    return found


def _tenants(waiting: Iterable[JobRecord]) -> Iterable[str]:
    return dict.fromkeys(record.spec.tenant for record in waiting)
