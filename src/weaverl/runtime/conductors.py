"""How a phase is run: under a permit, with state moved on and off slots; without one, as ``unwoven`` does."""

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from weaverl.channel.store import Store
from weaverl.domain.cluster import Node, PoolKind, Slot
from weaverl.domain.commands import GrantPermit, PrepareSlot
from weaverl.domain.events import PhaseReport, Token
from weaverl.domain.jobs import PhaseKind
from weaverl.errors import DeviceMemoryError, FencedError, HostMemoryError, PhaseError, ResidencyError
from weaverl.runtime.environment import RankEnvironment
from weaverl.runtime.off_loop import off_loop
from weaverl.runtime.permits import OUTAGE_PATIENCE_SECONDS, PermitClient, Wanted
from weaverl.runtime.slots import device_memory
from weaverl.runtime.unwoven import OpenPhase, now_us

if TYPE_CHECKING:
    from weaverl.runtime.residency import Residency


logger = logging.getLogger("weaverl.runtime")


class Conductor(Protocol):
    """Opens and closes phases. A turn is waited for first; its block then runs the body, in one thread."""

    @property
    def residency(self) -> "Residency | None":
        """What moves this process's state; None where all devices are ours."""

    def turn(self, phase: OpenPhase) -> AbstractContextManager[None]:
        """Wait for the phase's turn; the block within which its body runs."""

    async def turn_off_loop(self, phase: OpenPhase) -> AbstractContextManager[None]:
        """The same, with the event loop free while it waits."""

    def keep(self, state: object) -> None:
        """Make state part of what moves; without a permit it may not stay on a device."""

    def synced(self, iteration: int, microseconds: int, moved_bytes: int) -> None:
        """A weight sync was measured."""

    def saved(self, iteration: int) -> None:
        """This process could go on after an iteration: its checkpoint is written."""

    def check(self) -> None:
        """Raise FencedError if this process may have no more effect."""


class Permitted:
    """Phases run under permits. One residency holds all state of this process; it follows the permit to its slots.

    Args:
        store: the cluster's store.
        environment: who this process is.
        nodes: those of its slots, by name.
        outage_patience_seconds: how long a phase waits while no controller leads.
    """

    def __init__(
        self,
        store: Store,
        environment: RankEnvironment,
        nodes: dict[str, Node],
        outage_patience_seconds: float = OUTAGE_PATIENCE_SECONDS,
    ) -> None:
        self._rank = environment.rank
        self._slots = environment.slots
        self._ledger = environment.ledger
        self._host_bytes = environment.host_bytes
        self._nodes = nodes
        self._residency: Residency | None = None
        self._moving = threading.RLock()
        self._at: GrantPermit | PrepareSlot | None = None
        """Whose slots our state is on: of the phase that runs, or that it lingers from or for. Under ``_moving``."""
        self._running = False
        """Whether a phase has its permit: until it gives that back its slots are where state belongs."""
        self._pid = os.getpid()
        self._client = PermitClient(store, environment.rank, self, outage_patience_seconds)
        self._client.start(self._pid)

    @property
    def residency(self) -> "Residency":
        """What moves this process's state; the first use brings torch in."""
        from weaverl.runtime.residency import Residency

        with self._moving:
            if self._residency is None:
                memory, accelerator = device_memory(self._ledger, self._nodes)
                self._residency = Residency(memory, accelerator=accelerator, host_limit_bytes=self._host_bytes or None)
            return self._residency

    def turn(self, phase: OpenPhase) -> AbstractContextManager[None]:
        """Wait for the permit; the block brings state to its slots, and gives both back at the end, come what may."""
        asked = now_us()
        grant = self._client.acquire(self._want(phase))
        return self._body(phase, grant, now_us() - asked)

    async def turn_off_loop(self, phase: OpenPhase) -> AbstractContextManager[None]:
        """The same, with the event loop free while it waits for the permit."""
        asked = now_us()
        wanted = self._want(phase)
        grant = await off_loop(
            lambda: self._client.acquire(wanted),
            abandon=lambda: self._client.abandon(wanted),
            give_back=self._client.decline,
        )
        return self._body(phase, grant, now_us() - asked)

    def keep(self, state: object) -> None:
        """Make state part of what moves. Outside of phases it goes to host memory at once."""
        with self._moving:
            self.residency.add(state)
            if self._at is None:
                self.residency.save()
            else:
                self.residency.settle(self._owned(self._at))

    def synced(self, iteration: int, microseconds: int, moved_bytes: int) -> None:
        """Report the sync."""
        self._client.measured(PhaseKind.SYNC, iteration, PhaseReport(body_us=microseconds), moved_bytes)

    def saved(self, iteration: int) -> None:
        """Report the checkpoint."""
        self._client.saved(iteration)

    def check(self) -> None:
        """Raise FencedError if this attempt was given up."""
        self._client.check()

    def close(self) -> None:
        """Ask for nothing more."""
        self._client.close()

    def vacate(self, token: Token) -> PhaseReport:
        """Save what lingers from a token's phase; called by the thread that listens to the controller.

        It can not be the phase that runs: that one's permit has not been given back.
        """
        with self._moving:
            there = self._at is not None and self._at.token == token
            return self._save() if there else PhaseReport()

    def prepare(self, command: PrepareSlot) -> PhaseReport | None:
        """Restore state onto slots ahead of a permit; called by the thread that listens to the controller.

        None, and nothing is on the slots, if a phase runs, this attempt was given up, or state cannot be moved there.
        """
        with self._moving:
            if self._running or (self._at is not None and self._at.token > command.token):
                return None
            try:
                self._client.check()
                return self._restore_ahead(command)
            except (FencedError, DeviceMemoryError, HostMemoryError, ResidencyError) as error:
                logger.info("cannot restore its state ahead: %s", error)
                return None

    def _restore_ahead(self, command: PrepareSlot) -> PhaseReport:
        """Under ``_moving``. Where it fails, state is in host memory, or where it was under an earlier token."""
        started = now_us()
        left = self._at
        if left is not None and left.pool is not command.pool:
            self._client.left_slots(left.token, self._save())
        moved = self._residency.restore(self._owned(command)).bytes if self._residency else 0
        self._at = command
        return PhaseReport(restore_us=now_us() - started, restored_bytes=moved)

    def decline(self, grant: GrantPermit) -> bool:
        """Take note of a grant that nobody will use; what lingers on its slots does so under its token from now on."""
        with self._moving:
            if self._at is not None and self._at.pool is grant.pool:
                self._at = grant
            return self._at is not grant

    def _want(self, phase: OpenPhase) -> Wanted:
        if os.getpid() != self._pid:
            raise PhaseError(f"a {phase.kind} phase was called in a fork of {self._rank}: call it in the rank itself")
        if self._rank.role in tuple(PoolKind) and self._rank.role != phase.pool:
            raise PhaseError(
                f"a {phase.kind} phase was called in the {self._rank.role} role, which has no slots in the "
                f"{phase.pool} pool: call it in the {phase.pool} role"
            )
        return self._client.want(phase.kind, phase.pool, phase.iteration)

    @contextmanager
    def _body(self, phase: OpenPhase, grant: GrantPermit, wait_us: int) -> Iterator[None]:
        restored_bytes = restore_us = body_us = 0
        failed = True
        try:
            restored_bytes, restore_us = self._arrive(grant)
            started = now_us()
            try:
                yield
                failed = False
            finally:
                body_us = now_us() - started
        finally:
            report = PhaseReport(
                wait_us=wait_us,
                restore_us=restore_us,
                body_us=body_us,
                restored_bytes=restored_bytes,
                tokens=phase.tokens,
                samples=phase.done,
            )
            self._leave(grant, report, failed)

    def _arrive(self, grant: GrantPermit) -> tuple[int, int]:
        """State comes to the permit's slots, from slots of the other pool if it lingers there; bytes, microseconds."""
        started = now_us()
        with self._moving:
            self._running = True
            left = self._at
            if left is not None and left.pool is grant.pool:
                self._at = grant
            elif left is not None:
                self._client.left_slots(left.token, self._save())
            self._pin_to(grant)
            moved = self._residency.restore(self._owned(grant)).bytes if self._residency else 0
            self._at = grant
        return moved, now_us() - started

    def _leave(self, grant: GrantPermit, report: PhaseReport, failed: bool) -> None:
        """The permit goes back when state has left, or lingers accounted; also when it could not be moved."""
        saved = PhaseReport()
        try:
            saved = self._depart(grant)
        except BaseException:  # also an interrupt: what is reported of the phase is that it failed
            failed = True
            raise
        finally:
            report = msgspec.structs.replace(report, saved_bytes=saved.saved_bytes, save_us=saved.save_us)
            self._client.finish(grant, report, vacated=self._at is not grant, failed=failed)

    def _depart(self, grant: GrantPermit) -> PhaseReport:
        """State leaves the slots if somebody waits for them or it has outgrown them, and lingers otherwise."""
        with self._moving:
            self._running = False
            if self._at is not grant or self._residency is None or grant.vacate:
                return self._save()
            try:
                self._residency.settle(self._owned(grant))
            except DeviceMemoryError:
                self._save()
                raise
            return PhaseReport()

    def _save(self) -> PhaseReport:
        """Move state to host memory; under ``_moving``."""
        move = self._residency.save() if self._residency else None
        self._at = None
        return PhaseReport(saved_bytes=move.bytes, save_us=move.microseconds) if move else PhaseReport()

    def _owned(self, grant: GrantPermit | PrepareSlot) -> tuple[Slot, ...]:
        """The slots of a permit, or of what is restored ahead of one, that this process drives."""
        return tuple(slot for slot in grant.slots if slot in self._slots)

    def _pin_to(self, grant: GrantPermit) -> None:
        """A process with slots on several nodes runs on the CPUs of those that it holds now, with all its threads."""
        if len(self._nodes) < 2:
            return
        cpus = {cpu for slot in self._owned(grant) for cpu in self._nodes[slot.node].cpus}
        for thread in Path("/proc/self/task").iterdir() if cpus else ():
            with suppress(ProcessLookupError):  # it has ended meanwhile
                os.sched_setaffinity(int(thread.name), cpus)
