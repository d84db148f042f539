"""What is to be done: the scheduler answers every event with a list of these.

A command carries all that is needed both to carry it out and to rebuild the scheduler's state from the log.
"""

import msgspec

from weaverl.domain.cluster import PoolKind, Slot
from weaverl.domain.events import RankId, Token
from weaverl.domain.groups import Group, Move, Pin
from weaverl.domain.jobs import JobState, PhaseKind, PhaseProfile, Role


class Verdict(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One placement that was looked at for a job: its price, and why it was refused (empty: it was taken).

    ``added_usd``: dollars that it is expected to add; None where the policy does not ask.
    """

    kind: str
    group: str
    added_usd_per_hour: float
    predicted_slowdowns: dict[str, float] = {}
    refused: str = ""
    added_usd: float | None = None


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all commands."""


class AcceptJob(Command, frozen=True, kw_only=True, tag=True):
    """The job is known from here on."""

    job: str
    request: str = ""


class RefuseRequest(Command, frozen=True, kw_only=True, tag=True):
    """A request cannot be met as it stands; nothing was changed."""

    request: str
    reason: str


class AcknowledgeRequest(Command, frozen=True, kw_only=True, tag=True):
    """A request was taken."""

    request: str


class AdmitJob(Command, frozen=True, kw_only=True, tag=True):
    """The job is pinned; its group is as given here from now on.

    ``bound``: the slowdown over its life with which it ends by its deadline, where that is less than its SLO.
    """

    job: str
    attempt: int
    group: Group
    pin: Pin
    verdicts: tuple[Verdict, ...] = ()
    predicted_slowdowns: dict[str, float] = {}
    profiling: bool = False
    bound: float | None = None


class QueueJob(Command, frozen=True, kw_only=True, tag=True):
    """Nothing fits the job now."""

    job: str
    verdicts: tuple[Verdict, ...] = ()


class LearnProfile(Command, frozen=True, kw_only=True, tag=True):
    """The first iterations of a job without a profile gave one; its group is open for packing."""

    job: str
    profile: PhaseProfile


class StartRank(Command, frozen=True, kw_only=True, tag=True):
    """The node's agent starts one process of the job."""

    rank: RankId
    node: str
    role: Role
    world_size: int
    slots: tuple[Slot, ...]
    role_sizes: dict[str, int]
    master_node: str
    host_bytes: int = 0
    working_directory: str = "."
    environment: dict[str, str] = {}
    checkpoint_directory: str | None = None


class GrantPermit(Command, frozen=True, kw_only=True, tag=True):
    """All ranks of the role may run the phase on the slots.

    ``vacate``: somebody else waits for the slots, so state leaves them at the end of the phase. ``later``: slots
    that another job's tail still holds; a ``WidenPermit`` follows when they come free.
    """

    job: str
    attempt: int
    role: str
    token: Token
    phase: PhaseKind
    pool: PoolKind
    iteration: int
    slots: tuple[Slot, ...]
    ranks: int
    vacate: bool
    later: tuple[Slot, ...] = ()


class MoveTail(Command, frozen=True, kw_only=True, tag=True):
    """The role's ranks move what is left of their rollout to the slots of ``keep`` and save what is on the others."""

    job: str
    attempt: int
    role: str
    token: Token
    keep: tuple[Slot, ...]
    ranks: int


class WidenPermit(Command, frozen=True, kw_only=True, tag=True):
    """Slots that the permit's grant had to leave to a tail are free: the rollout spreads over them."""

    job: str
    attempt: int
    role: str
    token: Token
    slots: tuple[Slot, ...]
    ranks: int


class VacateSlot(Command, frozen=True, kw_only=True, tag=True):
    """The role's ranks save what lingers on the slots; past the deadline the job is killed."""

    job: str
    attempt: int
    role: str
    token: Token
    slots: tuple[Slot, ...]
    ranks: int


class PrepareSlot(Command, frozen=True, kw_only=True, tag=True):
    """The role's ranks restore their state onto the slots ahead of the job's next phase in the pool.

    It is no permit: from here on the state lingers there under the token as after a phase, and is vacated like it.
    """

    job: str
    attempt: int
    role: str
    token: Token
    pool: PoolKind
    slots: tuple[Slot, ...]
    ranks: int


class RegroupJobs(Command, frozen=True, kw_only=True, tag=True):
    """A group's nodes and members are as given here from now on; without members it is gone."""

    group: Group


class PlanMove(Command, frozen=True, kw_only=True, tag=True):
    """The job is to move at the end of an iteration, once it has written its checkpoint."""

    job: str
    move: Move


class DropMove(Command, frozen=True, kw_only=True, tag=True):
    """The job stays after all, or waits as its place was gone. ``unsaved``: it saved nothing since it was to leave."""

    job: str
    attempt: int
    reason: str
    unsaved: bool = False


class RefusePlan(Command, frozen=True, kw_only=True, tag=True):
    """A proposed plan cannot be followed; nothing was changed."""

    base_version: int
    reason: str


class KillJob(Command, frozen=True, kw_only=True, tag=True):
    """The node's agent kills all processes of the attempt and confirms their death."""

    job: str
    attempt: int
    node: str
    reason: str


class ChangeJobState(Command, frozen=True, kw_only=True, tag=True):
    """A job goes through its life. ``final`` is where a job that is stopping will end; queued: it is moved."""

    job: str
    attempt: int
    state: JobState
    final: JobState | None = None
    reason: str = ""


class SetTimer(Command, frozen=True, kw_only=True, tag=True):
    """An event ``TimerFired(name)`` is wanted at a time (microseconds of the controller's clock)."""

    name: str
    at: int


AnyCommand = (
    AcceptJob
    | RefuseRequest
    | AcknowledgeRequest
    | AdmitJob
    | QueueJob
    | LearnProfile
    | StartRank
    | GrantPermit
    | MoveTail
    | WidenPermit
    | VacateSlot
    | PrepareSlot
    | RegroupJobs
    | PlanMove
    | DropMove
    | RefusePlan
    | KillJob
    | ChangeJobState
    | SetTimer
)
