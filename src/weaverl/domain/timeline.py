"""Who ran where: the intervals that Gantt charts, metrics and the auditor are made from."""

import msgspec

from weaverl.domain.cluster import Slot
from weaverl.domain.jobs import PhaseKind


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """One phase of one iteration of one job. Microseconds on the controller's clock.

    The slots are held from ``granted_at`` to ``released_at`` (state off the slots or lingering; the next holder
    is granted no earlier); the body ran from ``started_at`` to ``ended_at``. A sync holds no slot.
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


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """All intervals of a run, by ``granted_at``."""

    intervals: tuple[Interval, ...]
