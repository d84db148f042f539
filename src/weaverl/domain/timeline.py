"""Who ran where: the intervals that Gantt charts, metrics and the auditor are made from."""

import msgspec

from weaverl.domain.cluster import PoolKind, Slot
from weaverl.domain.jobs import PhaseKind


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """One phase of one iteration of one job. Microseconds on the controller's clock.

    The slots are held from ``granted_at`` to ``released_at`` (state off the slots or lingering; the next holder
    is granted no earlier); the body ran from ``started_at`` to ``ended_at``. A sync holds no slot. A phase whose
    slots changed while it ran has several intervals, counted by ``part``. ``solo_us`` is what the phase would have
    taken alone, where that is known beforehand: in a simulation.
    """

    job: str
    attempt: int
    phase: PhaseKind
    iteration: int
    slots: tuple[Slot, ...]
    requested_at: int
    granted_at: int
    started_at: int
    ended_at: int
    released_at: int
    token: str = ""
    restore_us: int = 0
    save_us: int = 0
    restored_bytes: int = 0
    saved_bytes: int = 0
    moved_bytes: int = 0
    tokens: int = 0
    samples: int = 0
    part: int = 0
    solo_us: int = 0


class NodeSpan(msgspec.Struct, frozen=True, kw_only=True):
    """A node that a group had from ``taken_at`` to ``given_back_at``, used or not: what is paid for. Microseconds."""

    node: str
    group: str
    taken_at: int
    given_back_at: int


class Restore(msgspec.Struct, frozen=True, kw_only=True):
    """State that was restored onto a job's slots of a pool (``restored``) ahead of a permit. Microseconds.

    It is on the slots from ``began_at`` on, whole by ``ready_at``, until ``left_at``: when a permit of the job took it
    over, or it was off them again. Nobody works with it there, so that it is no busy time.
    """

    restored: PoolKind
    job: str
    attempt: int
    slots: tuple[Slot, ...]
    token: str
    began_at: int
    ready_at: int
    left_at: int
    restored_bytes: int = 0


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """All intervals of a run, by ``granted_at``, and what was restored ahead of them."""

    intervals: tuple[Interval, ...]
    restores: tuple[Restore, ...] = ()
