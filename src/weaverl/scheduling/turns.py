"""Whose turn it is in a group: the permits that are due, and demands to make room for them.

Only the front of a ring may have its slots, and a permit covers all of a job's slots in a pool, or is not granted. A
front that is busy elsewhere is waited for; one that has nothing to ask within ``turn_patience_us`` leaves the ring
until it asks again, and where every member waits for a turn that cannot come, the longest waiting goes first: no ring
ever stalls. One exception to all or nothing: a rollout may start beside tails (see ``tails``).

In a group with a time quantum all slots are one ring and whole jobs take turns, cold starts included: nothing is
granted while anybody holds a permit, and the front stays in front, its state on its slots, until it asks for a phase
after the quantum has passed since the first grant of its turn and somebody else waits.
"""

from collections.abc import Iterator

from weaverl.domain.commands import AnyCommand, SetTimer
from weaverl.domain.events import PermitRequested
from weaverl.scheduling import granting
from weaverl.scheduling.rings import Seat
from weaverl.scheduling.rotation import Rotation
from weaverl.scheduling.rotation_state import LOADING, ROLLOUT
from weaverl.scheduling.state import ClusterState


def decide(rotation: Rotation, cluster: ClusterState) -> Iterator[AnyCommand]:
    """What is due now; the caller folds each command before it asks for the next."""
    if rotation.later:
        yield from granting.widen(rotation, cluster)
    state, members = rotation.state, rotation.rings.members
    in_quanta, reserved = state.group.quantum_us > 0, 0
    for request in state.waiting:
        member = members[request.job]
        seat = member.seat(request.pool)
        taken = seat.mask & (rotation.held | rotation.later)
        if (taken and not rotation.keeping) or rotation.holding & (-1 if in_quanta else seat.bit):
            continue
        if not granting.is_ready(request, member, seat, cluster) or seat.mask & reserved:
            continue
        if request.phase is LOADING:
            reserved |= seat.mask  # nobody comes back to slots that are being cleared for it
        if taken:
            if request.phase is ROLLOUT and _is_front(request.job, seat):
                yield from granting.beside_tails(rotation, request, member, seat, cluster)
        elif not _has_turn(rotation, request, seat):
            yield from _watch_fronts(rotation, seat, cluster)
        elif rotation.lingers & ~member.lingers & seat.mask:
            yield from granting.vacate(granting.left_by_others(rotation, request.job, seat.mask), cluster)
        else:
            yield granting.grant(rotation, request, member, seat, cluster)


def _has_turn(rotation: Rotation, request: PermitRequested, seat: Seat) -> bool:
    if rotation.state.group.quantum_us:
        return _is_front(request.job, seat)
    return request.phase is LOADING or _is_front(request.job, seat) or _everybody_waits(rotation, request)


def _is_front(job: str, seat: Seat) -> bool:
    for lane in seat.lanes:
        if lane.ring[0] != job:
            return False
    return bool(seat.lanes)


def _everybody_waits(rotation: Rotation, request: PermitRequested) -> bool:
    """No turn can come among jobs linked by shared rings: none holds a permit, and all wait.

    Rings of jobs with several slots can come to contradict one another; then the longest waiting goes first.
    """
    members, linked = rotation.rings.members, rotation.rings.linked(request.job)
    if linked & rotation.holding or linked & ~rotation.asking:
        return False
    asking = [one for one in rotation.state.waiting if members[one.job].bit & linked and one.phase is not LOADING]
    return asking[0] is request and not any(_is_front(one.job, members[one.job].seat(one.pool)) for one in asking)


def _watch_fronts(rotation: Rotation, seat: Seat, cluster: ClusterState) -> Iterator[SetTimer]:
    """The patience with those whose turn it is and who have nothing to ask begins."""
    busy, members, stalled = rotation.holding | rotation.asking, rotation.rings.members, rotation.state.stalled
    fronts = {lane.ring[0] for lane in seat.lanes if not members[lane.ring[0]].bit & busy}
    for front in sorted(fronts - stalled.keys()):
        name = f"turn/{rotation.state.group.name}/{front}/{cluster.now}"
        yield SetTimer(name=name, at=cluster.now + cluster.parameters.turn_patience_us)
