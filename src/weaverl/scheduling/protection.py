"""Late jobs in groups by slack: their slots are kept free for their next phase, where that costs less than it saves.

Going first among those who wait is not enough for a late job: it still meets slots that somebody was granted just
before it asked. So another request for such slots waits for it, if the late job is expected to ask within half the
time for which the other would hold them: then the slots are idle for less than the late job would have waited. Late
jobs do not wait for one another, and nobody who was passed too often waits: too many reservations would slow a group
as a whole.

Who does not ask in its time (a frozen process) is waited for no longer than ``turn_patience_us``, until it asks again.
"""

from weaverl.domain.cluster import PoolKind
from weaverl.domain.commands import SetTimer
from weaverl.domain.events import PermitRequested
from weaverl.domain.jobs import PhaseProfile
from weaverl.scheduling.progress import allowance, is_late
from weaverl.scheduling.rings import Member, Seat
from weaverl.scheduling.rotation import Rotation
from weaverl.scheduling.rotation_state import ROLLOUT, permits_of
from weaverl.scheduling.round_model import MICROSECONDS
from weaverl.scheduling.state import ClusterState, switches_of

POOLS = tuple(PoolKind)


def room_of(rotation: Rotation, cluster: ClusterState, member: Member) -> tuple[float, int] | None:
    """A job's pace and the slowdown, in thousandths, that it leaves room for; a wait for a neighbour is in hand."""
    record = cluster.jobs[member.name]
    if record.profile is None:
        return None
    if member.blocked_us is None:
        member.blocked_us = _blocked_us(rotation, cluster, member)
    return allowance(record, cluster.now, member.blocked_us)


def awaited(
    rotation: Rotation, cluster: ClusterState, request: PermitRequested, member: Member, seat: Seat
) -> Member | None:
    """The late job that a request has to wait for, if there is one."""
    profile = cluster.jobs[request.job].profile
    if profile is None or is_behind(rotation, cluster, member):
        return None
    latest = cluster.now + _held_us(cluster, profile, request.pool) // 2
    for other in rotation.rings.members.values():
        if other is not member and is_behind(rotation, cluster, other):
            for pool in POOLS:
                if other.seat(pool).mask & seat.mask and _comes_by(rotation, cluster, other, pool, latest):
                    return other
    return None


def watch(rotation: Rotation, cluster: ClusterState, late: Member) -> SetTimer | None:
    """The patience with a late job begins, unless it has."""
    if late.name in rotation.state.stalled:
        return None
    profile, due = cluster.jobs[late.name].profile, cluster.now
    if profile is not None:
        at_most_us = round(max(profile.rollout_max_seconds, profile.training_seconds) * MICROSECONDS)
        due = max([due, *(permit.since + at_most_us for permit in permits_of(rotation.state, late.name))])
    name = f"turn/{rotation.state.group.name}/{late.name}/{cluster.now}"
    return SetTimer(name=name, at=due + cluster.parameters.turn_patience_us)


def is_behind(rotation: Rotation, cluster: ClusterState, member: Member) -> bool:
    """Whether a job is late: its slots are kept free for it where that pays."""
    found, record = room_of(rotation, cluster, member), cluster.jobs[member.name]
    return found is not None and record.ending is None and is_late(*found)


def _blocked_us(rotation: Rotation, cluster: ClusterState, member: Member) -> int:
    """How long the longest phase takes that another may have begun on its slots."""
    longest = 0
    for other in rotation.rings.members.values():
        profile = cluster.jobs[other.name].profile
        if other is not member and profile is not None:
            for pool in POOLS:
                if other.seat(pool).mask & (member.rollout.mask | member.training.mask):
                    longest = max(longest, _held_us(cluster, profile, pool))
    return longest


def _comes_by(rotation: Rotation, cluster: ClusterState, late: Member, pool: PoolKind, latest: int) -> bool:
    """Whether a job has its turns in a pool, does not wait there already, and will ask before that."""
    if any(late.name not in lane.ring for lane in late.seat(pool).lanes):
        return False
    if rotation.asking & late.bit and any(one.job == late.name and one.pool is pool for one in rotation.state.waiting):
        return False
    return _asks_at(rotation, cluster, late, pool) < latest


def _asks_at(rotation: Rotation, cluster: ClusterState, member: Member, pool: PoolKind) -> int:
    """When a job is expected to ask for its slots of a pool, by its mean times."""
    rollout, training = asks(rotation, cluster, member, cluster.now)
    return rollout if pool is PoolKind.ROLLOUT else training


def asks(rotation: Rotation, cluster: ClusterState, member: Member, begins: int) -> tuple[int, int]:
    """When a job with a profile is expected to ask for its rollout slots, and for its training slots.

    ``begins``: when what it waits for is expected to begin, if it waits.
    """
    record, now = cluster.jobs[member.name], cluster.now
    rollout, training, rest = times_of(cluster, member)
    if member.ahead:
        sides = ((PoolKind.ROLLOUT, rollout), (PoolKind.TRAINING, training + rest))
        over = max(_over_at(rotation, cluster, member, of, takes_us) for of, takes_us in sides)
        return over, over
    permit = rotation.state.permits.get(member.name)
    waiting = next((one for one in rotation.state.waiting if one.job == member.name), None)
    if permit is not None:
        at_rollout = permit.grant.phase is ROLLOUT
        ends = max(permit.since + (rollout if at_rollout else training), now)
    elif waiting is not None:
        at_rollout = waiting.phase is ROLLOUT
        ends = begins + (rollout if at_rollout else training)
    else:  # between two phases, and what it does there takes no time worth speaking of
        at_rollout, ends = record.progress.part_us > 0, now
        rest = 0 if not at_rollout else rest
    if at_rollout:
        return ends + training + rest, ends
    return ends + rest, ends + rest + rollout


def times_of(cluster: ClusterState, member: Member) -> tuple[int, int, int]:
    """How long a job's rollout and training hold their slots, and what passes between iterations: worked out once."""
    if member.held_us is not None:
        return member.held_us
    profile = cluster.jobs[member.name].profile
    assert profile is not None
    rest = round((profile.sync_seconds + profile.other_seconds) * MICROSECONDS)
    rollout, training = (_held_us(cluster, profile, pool) for pool in (PoolKind.ROLLOUT, PoolKind.TRAINING))
    member.held_us = (rollout, training, rest)
    return member.held_us


def _over_at(rotation: Rotation, cluster: ClusterState, member: Member, pool: PoolKind, takes_us: int) -> int:
    """When one side of an iteration is expected to be over, of a job that rolls out beside its training."""
    permit, now = rotation.state.permits.get(member.seat(pool).key), cluster.now
    if permit is not None:
        return max(permit.since + takes_us, now)
    waits = any(one.job == member.name and one.pool is pool for one in rotation.state.waiting)
    return now + takes_us if waits else now


def _held_us(cluster: ClusterState, profile: PhaseProfile, pool: PoolKind) -> int:
    """How long a job's phase holds its slots, with a hand-over."""
    switches = switches_of(cluster.cluster, profile)
    if pool is PoolKind.ROLLOUT:
        return round(profile.rollout_mean_seconds * MICROSECONDS) + switches.rollout_us
    return round(profile.training_seconds * MICROSECONDS) + switches.training_us
