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

from weaverl.domain.commands import AnyCommand, GrantPermit, SetTimer, VacateSlot
from weaverl.domain.events import PermitRequested, Token
from weaverl.scheduling import tails
from weaverl.scheduling.rings import Member, Seat
from weaverl.scheduling.rotation import Rotation
from weaverl.scheduling.rotation_state import LOADING, ROLLOUT, Lingering
from weaverl.scheduling.state import ClusterState


def decide(rotation: Rotation, cluster: ClusterState) -> Iterator[AnyCommand]:
    """What is due now; the caller folds each command before it asks for the next."""
    if rotation.later:
        yield from _widen(rotation, cluster)
    state, members = rotation.state, rotation.rings.members
    in_quanta = state.group.quantum_us > 0
    for request in state.waiting:
        member = members[request.job]
        seat = member.seat(request.pool)
        taken = seat.mask & (rotation.held | rotation.later)
        if (taken and not rotation.keeping) or rotation.holding & (-1 if in_quanta else member.bit):
            continue
        if not _is_ready(request, member, seat, cluster):
            continue
        if taken:
            yield from _beside_tails(rotation, request, member, seat, cluster)
        elif not _has_turn(rotation, request, seat):
            yield from _watch_fronts(rotation, seat, cluster)
        elif rotation.lingers & ~member.lingers & seat.mask:
            yield from _vacate(_left_by_others(rotation, request.job, seat.mask), cluster)
        else:
            yield _grant(rotation, request, member, seat, cluster)


def _is_ready(request: PermitRequested, member: Member, seat: Seat, cluster: ClusterState) -> bool:
    """Whether all ranks of the role are registered and the agents of the slots' nodes are there."""
    if request.role not in member.ranks:
        ranks = cluster.registered_ranks(request.job, request.role)
        if ranks is None:
            return False
        member.ranks[request.role] = ranks
    return cluster.nodes_ready(seat.nodes)


def _grant(
    rotation: Rotation,
    request: PermitRequested,
    member: Member,
    seat: Seat,
    cluster: ClusterState,
    kept: int = 0,
) -> GrantPermit:
    return GrantPermit(
        job=request.job,
        attempt=request.attempt,
        role=request.role,
        token=Token(cluster.epoch, cluster.tokens + 1),
        phase=request.phase,
        pool=request.pool,
        iteration=request.iteration,
        slots=rotation.rings.slots(seat, seat.mask & ~kept),
        ranks=member.ranks[request.role],
        vacate=_is_wanted_by_others(rotation, request.job, seat),
        later=rotation.rings.slots(seat, kept) if kept else (),
    )


def _is_wanted_by_others(rotation: Rotation, job: str, seat: Seat) -> bool:
    """Whether somebody else takes turns on the slots; within a quantum the state stays where it is."""
    if rotation.state.group.quantum_us:
        return False
    for lane in seat.lanes:
        ring = lane.ring
        if len(ring) > 1 or (ring and ring[0] != job):
            return True
    return False


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


def _left_by_others(rotation: Rotation, job: str, mask: int) -> list[Lingering]:
    lingering = rotation.state.lingering
    return [left for left in lingering if left.grant.job != job and rotation.rings.mask(left.grant.slots) & mask]


def _vacate(blocking: list[Lingering], cluster: ClusterState) -> Iterator[AnyCommand]:
    for left in blocking:
        if not left.vacating:
            grant = left.grant
            yield VacateSlot(
                job=grant.job,
                attempt=grant.attempt,
                role=grant.role,
                token=grant.token,
                slots=grant.slots,
                ranks=grant.ranks,
            )
            due = cluster.now + cluster.parameters.vacate_patience_us
            yield SetTimer(name=f"vacate/{grant.token}/{grant.job}", at=due)


def _beside_tails(
    rotation: Rotation, request: PermitRequested, member: Member, seat: Seat, cluster: ClusterState
) -> Iterator[AnyCommand]:
    """A rollout whose turn it is starts on the slots that tails do not keep, once the tails are off them."""
    permits = rotation.state.permits
    kept = tails.kept_of(rotation.rings.members.values(), seat) if request.phase is ROLLOUT else None
    if kept is None or not _is_front(request.job, seat):
        return
    free = seat.mask & ~kept
    if free & rotation.held:
        yield from tails.move(rotation.rings, permits, free)
    elif left := _left_by_others(rotation, request.job, free):
        yield from _vacate(left, cluster)
    else:
        yield _grant(rotation, request, member, seat, cluster, kept)


def _widen(rotation: Rotation, cluster: ClusterState) -> Iterator[AnyCommand]:
    """Slots that permits are promised, and that are clean and in service by now, are theirs."""
    for member in rotation.rings.members.values():
        if not (free := member.later & ~rotation.held):
            continue
        if left := _left_by_others(rotation, member.name, free):
            yield from _vacate(left, cluster)
            free &= ~rotation.rings.mask(slot for one in left for slot in one.grant.slots)
        grant = rotation.state.permits[member.name].grant
        slots = rotation.rings.slots(member.seat(grant.pool), free)
        slots = tuple(slot for slot in slots if cluster.nodes_ready((slot.node,)))
        if slots:
            yield tails.widen(grant, slots)
