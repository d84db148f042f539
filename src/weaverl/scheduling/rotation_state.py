"""What the rotation of one group knows: plain records that can be written to a snapshot whole."""

import msgspec

from weaverl.domain.cluster import PoolKind, Slot
from weaverl.domain.commands import GrantPermit
from weaverl.domain.events import PermitRequested
from weaverl.domain.groups import Group
from weaverl.domain.jobs import PhaseKind

LOADING, ROLLOUT, TRAINING, SYNC = PhaseKind.LOADING, PhaseKind.ROLLOUT, PhaseKind.TRAINING, PhaseKind.SYNC
"""Members of an enum, looked up once: a look-up costs ten times what a comparison does."""


class Lane(msgspec.Struct, eq=False):
    """Slots that always the same jobs use, and the ring of those that take turns there; the front's turn it is.

    Lanes are split when a newcomer uses a part of one, and never put together: their rings may differ by then.
    """

    slots: tuple[Slot, ...]
    ring: list[str] = []


class Tail(msgspec.Struct):
    """The last part of a rollout, which can go on on the slots of ``keep`` alone.

    ``unmoved``: ranks that were told to move there, at ``told_at``, and have not; None before they are told.
    """

    keep: tuple[Slot, ...]
    unmoved: list[int] | None = None
    told_at: int | None = None


class Permit(msgspec.Struct):
    """A granted phase. ``open_ranks`` have yet to end it; ``dirty_ranks`` ended it and left state on the slots.

    The slots of ``grant`` are those held now, and its ``later`` those still waited for. ``body_us`` is the slowest
    rank's so far, of which ``lost_us`` went by for want of slots, booked up to ``since``, and for the tail's move.
    """

    grant: GrantPermit
    open_ranks: list[int]
    dirty_ranks: list[int] = []
    tail: Tail | None = None
    since: int = 0
    body_us: int = 0
    lost_us: int = 0


class Lingering(msgspec.Struct):
    """State left on slots after a phase, or restored ahead of one; ``vacating`` once its owner was told to save it.

    ``restoring``: of state that is restored ahead, the ranks that have yet to say that it is there; its ``grant`` is
    for no iteration.
    """

    grant: GrantPermit
    dirty_ranks: list[int]
    vacating: bool = False
    restoring: list[int] | None = None


class RotationState(msgspec.Struct):
    """Everything one group's rotation knows. Each fact is kept once; what is derived from them is not in here.

    ``waiting`` is in the order in which requests are looked at: cold starts first (they happen once), then the
    longest waiting. ``stalled``: since when a front has been waited for. ``turn_began``: when a group with a time
    quantum granted its front the first phase of its turn. ``passed``: how often somebody who asked later was granted
    slots that a job waits for in a pool, in a group by slack. ``permits`` are kept by job; those of a job that may
    hold one in each pool, by job and pool. ``roles``: who asked for a job's slots of a pool, in a group by slack;
    ``declined``: jobs and pools of which a rank has not restored state ahead when it was told to, since then.
    """

    group: Group
    lanes: list[Lane] = []
    waiting: list[PermitRequested] = []
    permits: dict[str, Permit] = {}
    lingering: list[Lingering] = []
    stalled: dict[str, int] = {}
    turn_began: int | None = None
    passed: dict[str, int] = {}
    roles: dict[str, str] = {}
    declined: list[str] = []


def key_of(job: str, pool: PoolKind) -> str:
    """The key of what a job has once in each pool."""
    return f"{job}/{pool}"


def permit_keys(job: str) -> tuple[str, ...]:
    """The keys that a job's permits may be kept under."""
    return job, *(key_of(job, pool) for pool in PoolKind)


def permits_of(state: RotationState, job: str) -> list[Permit]:
    """The permits that a job holds: at most one, or one in each pool if its next rollout may run beside training."""
    return [state.permits[key] for key in permit_keys(job) if key in state.permits]


def is_answered(request: PermitRequested, grant: GrantPermit) -> bool:
    """Whether the grant is the answer to the request, of the same job."""
    return request.role == grant.role and request.phase is grant.phase and request.iteration == grant.iteration
