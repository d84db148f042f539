"""What every order of turns does with a request: whether it could be granted, what must be cleared, and the grant."""

from collections.abc import Iterator

from weaverl.domain.commands import AnyCommand, GrantPermit, SetTimer, VacateSlot
from weaverl.domain.events import PermitRequested, Token
from weaverl.scheduling import tails
from weaverl.scheduling.rings import Member, Seat
from weaverl.scheduling.rotation import Rotation
from weaverl.scheduling.rotation_state import ROLLOUT, Lingering
from weaverl.scheduling.state import ClusterState, JobRecord


def is_ready(request: PermitRequested, member: Member, seat: Seat, cluster: ClusterState) -> bool:
    """Whether all ranks of the role are registered, the agents of the slots' nodes are there, and weights are fresh."""
    if member.ahead and request.phase is ROLLOUT and not _may_roll_out(request, cluster):
        return False
    if request.role not in member.ranks:
        ranks = cluster.registered_ranks(request.job, request.role)
        if ranks is None:
            return False
        member.ranks[request.role] = ranks
    return cluster.nodes_ready(seat.nodes)


def _may_roll_out(request: PermitRequested, cluster: ClusterState) -> bool:
    """Whether a rollout beside training may begin: its weights are fresh, and its job is not about to move.

    Before a move nothing new is begun, so that the job comes to the end of an iteration with nothing under way.
    """
    record = cluster.jobs[request.job]
    if request.job in cluster.moves and request.iteration > num_over(record):
        return False
    return has_fresh_weights(record, request.iteration)


def num_over(record: JobRecord) -> int:
    """Iterations of a job a step ahead that are over, their sync included."""
    return max(record.first_iteration, min(record.iterations_done, record.num_synced))


def has_fresh_weights(record: JobRecord, iteration: int) -> bool:
    """Whether a rollout beside training would draw its samples with weights that are one version old at most.

    Those are the weights that the iteration before last has ended with; an attempt begins with what is saved. A job
    whose next rollout may run beside training is promised this by its permits, whatever it asks for.
    """
    return iteration - 1 <= num_over(record)


def grant(
    rotation: Rotation,
    request: PermitRequested,
    member: Member,
    seat: Seat,
    cluster: ClusterState,
    kept: int = 0,
) -> GrantPermit:
    """The permit for all slots of the request's seat but those that tails keep."""
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


def is_clear(rotation: Rotation, member: Member, mask: int) -> bool:
    """Whether no state of others lingers on slots."""
    if not rotation.lingers & mask:
        return True
    return not any(other.lingers & mask for other in rotation.rings.members.values() if other is not member)


def left_by_others(rotation: Rotation, job: str, mask: int) -> list[Lingering]:
    """State that others left on slots."""
    lingering = rotation.state.lingering
    return [left for left in lingering if left.grant.job != job and rotation.rings.mask_of(left.grant) & mask]


def vacate(blocking: list[Lingering], cluster: ClusterState) -> Iterator[AnyCommand]:
    """Demands to save it, each told once."""
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


def beside_tails(
    rotation: Rotation, request: PermitRequested, member: Member, seat: Seat, cluster: ClusterState
) -> Iterator[AnyCommand]:
    """A rollout that goes next starts on the slots that tails do not keep, once the tails are off them."""
    permits = rotation.state.permits
    kept = tails.kept_of(rotation.rings.members.values(), seat)
    if kept is None:
        return
    free = seat.mask & ~kept
    if free & rotation.held:
        yield from tails.move(rotation.rings, permits, free)
    elif left := left_by_others(rotation, request.job, free):
        yield from vacate(left, cluster)
    else:
        yield grant(rotation, request, member, seat, cluster, kept)


def widen(rotation: Rotation, cluster: ClusterState) -> Iterator[AnyCommand]:
    """Slots that permits are promised, and that are clean and in service by now, are theirs."""
    for member in rotation.rings.members.values():
        if not (free := member.later & ~rotation.held):
            continue
        if left := left_by_others(rotation, member.name, free):
            yield from vacate(left, cluster)
            free &= ~rotation.rings.mask(slot for one in left for slot in one.grant.slots)
        grant = rotation.state.permits[member.rollout.key].grant
        slots = rotation.rings.slots(member.seat(grant.pool), free)
        slots = tuple(slot for slot in slots if cluster.nodes_ready((slot.node,)))
        if slots:
            yield tails.widen(grant, slots)
