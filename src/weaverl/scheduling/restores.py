"""Hidden switches: the state of the job that is expected next is restored before it asks, in groups by slack.

Who is next is decided for all slots at once, whenever anything has happened in the group: those who wait, in the order
in which they are served; then all others by when they are expected to ask, by their mean times (see ``protection``).
One after the other claims its slots of a pool; a slot goes to the first who claims it. A member that has claimed all
of its slots is told to restore its state there (``PrepareSlot``) if nobody holds any of them, or if those who do leave
room on the devices: state of both, and what the holder works with. State of others is asked off first.

That is never in the way: a job that asks first is granted the slots as soon as the state that was restored for
another is off again, as after a phase. So it waits for a restore under way, at the most, and for the save.
"""

from collections.abc import Iterator, Sequence

from weaverl.domain.cluster import PoolKind
from weaverl.domain.commands import AnyCommand, PrepareSlot
from weaverl.domain.events import PermitRequested, Token
from weaverl.domain.jobs import DeviceMemory, DeviceNeed, Placement
from weaverl.scheduling import granting
from weaverl.scheduling.protection import POOLS, asks, times_of
from weaverl.scheduling.rings import Member
from weaverl.scheduling.rotation import Rotation
from weaverl.scheduling.rotation_state import LOADING, key_of
from weaverl.scheduling.state import ClusterState, switches_of

_Claim = tuple[Member, PoolKind]


def decide(rotation: Rotation, cluster: ClusterState, order: Sequence[PermitRequested]) -> Iterator[AnyCommand]:
    """What to restore ahead, and what to clear for it; ``order`` is that of the requests, some of them granted."""
    claimed = 0
    for member, pool in _claims(rotation, cluster, order):
        seat = member.seat(pool)
        mask = seat.mask
        is_first = not mask & claimed
        claimed |= mask
        if not is_first or not mask & rotation.rings.shared or member.lingers & mask == mask:
            continue
        if not _has_room(rotation, cluster, member, pool) or not _may_restore(rotation, cluster, member, pool):
            continue
        if granting.is_clear(rotation, member, mask):
            yield _prepare(rotation, cluster, member, pool)
        else:
            yield from granting.vacate(granting.left_by_others(rotation, member.name, mask), cluster)


def _claims(rotation: Rotation, cluster: ClusterState, order: Sequence[PermitRequested]) -> list[_Claim]:
    """Members and pools in the order in which they are expected to be granted a permit."""
    members, begins = rotation.rings.members, _begins(rotation, cluster, order)
    waiting = rotation.state.waiting
    claims = [(members[request.job], request.pool) for request in order if request in waiting]
    later: list[tuple[int, int, _Claim]] = []  # no two places are the same: claims are never compared
    for place, member in enumerate(members.values()):
        record = cluster.jobs[member.name]
        if record.profile is None or record.ending is not None:
            continue
        expected = asks(rotation, cluster, member, begins.get(member.name, cluster.now))
        for of_pool, pool in enumerate(POOLS):
            if (member, pool) not in claims:
                at = expected[of_pool] - _start_us(cluster, member, of_pool)
                later.append((at, 2 * place + of_pool, (member, pool)))
    later.sort()
    return claims + [claim for _, _, claim in later]


def _begins(rotation: Rotation, cluster: ClusterState, order: Sequence[PermitRequested]) -> dict[str, int]:
    """When those who wait are expected to begin: one after the other, as their slots come free."""
    waiting, members, now = rotation.state.waiting, rotation.rings.members, cluster.now
    begins: dict[str, int] = {}
    if not waiting:
        return begins
    busy = []
    for permit in rotation.state.permits.values():
        member, pool = members[permit.grant.job], permit.grant.pool
        mask = member.holds & member.seat(pool).mask
        busy.append((mask, max(permit.since + _held_us(cluster, member, pool), now)))
    for request in order:
        if request in waiting:
            member = members[request.job]
            mask = member.seat(request.pool).mask
            at = begins[request.job] = max((until for held, until in busy if held & mask), default=now)
            busy.append((mask, at + _held_us(cluster, member, request.pool)))
    return begins


def _held_us(cluster: ClusterState, member: Member, pool: PoolKind) -> int:
    """How long a member's phase holds its slots; nothing is known of one without a profile."""
    if cluster.jobs[member.name].profile is None:
        return 0
    return times_of(cluster, member)[pool is PoolKind.TRAINING]


def _start_us(cluster: ClusterState, member: Member, pool: int) -> int:
    """What is there already stays, unless another is expected by so much sooner as it would take to restore again."""
    mask = (member.training if pool else member.rollout).mask
    if member.lingers & mask != mask:
        return 0
    switches = switches_of(cluster.cluster, cluster.jobs[member.name].profile)
    return switches.training_us if pool else switches.rollout_us


def _may_restore(rotation: Rotation, cluster: ClusterState, member: Member, pool: PoolKind) -> bool:
    """Whether a member takes turns there, could be told to restore, and has its state nowhere that it is needed."""
    record, seat, state = cluster.jobs[member.name], member.seat(pool), rotation.state
    role = state.roles.get(key_of(member.name, pool))
    if role is None or record.ending is not None or key_of(member.name, pool) in state.declined:
        return False
    if member.is_on_one_pool:  # both of its states take turns there
        return False
    if record.spec.placement is not Placement.DISAGGREGATED and (rotation.holding | rotation.asking) & member.bit:
        return False
    move = cluster.moves.get(member.name)
    if pool is PoolKind.ROLLOUT and move is not None and move.is_certain:
        return False
    if any(member.name not in lane.ring for lane in seat.lanes):
        return False
    if any(one.job == member.name and one.phase is LOADING for one in state.waiting):
        return False
    if role not in member.ranks:
        ranks = cluster.registered_ranks(member.name, role)
        if ranks is None:
            return False
        member.ranks[role] = ranks
    return cluster.nodes_ready(seat.nodes) and cluster.prepares(member.name, role)


def _has_room(rotation: Rotation, cluster: ClusterState, member: Member, pool: PoolKind) -> bool:
    """Whether nobody has a right to the slots now, or those who hold them leave room for the state."""
    mask = member.seat(pool).mask
    if mask & rotation.later:
        return False
    if not mask & rotation.held:
        return True
    return all(
        not other.holds & mask or (other is not member and _fits_beside(cluster, member, pool, other))
        for other in rotation.rings.members.values()
    )


def _fits_beside(cluster: ClusterState, member: Member, pool: PoolKind, holder: Member) -> bool:
    """Whether a state has room on the devices beside a holder's phase in the same pool.

    What one works with whose rollouts are on training devices is not known.
    """
    if holder.is_on_one_pool:
        return False
    key = f"{pool}/{holder.name}"
    if key not in member.beside:
        own, other = (_need(cluster.jobs[one.name].spec.device_memory, pool) for one in (member, holder))
        devices = [cluster.nodes[name].node.device_memory_bytes for name in member.seat(pool).nodes]
        member.beside[key] = (
            own is not None
            and other is not None
            and own.state_bytes + other.state_bytes + other.working_bytes <= min(devices)
        )
    return member.beside[key]


def _need(memory: DeviceMemory, pool: PoolKind) -> DeviceNeed | None:
    return memory.rollout if pool is PoolKind.ROLLOUT else memory.training


def _prepare(rotation: Rotation, cluster: ClusterState, member: Member, pool: PoolKind) -> PrepareSlot:
    role, seat = rotation.state.roles[key_of(member.name, pool)], member.seat(pool)
    return PrepareSlot(
        job=member.name,
        attempt=cluster.jobs[member.name].attempt,
        role=role,
        token=Token(cluster.epoch, cluster.tokens + 1),
        pool=pool,
        slots=seat.slots,
        ranks=member.ranks[role],
    )
