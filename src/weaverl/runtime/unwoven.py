"""Phases without permits: as plain calls, or measured only."""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

import msgspec

from weaverl.domain.cluster import PoolKind
from weaverl.domain.jobs import PhaseKind
from weaverl.runtime.observe import Observer

if TYPE_CHECKING:
    from weaverl.runtime.residency import Residency


class OpenPhase(msgspec.Struct, eq=False):
    """The phase that is open in this process, and what ``runtime_hook`` was last told: counts since it began."""

    kind: PhaseKind
    pool: PoolKind
    iteration: int
    done: int = 0
    total: int = 0
    tokens: int = 0


class PlainCalls:
    """No controller: a phase is a plain call, nobody asks, and nothing moves."""

    residency: "Residency | None" = None

    def turn(self, phase: OpenPhase) -> AbstractContextManager[None]:
        """Nothing is waited for."""
        return nullcontext()

    async def turn_off_loop(self, phase: OpenPhase) -> AbstractContextManager[None]:
        """Nothing is waited for."""
        return self.turn(phase)

    def keep(self, state: object) -> None:
        """All devices are ours."""

    def synced(self, iteration: int, microseconds: int, moved_bytes: int) -> None:
        """Nobody asks."""

    def saved(self, iteration: int) -> None:
        """Nobody asks."""

    def check(self) -> None:
        """Nobody else is there."""


class Observed(PlainCalls):
    """Phases are plain calls, measured and written down."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    @contextmanager
    def turn(self, phase: OpenPhase) -> Iterator[None]:
        """Measure the body."""
        started = now_us()
        try:
            yield
        finally:
            self._observer.record(
                phase.kind, phase.iteration, started, now_us() - started, tokens=phase.tokens, samples=phase.done
            )

    def synced(self, iteration: int, microseconds: int, moved_bytes: int) -> None:
        """Write the sync down."""
        started = now_us() - microseconds
        self._observer.record(PhaseKind.SYNC, iteration, started, microseconds, moved_bytes=moved_bytes)


def now_us() -> int:
    """Microseconds on the monotonic clock."""
    return time.monotonic_ns() // 1000
