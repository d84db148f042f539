"""Three ways to run a phase: as a plain call, measured only, or under a permit with state moved on and off slots."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

import msgspec

from weaverl.channel.store import Store
from weaverl.domain.cluster import Node, PoolKind, Slot
from weaverl.domain.commands import GrantPermit
from weaverl.domain.events import PhaseReport, RankId, Token
from weaverl.domain.jobs import PhaseKind
from weaverl.runtime.no_state import NoState, StateMover
from weaverl.runtime.observe import Observer
from weaverl.runtime.permits import PermitClient


class Progress(msgspec.Struct):
    """What ``runtime_hook`` was last told within a phase: counts since the phase began."""

    done: int = 0
    total: int = 0
    tokens: int = 0


class Conductor(Protocol):
    """Opens and closes phases."""

    def phase(
        self, kind: PhaseKind, pool: PoolKind, iteration: int, progress: Progress
    ) -> AbstractContextManager[None]:
        """A block within which the phase's body runs."""

    def synced(self, iteration: int, microseconds: int, moved_bytes: int) -> None:
        """A weight sync was measured."""

    def keep_off_slots(self) -> None:
        """State was built outside a phase: it may not stay on a device that is not ours."""

    def check(self) -> None:
        """Raise FencedError if this process may have no more effect."""


class PlainCalls:
    """No controller: a phase is a plain call."""

    def phase(
        self, kind: PhaseKind, pool: PoolKind, iteration: int, progress: Progress
    ) -> AbstractContextManager[None]:
        """Nothing is opened."""
        return _nothing()

    def synced(self, iteration: int, microseconds: int, moved_bytes: int) -> None:
        """Nobody asks."""

    def keep_off_slots(self) -> None:
        """All devices are ours."""

    def check(self) -> None:
        """Nobody else is there."""


class Observed:
    """Phases are measured and written down; no permit is asked."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    @contextmanager
    def phase(self, kind: PhaseKind, pool: PoolKind, iteration: int, progress: Progress) -> Iterator[None]:
        """Measure the body."""
        started = _now_us()
        try:
            yield
        finally:
            self._observer.record(
                kind, iteration, started, _now_us() - started, tokens=progress.tokens, samples=progress.done
            )

    def synced(self, iteration: int, microseconds: int, moved_bytes: int) -> None:
        """Write the sync down."""
        started = _now_us() - microseconds
        self._observer.record(PhaseKind.SYNC, iteration, started, microseconds, moved_bytes=moved_bytes)

    def keep_off_slots(self) -> None:
        """All devices are ours."""

    def check(self) -> None:
        """Nobody else is there."""


class Permitted:
    """Phases run under permits. One residency holds all state of this process; it follows the permit to its slots."""

    def __init__(self, store: Store, rank: RankId, nodes: dict[str, Node], slots: tuple[Slot, ...]) -> None:
        self._residency: StateMover = NoState()
        self._slots = slots
        self.nodes = nodes
        self._lingering: GrantPermit | None = None
        self._client = PermitClient(store, rank, self._vacate)
        self._client.start(os.getpid())

    @contextmanager
    def phase(self, kind: PhaseKind, pool: PoolKind, iteration: int, progress: Progress) -> Iterator[None]:
        """Wait for the permit, bring state to its slots, and give both back at the end, whatever the body does."""
        asked = _now_us()
        grant = self._client.acquire(kind, pool, iteration)
        waited = _now_us() - asked
        with self._residency.lock:
            restored_bytes, restore_us = self._arrive(grant)
            started = _now_us()
            failed = True
            try:
                yield
                failed = False
            finally:
                body_us = _now_us() - started
                saved_bytes, save_us = self._leave(grant)
                report = PhaseReport(
                    wait_us=waited,
                    restore_us=restore_us,
                    body_us=body_us,
                    save_us=save_us,
                    restored_bytes=restored_bytes,
                    saved_bytes=saved_bytes,
                    tokens=progress.tokens,
                    samples=progress.done,
                )
                self._client.finish(grant, report, vacated=grant.vacate, failed=failed)

    def synced(self, iteration: int, microseconds: int, moved_bytes: int) -> None:
        """Report the sync."""
        self._client.measured(PhaseKind.SYNC, iteration, PhaseReport(body_us=microseconds), moved_bytes)

    def move_with(self, residency: StateMover) -> None:
        """From now on this residency's state follows the permits."""
        self._residency = residency

    def keep_off_slots(self) -> None:
        """State that was built without a permit goes to host memory at once."""
        with self._residency.lock:
            if self._lingering is None:
                self._residency.save()

    def check(self) -> None:
        """Raise FencedError if this attempt was given up."""
        self._client.check()

    def _arrive(self, grant: GrantPermit) -> tuple[int, int]:
        """State comes to the permit's slots; from slots of the other pool it leaves first."""
        started = _now_us()
        left = self._lingering
        if left is not None and left.pool is not grant.pool:
            moved = self._residency.save()
            self._lingering = None
            report = PhaseReport(saved_bytes=moved.bytes, save_us=moved.microseconds)
            self._client.left_slots(left.token, report)
        self._pin_to(grant)
        move = self._residency.restore(self._owned(grant))
        return move.bytes, _now_us() - started

    def _leave(self, grant: GrantPermit) -> tuple[int, int]:
        """State leaves the slots if somebody waits for them, and lingers otherwise."""
        if not grant.vacate:
            self._residency.settle(self._owned(grant))
            self._lingering = grant
            return 0, 0
        self._lingering = None
        move = self._residency.save()
        return move.bytes, move.microseconds

    def _vacate(self, token: Token) -> PhaseReport | None:
        with self._residency.lock:
            if self._lingering is None or self._lingering.token != token:
                return None
            move = self._residency.save()
            self._lingering = None
            return PhaseReport(saved_bytes=move.bytes, save_us=move.microseconds)

    def _owned(self, grant: GrantPermit) -> tuple[Slot, ...]:
        """The permit's slots that this process drives."""
        return tuple(slot for slot in grant.slots if slot in self._slots)

    def _pin_to(self, grant: GrantPermit) -> None:
        """A process with slots on several nodes runs on the CPUs of those that it holds now."""
        if len(self.nodes) > 1:
            cpus = {cpu for slot in self._owned(grant) for cpu in self.nodes[slot.node].cpus}
            if cpus and threading.current_thread() is threading.main_thread():
                os.sched_setaffinity(0, cpus)


@contextmanager
def _nothing() -> Iterator[None]:
    yield


def _now_us() -> int:
    return time.monotonic_ns() // 1000
