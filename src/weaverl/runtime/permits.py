"""A rank's line to the controller: asks for permits, waits for grants, clears and restores state when told to.

One thread of the runtime reads the rank's inbox. A grant goes to whoever waits for it; one that nobody waits for any
more (its phase was cancelled, or gave up on the controller) is given back, so that no slot is held for nothing.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import NamedTuple, Protocol

from weaverl.channel import names
from weaverl.channel.sender import Sender
from weaverl.channel.store import START, Store, Trim, Write
from weaverl.channel.wire import decode_command
from weaverl.domain.cluster import PoolKind
from weaverl.domain.commands import AnyCommand, GrantPermit, PrepareSlot, VacateSlot
from weaverl.domain.events import (
    AnyEvent,
    CheckpointWritten,
    PermitRequested,
    PhaseEnded,
    PhaseMeasured,
    PhaseReport,
    RankId,
    RankRegistered,
    SlotPrepared,
    SlotVacated,
    Token,
)
from weaverl.domain.jobs import PhaseKind
from weaverl.errors import ControllerLostError, FencedError, PhaseError, StoreUnavailableError

logger = logging.getLogger("weaverl.runtime")

OUTAGE_PATIENCE_SECONDS = 600.0
_POLL_SECONDS = 1.0


class SlotOwner(Protocol):
    """Who has state on the slots of a permit."""

    def vacate(self, token: Token) -> PhaseReport:
        """Save the state that lingers from a token's phase, if it is still there."""

    def prepare(self, command: PrepareSlot) -> PhaseReport | None:
        """Restore state ahead of a permit; None if that cannot be: then it is not on the slots."""

    def decline(self, grant: GrantPermit) -> bool:
        """Take note of a grant that nobody will use; whether its slots are clean."""


class Wanted(NamedTuple):
    """A permit that a phase waits for."""

    phase: PhaseKind
    pool: PoolKind
    iteration: int
    grant: Future[GrantPermit]

    def is_met_by(self, grant: GrantPermit) -> bool:
        """Whether the grant is the one for this phase."""
        return (grant.phase, grant.iteration) == (self.phase, self.iteration)


class PermitClient:
    """Permits of one rank.

    Args:
        store: the cluster's store.
        rank: who this is.
        owner: has the state that lingers on slots.
        outage_patience_seconds: how long a request waits while no controller leads.
    """

    def __init__(
        self, store: Store, rank: RankId, owner: SlotOwner, outage_patience_seconds: float = OUTAGE_PATIENCE_SECONDS
    ) -> None:
        self._store = store
        self._rank = rank
        self._owner = owner
        self._patience = outage_patience_seconds
        self._sender = Sender(store, names.rank_name(rank))
        self._lock = threading.Lock()
        self._wanted: Wanted | None = None
        self._early: deque[GrantPermit] = deque()
        self._failure: BaseException | None = None
        self._position = START
        """Up to here the inbox was read and acted on: what is before is dropped with the next end of a phase."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="weaverl-permits", daemon=True)

    def start(self, pid: int) -> None:
        """Register the rank and begin to listen."""
        self._send(RankRegistered(rank=self._rank, pid=pid, prepares=True))
        self._thread.start()

    def close(self) -> None:
        """Stop listening, soon."""
        self._stop.set()

    def want(self, phase: PhaseKind, pool: PoolKind, iteration: int) -> Wanted:
        """Take the place of the one phase of this process that waits; ``acquire`` does the waiting."""
        wanted = Wanted(phase, pool, iteration, Future())
        with self._lock:
            if self._failure is not None:
                raise self._failure
            self._wanted = wanted
            if self._early:
                wanted.grant.set_result(self._early.popleft())
        return wanted

    def acquire(self, wanted: Wanted) -> GrantPermit:
        """Ask for a permit, and wait until it is granted. Rank 0 asks for all ranks of its role.

        Raises ControllerLostError when no controller leads for as long as the patience, FencedError when this
        attempt of the job was given up, CancelledError (of ``concurrent.futures``) after ``abandon``.
        """
        try:
            if self._rank.rank == 0:
                self._send(self._request(wanted))
            grant = self._await(wanted.grant)
            self._refuse_other(wanted, grant)
            self.check()
        except BaseException:  # also an interrupt: a grant may be here, or on its way
            if not self.abandon(wanted) and wanted.grant.exception() is None:
                self.decline(wanted.grant.result())
            raise
        return grant

    def abandon(self, wanted: Wanted) -> bool:
        """Have ``acquire`` stop waiting; False if its grant has come already."""
        with self._lock:
            return wanted.grant.cancel()

    def decline(self, grant: GrantPermit) -> None:
        """Give back a permit under which nothing has run."""
        logger.info("gives back the permit for %s %d, which nobody waits for", grant.phase, grant.iteration)
        vacated = self._owner.decline(grant)
        self.finish(grant, PhaseReport(), vacated=vacated, failed=True)

    def finish(self, grant: GrantPermit, report: PhaseReport, *, vacated: bool, failed: bool) -> None:
        """Give a permit back. Without ``vacated`` the state lingers on the slots until somebody wants them."""
        ended = PhaseEnded(
            rank=self._rank,
            token=grant.token,
            phase=grant.phase,
            iteration=grant.iteration,
            vacated=vacated,
            report=report,
            failed=failed,
        )
        self._send(ended, Trim(names.rank_inbox(self._rank), self._position))

    def measured(self, phase: PhaseKind, iteration: int, report: PhaseReport, moved_bytes: int = 0) -> None:
        """Report a phase that needed no permit."""
        self._send(
            PhaseMeasured(rank=self._rank, phase=phase, iteration=iteration, report=report, moved_bytes=moved_bytes)
        )

    def saved(self, iteration: int) -> None:
        """Report that this rank's checkpoint of an iteration is written: the job can be moved after it."""
        self._send(CheckpointWritten(rank=self._rank, iteration=iteration))

    def left_slots(self, token: Token, report: PhaseReport) -> None:
        """Report that state is off the slots of a token's phase."""
        self._send(SlotVacated(rank=self._rank, token=token, report=report))

    def check(self) -> None:
        """Raise FencedError if this attempt may have no more effect; to be called before each side effect.

        While the store is away nobody can have been granted what is ours, so work goes on.
        """
        try:
            revoked = self._store.get(names.revoked(self._rank.job, self._rank.attempt))
        except StoreUnavailableError:
            return
        if revoked is not None:
            raise FencedError(f"attempt {self._rank.attempt} of {self._rank.job} was given up: this process must stop")

    def _request(self, wanted: Wanted) -> PermitRequested:
        return PermitRequested(
            job=self._rank.job,
            attempt=self._rank.attempt,
            role=self._rank.role,
            phase=wanted.phase,
            pool=wanted.pool,
            iteration=wanted.iteration,
        )

    def _await(self, grant: Future[GrantPermit]) -> GrantPermit:
        """The grant, as soon as it comes; meanwhile look whether it still can."""
        watch = _ControllerWatch(self._store, self._patience)
        while True:
            try:
                return grant.result(min(_POLL_SECONDS, self._patience))
            except TimeoutError:
                self.check()
                watch.look()

    def _refuse_other(self, wanted: Wanted, grant: GrantPermit) -> None:
        if not wanted.is_met_by(grant):
            raise PhaseError(
                f"{self._rank} entered {wanted.phase} {wanted.iteration} while its role was granted {grant.phase} "
                f"{grant.iteration}: all ranks of a role must enter the same phases in the same order"
            )

    def _listen(self) -> None:
        inbox = names.rank_inbox(self._rank)
        try:
            while not self._stop.is_set():
                try:
                    entries = self._store.read(inbox, self._position, wait_seconds=_POLL_SECONDS)
                except StoreUnavailableError:
                    continue
                for entry in entries:
                    self._take(decode_command(entry.data))
                    self._position = entry.position
        except BaseException as error:  # noqa: BLE001 - the thread's outermost loop: phases must learn of it
            logger.error("%s listens no more: %s", self._rank, error)
            self._fail(error)

    def _take(self, command: AnyCommand) -> None:
        match command:
            case GrantPermit() if not self._hand_over(command):
                self.decline(command)
            case VacateSlot(token=token):
                # Answered also if nothing was there: past its deadline the silent are killed.
                self.left_slots(token, self._owner.vacate(token))
            case PrepareSlot():
                self._prepare(command)

    def _prepare(self, command: PrepareSlot) -> None:
        """Commands are read in order: a grant that follows waits for the restore, and so does a demand to vacate."""
        report = self._owner.prepare(command)
        if report is None:
            self.left_slots(command.token, PhaseReport())
        else:
            self._send(SlotPrepared(rank=self._rank, token=command.token, report=report))

    def _hand_over(self, grant: GrantPermit) -> bool:
        """Give a grant to the phase that waits for it; False if nobody ever will.

        Only rank 0 asks, so only it can be sure; the others may be granted a phase before they come to it.
        """
        with self._lock:
            wanted = self._wanted
            if wanted is not None and not wanted.grant.done() and (self._rank.rank > 0 or wanted.is_met_by(grant)):
                wanted.grant.set_result(grant)
                return True
            if self._rank.rank == 0 or (wanted is not None and wanted.grant.cancelled() and wanted.is_met_by(grant)):
                return False
            self._early.append(grant)
            return True

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            self._failure = error
            if self._wanted is not None and not self._wanted.grant.done():
                self._wanted.grant.set_exception(error)

    def _send(self, event: AnyEvent, *more: Write) -> None:
        """Tell the controller; while the store is away, within the patience, keep trying."""
        _within(self._patience, lambda: self._sender.send(event, *more))


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
