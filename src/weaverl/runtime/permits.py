"""A rank's line to the controller: asks for permits, waits for grants, and clears lingering state when told to.

One thread of the runtime reads the rank's inbox. It takes the residency's lock before it touches state, as phase code
does, so state never moves under a running phase.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from weaverl.channel import names
from weaverl.channel.sender import Sender
from weaverl.channel.store import START, Store
from weaverl.channel.wire import decode_command
from weaverl.domain.cluster import PoolKind
from weaverl.domain.commands import GrantPermit, VacateSlot
from weaverl.domain.events import (
    AnyEvent,
    PermitRequested,
    PhaseEnded,
    PhaseMeasured,
    PhaseReport,
    RankId,
    RankRegistered,
    SlotVacated,
    Token,
)
from weaverl.domain.jobs import PhaseKind
from weaverl.errors import ClusterError, ControllerLostError, FencedError, StoreUnavailableError

logger = logging.getLogger("weaverl.runtime")

OUTAGE_PATIENCE_SECONDS = 600.0
_POLL_SECONDS = 1.0


class Vacate(Protocol):
    """Moves state that lingers from a token's phase off its slots; None if it has left them already."""

    def __call__(self, token: Token) -> PhaseReport | None:
        """Save what lingers."""


class PermitClient:
    """Permits of one rank.

    Args:
        store: the cluster's store.
        rank: who this is.
        vacate: clears the slots of lingering state, under the lock that phase code takes.
        outage_patience_seconds: how long a request waits while no controller leads.
    """

    def __init__(
        self, store: Store, rank: RankId, vacate: Vacate, outage_patience_seconds: float = OUTAGE_PATIENCE_SECONDS
    ) -> None:
        self._store = store
        self._rank = rank
        self._vacate = vacate
        self._patience = outage_patience_seconds
        self._sender = Sender(store, names.rank_name(rank))
        self._arrived = threading.Condition()
        self._grants: deque[GrantPermit] = deque()
        self._failure: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="weaverl-permits", daemon=True)

    def start(self, pid: int) -> None:
        """Register the rank and begin to listen."""
        self._send(RankRegistered(rank=self._rank, pid=pid))
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._stop.set()

    def acquire(self, phase: PhaseKind, pool: PoolKind, iteration: int) -> GrantPermit:
        """Ask for a permit, and wait until it is granted. Rank 0 asks for all ranks of its role.

        Raises ControllerLostError when no controller leads for as long as the patience, FencedError when this
        attempt of the job was given up.
        """
        if self._rank.rank == 0:
            self._send(
                PermitRequested(
                    job=self._rank.job,
                    attempt=self._rank.attempt,
                    role=self._rank.role,
                    phase=phase,
                    pool=pool,
                    iteration=iteration,
                )
            )
        grant = self._await_grant()
        if (grant.phase, grant.iteration) != (phase, iteration):
            raise ClusterError(
                f"{self._rank} entered {phase} {iteration} while its role was granted {grant.phase} "
                f"{grant.iteration}: all ranks of a role must enter the same phases in the same order"
            )
        self.check()
        return grant

    def finish(self, grant: GrantPermit, report: PhaseReport, *, vacated: bool, failed: bool) -> None:
        """Give a permit back. Without ``vacated`` the state lingers on the slots until somebody wants them."""
        self._send(
            PhaseEnded(
                rank=self._rank,
                token=grant.token,
                phase=grant.phase,
                iteration=grant.iteration,
                vacated=vacated,
                report=report,
                failed=failed,
            )
        )

    def measured(self, phase: PhaseKind, iteration: int, report: PhaseReport, moved_bytes: int = 0) -> None:
        """Report a phase that needed no permit."""
        self._send(
            PhaseMeasured(rank=self._rank, phase=phase, iteration=iteration, report=report, moved_bytes=moved_bytes)
        )

    def left_slots(self, token: Token, report: PhaseReport) -> None:
        """Report that state is off the slots of a token's phase."""
        self._send(SlotVacated(rank=self._rank, token=token, report=report))

    def check(self) -> None:
        """Raise FencedError if this attempt may have no more effect; to be called before each side effect.

        While the store is away nobody can have been granted what is ours, so work goes on.
        """
        try:
            revoked = self._store.get(names.revoked(self._rank.job))
        except StoreUnavailableError:
            return
        if revoked is not None and int(revoked) >= self._rank.attempt:
            raise FencedError(f"attempt {self._rank.attempt} of {self._rank.job} was given up: this process must stop")

    def _await_grant(self) -> GrantPermit:
        watch = _ControllerWatch(self._store, self._patience)
        with self._arrived:
            while not self._grants:
                if self._failure is not None:
                    raise self._failure
                if not self._arrived.wait(_POLL_SECONDS):
                    watch.look()
            return self._grants.popleft()

    def _listen(self) -> None:
        position = START
        try:
            while not self._stop.is_set():
                try:
                    entries = self._store.read(names.rank_inbox(self._rank), position, wait_seconds=_POLL_SECONDS)
                except StoreUnavailableError:
                    continue
                for entry in entries:
                    self._take(decode_command(entry.data))
                    position = entry.position
        except BaseException as error:  # the thread's outermost loop: phases must learn of it
            with self._arrived:
                self._failure = error
                self._arrived.notify_all()
            raise

    def _take(self, command: object) -> None:
        match command:
            case GrantPermit():
                with self._arrived:
                    self._grants.append(command)
                    self._arrived.notify_all()
            case VacateSlot(token=token):
                report = self._vacate(token)
                if report is not None:
                    self.left_slots(token, report)

    def _send(self, event: AnyEvent) -> None:
        """Tell the controller; while the store is away, within the patience, keep trying."""
        _within(self._patience, lambda: self._sender.send(event))


class _ControllerWatch:
    """Whether a controller leads: its beat changes, by our own clock."""

    def __init__(self, store: Store, patience_seconds: float) -> None:
        self._store = store
        self._patience = patience_seconds
        self._beat: bytes | None = None
        self._changed_at = time.monotonic()

    def look(self) -> None:
        """Raise ControllerLostError once the beat has stood still for longer than the patience."""
        try:
            beat = self._store.get(names.CONTROLLER_BEAT)
        except StoreUnavailableError:
            beat = self._beat
        now = time.monotonic()
        if beat != self._beat:
            self._beat, self._changed_at = beat, now
        if now - self._changed_at > self._patience:
            raise ControllerLostError(f"no controller has led for {self._patience:.0f} s: is the cluster up?")


def _within(patience_seconds: float, call: Callable[[], None]) -> None:
    deadline = time.monotonic() + patience_seconds
    while True:
        try:
            return call()
        except StoreUnavailableError as error:
            if time.monotonic() > deadline:
                raise ControllerLostError(f"{error}; gave up after {patience_seconds:.0f} s") from error
            logger.warning("%s; trying again", error)
