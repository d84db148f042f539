"""What happens: everything that may change scheduler state comes in as one of these.

``at`` is stamped by the controller on receipt (integer microseconds, never falling); senders leave it 0.
Durations were measured by the process that ran them, on its monotonic clock.
"""

import msgspec

from weaverl.domain.cluster import Node, PoolKind, Slot
from weaverl.domain.groups import Move
from weaverl.domain.jobs import JobSpec, PhaseKind


class Token(msgspec.Struct, frozen=True, order=True):
    """A fencing token: it grows with every grant, and the epoch with every controller start."""

    epoch: int
    counter: int

    def __str__(self) -> str:
        return f"{self.epoch}.{self.counter}"


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all events."""

    at: int = 0


class RankId(msgspec.Struct, frozen=True, order=True):
    """One process of one attempt of a job."""

    job: str
    attempt: int
    role: str
    rank: int

    def __str__(self) -> str:
        return f"{self.job}/{self.role}-{self.rank}"


class ControllerStarted(Event, frozen=True, kw_only=True, tag=True):
    """A controller took over; nothing is granted on a node until its agent has reported in this epoch."""

    epoch: int


class AgentReported(Event, frozen=True, kw_only=True, tag=True):
    """An agent (re)joined: the node it serves and the ranks that live there."""

    epoch: int
    node: Node
    alive: tuple[RankId, ...] = ()


class NodeLost(Event, frozen=True, kw_only=True, tag=True):
    """An agent stopped beating; its slots are quarantined until it reports again."""

    node: str
    reason: str = ""


class JobSubmitted(Event, frozen=True, kw_only=True, tag=True):
    """Somebody asks for a job to run. ``request`` names the reply."""

    spec: JobSpec
    request: str = ""


class JobCancelled(Event, frozen=True, kw_only=True, tag=True):
    """Somebody asks for a job to end."""

    job: str
    request: str = ""


class RankRegistered(Event, frozen=True, kw_only=True, tag=True):
    """``weave.init()`` ran in a rank. ``prepares``: it knows how to restore its state ahead of a permit."""

    rank: RankId
    pid: int = 0
    prepares: bool = False


class PermitRequested(Event, frozen=True, kw_only=True, tag=True):
    """Rank 0 of a role wants to run one phase of one iteration on the job's slots of a pool."""

    job: str
    attempt: int
    role: str
    phase: PhaseKind
    pool: PoolKind
    iteration: int


class PhaseReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank measured of one phase. Microseconds and bytes.

    ``body`` is inside the phase body; ``restore`` and ``save`` move state; ``wait`` is from request to grant.
    """

    wait_us: int = 0
    restore_us: int = 0
    body_us: int = 0
    save_us: int = 0
    restored_bytes: int = 0
    saved_bytes: int = 0
    tokens: int = 0
    samples: int = 0


class PhaseEnded(Event, frozen=True, kw_only=True, tag=True):
    """A rank left a phase. ``vacated``: its state is off the slots already; otherwise it lingers there."""

    rank: RankId
    token: Token
    phase: PhaseKind
    iteration: int
    vacated: bool
    report: PhaseReport
    failed: bool = False


class PhaseMeasured(Event, frozen=True, kw_only=True, tag=True):
    """A phase that needs no permit was run and measured: a sync, or any phase in observe mode."""

    rank: RankId
    phase: PhaseKind
    iteration: int
    report: PhaseReport
    moved_bytes: int = 0


class CheckpointWritten(Event, frozen=True, kw_only=True, tag=True):
    """A rank has written all that it needs to go on after an iteration."""

    rank: RankId
    iteration: int


class TailReached(Event, frozen=True, kw_only=True, tag=True):
    """A rollout is down to its tail: it can go on on the slots of ``keep`` alone, if somebody wants the others."""

    rank: RankId
    token: Token
    iteration: int
    keep: tuple[Slot, ...]


class TailMoved(Event, frozen=True, kw_only=True, tag=True):
    """A rank has moved its tail: its slots under ``token`` that are not kept are clean."""

    rank: RankId
    token: Token


class SlotVacated(Event, frozen=True, kw_only=True, tag=True):
    """A rank saved its lingering state to host memory; the slots it had under ``token`` are clean."""

    rank: RankId
    token: Token
    report: PhaseReport


class SlotPrepared(Event, frozen=True, kw_only=True, tag=True):
    """A rank has restored its state ahead of a permit: it lingers on the slots that it was given under ``token``.

    One that could not, or need not any more, says ``SlotVacated``.
    """

    rank: RankId
    token: Token
    report: PhaseReport


class ProcessExited(Event, frozen=True, kw_only=True, tag=True):
    """The main process of a rank ended. ``exit_code`` is negative for a signal, None if it cannot be known.

    ``stopped``: its agent was ending the attempt by then.
    """

    rank: RankId
    node: str
    exit_code: int | None
    last_lines: tuple[str, ...] = ()
    stopped: bool = False


class StartFailed(Event, frozen=True, kw_only=True, tag=True):
    """An agent could not start a rank."""

    rank: RankId
    node: str
    reason: str


class DeathConfirmed(Event, frozen=True, kw_only=True, tag=True):
    """No process of the attempt is left on the node, and its device memory is back."""

    job: str
    attempt: int
    node: str


class TimerFired(Event, frozen=True, kw_only=True, tag=True):
    """A timer set by a command is due."""

    name: str


class PlanProposed(Event, frozen=True, kw_only=True, tag=True):
    """Jobs that had better be elsewhere: planned aside, on the placement of version ``base_version``."""

    base_version: int
    moves: tuple[Move, ...]


AnyEvent = (
    ControllerStarted
    | AgentReported
    | NodeLost
    | JobSubmitted
    | JobCancelled
    | RankRegistered
    | PermitRequested
    | PhaseEnded
    | PhaseMeasured
    | CheckpointWritten
    | TailReached
    | TailMoved
    | SlotVacated
    | SlotPrepared
    | ProcessExited
    | StartFailed
    | DeathConfirmed
    | TimerFired
    | PlanProposed
)
