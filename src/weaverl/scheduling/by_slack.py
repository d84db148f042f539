"""Groups by slack: phases are granted as slots come free, in the order of what promises leave room for.

Requests are looked at in this order: cold starts; requests that were passed ``MOST_PASSED`` times; those of late jobs,
which have lost half of what they could make good, then of jobs in danger, whose promise leaves them the least for
what is ahead first; the others. Where nothing else is said, the longest waiting goes first. A request whose slots are
all free and clean is granted, unless a late job will soon ask for them (see ``protection``). One that must wait
reserves its slots: no request behind it may have one of them. So a job on many nodes is not kept waiting by smaller
ones that come and go, and no request is passed more than ``MOST_PASSED`` times and once more by each other member.

Everything else is as in rounds: a permit covers all of a job's slots in a pool, but for those that a tail keeps;
state of others is asked off first; lost nodes are waited for by nobody else.
"""

from collections.abc import Iterator, Sequence

from weaverl.domain.commands import AnyCommand
from weaverl.domain.events import PermitRequested
from weaverl.scheduling import granting, restores
from weaverl.scheduling.progress import is_late
from weaverl.scheduling.protection import awaited, room_of, watch
from weaverl.scheduling.rings import Member, Seat
from weaverl.scheduling.rotation import Rotation
from weaverl.scheduling.rotation_state import LOADING, ROLLOUT, key_of
from weaverl.scheduling.state import ClusterState

MOST_PASSED = 4
"""How often a request may be passed by younger ones before it goes first."""

PASSED, LATE, IN_DANGER, AT_EASE = (1, 0), 2, 3, (4, 0)
"""Places of requests behind cold starts; among those of late jobs, or of jobs in danger, the least room goes first."""

_DANGER = 1050
"""A job is in danger while its pace leaves less than so many thousandths of that pace for what is ahead.

At 1000 it has been as slow as it may be, by its promise or, with time to spare, since it has its company. Dollars do
not depend on this, attainment does a little.
"""


def decide(rotation: Rotation, cluster: ClusterState) -> Iterator[AnyCommand]:
    """What is due now; the caller folds each command before it asks for the next."""
    if rotation.later:
        yield from granting.widen(rotation, cluster)
    reserved, members = 0, rotation.rings.members
    order = in_order(rotation, cluster)
    for request in order:
        member = members[request.job]
        seat = member.seat(request.pool)
        if rotation.holding & seat.bit or not granting.is_ready(request, member, seat, cluster):
            continue
        if not seat.mask & reserved:
            yield from _serve_or_wait(rotation, request, member, seat, cluster)
        if not rotation.holding & seat.bit:
            reserved |= seat.mask
    if cluster.parameters.restores_ahead and rotation.rings.shared:
        yield from restores.decide(rotation, cluster, order)


def _serve_or_wait(
    rotation: Rotation, request: PermitRequested, member: Member, seat: Seat, cluster: ClusterState
) -> Iterator[AnyCommand]:
    """Serve a request that goes next, unless it has to leave its slots to a late job."""
    if seat.mask & (rotation.held | rotation.later) and not (request.phase is ROLLOUT and rotation.keeping):
        return
    late = None
    if request.phase is not LOADING and not _was_passed(rotation, request):
        late = awaited(rotation, cluster, request, member, seat)
    if late is None:
        yield from _serve(rotation, request, member, seat, cluster)
    elif (timer := watch(rotation, cluster, late)) is not None:
        yield timer


def _was_passed(rotation: Rotation, request: PermitRequested) -> bool:
    """Whether a request was passed so often that it waits for nobody."""
    passed = rotation.state.passed
    return bool(passed) and passed.get(key_of(request.job, request.pool), 0) >= MOST_PASSED


def in_order(rotation: Rotation, cluster: ClusterState) -> Sequence[PermitRequested]:
    """The requests in the order in which they are looked at."""
    waiting = rotation.state.waiting
    if len(waiting) < 2:
        return waiting
    return sorted(waiting, key=lambda request: _urgency(request, rotation, cluster))


def urgency(pace: float, left: int) -> tuple[int, int]:
    """The place of a request by its job's pace and the slowdown, in thousandths, that this leaves room for."""
    if is_late(pace, left):
        return LATE, left
    return (IN_DANGER, left) if left < danger_below(pace) else AT_EASE


def danger_below(pace: float) -> float:
    """The slowdown, in thousandths, below which a job is in danger."""
    return _DANGER * pace


def _urgency(request: PermitRequested, rotation: Rotation, cluster: ClusterState) -> tuple[int, int]:
    if request.phase is LOADING:
        return 0, 0
    if _was_passed(rotation, request):
        return PASSED
    found = room_of(rotation, cluster, rotation.rings.members[request.job])
    return AT_EASE if found is None else urgency(*found)


def _serve(
    rotation: Rotation, request: PermitRequested, member: Member, seat: Seat, cluster: ClusterState
) -> Iterator[AnyCommand]:
    """Grant a request that goes next, or clear its slots."""
    if seat.mask & (rotation.held | rotation.later):
        yield from granting.beside_tails(rotation, request, member, seat, cluster)
    elif not granting.is_clear(rotation, member, seat.mask):
        yield from granting.vacate(granting.left_by_others(rotation, request.job, seat.mask), cluster)
    else:
        yield granting.grant(rotation, request, member, seat, cluster)
