"""The controller: reads events, asks the scheduler, and writes facts and commands, all in one commit.

It holds a lease, whose token is the epoch; a second controller waits for it, and one that lost it can commit nothing
any more. It keeps no state that the log does not give back.
"""

import logging
import threading
import time

import msgspec

from weaverl.channel import names
from weaverl.channel.sender import Sender
from weaverl.channel.store import START, Append, Entry, Lease, Put, Store, Trim, Write
from weaverl.channel.wire import WireError, decode_event, encode_fact
from weaverl.control.clock import Clock
from weaverl.control.delivery import deliver
from weaverl.control.recovery import SNAPSHOT_EVERY, Recovered, recover
from weaverl.control.status import describe
from weaverl.domain.cluster import Cluster
from weaverl.domain.commands import AnyCommand, SetTimer
from weaverl.domain.events import AnyEvent, ControllerStarted, NodeLost, RankId, TimerFired
from weaverl.domain.facts import SCHEMA, Fact
from weaverl.errors import FencedError, StoreUnavailableError
from weaverl.version import VERSION

logger = logging.getLogger("weaverl.controller")

LEASE_SECONDS = 10.0
BEAT_PATIENCE_SECONDS = 4.0
_POLL_SECONDS = 0.2
_STATUS_SECONDS = 0.2
_IDLE_STATUS_SECONDS = 2.0


class Controller:
    """One controller process of a cluster."""

    def __init__(self, store: Store, cluster: Cluster, owner: str) -> None:
        self._store = store
        self._cluster = cluster
        self._owner = owner
        self._lease: Lease | None = None
        self._recovered = Recovered.empty(cluster)
        self._position = START
        self._clock = Clock()
        self._beats = _Beats()
        self._status_due = 0.0
        self._renewal_due = 0.0
        self._beat_number = 0

    def run(self, stop: threading.Event) -> None:
        """Lead until told to stop. Raises FencedError when another controller has taken over."""
        if not self._take_over(stop):
            return
        while not stop.is_set():
            self._housekeeping()
            self._handle(self._due_events() + self._incoming())
        assert self._lease is not None
        self._store.release_lease(self._lease)

    def _take_over(self, stop: threading.Event) -> bool:
        while self._lease is None:
            self._lease = self._store.acquire_lease(names.LEADER, self._owner, LEASE_SECONDS)
            if self._lease is None and stop.wait(0.5):
                return False
        self._sender = Sender(self._store, "controller")
        self._recovered = recover(self._store, self._cluster)
        self._position = self._recovered.position
        self._clock = Clock(not_before=self._recovered.scheduler.state.now + 1)
        self._identity = self._store.identity()
        epoch = max(self._lease.token, self._recovered.scheduler.state.epoch + 1)
        self._commit([Put(names.EPOCH, str(epoch).encode())])
        self._handle([(ControllerStarted(epoch=epoch), None)])
        logger.info("leads in epoch %d; %d facts replayed", epoch, self._recovered.since_snapshot)
        return True

    def _handle(self, events: list[tuple[AnyEvent | None, str | None]]) -> None:
        """Decide on a batch of events, and commit what follows as one; what is decided on is dropped from the inbox."""
        writes: list[Write] = []
        for event, position in events:
            self._position = position or self._position
            if event is None:
                continue
            stamped = msgspec.structs.replace(event, at=max(self._clock.now(), self._recovered.scheduler.state.now))
            writes += self._decide(stamped)
        if events:
            cursor = Put(names.CURSOR, self._position.encode())
            self._commit([*writes, cursor, Trim(names.EVENTS, self._position)])
            self._status_due = min(self._status_due, time.monotonic() + _STATUS_SECONDS)

    def _decide(self, event: AnyEvent) -> list[Write]:
        scheduler = self._recovered.scheduler
        ranks = {name: tuple(r.rank for r in job.ranks.values()) for name, job in scheduler.state.jobs.items()}
        commands = scheduler.handle(event)
        self._recovered.fold_timers(event, tuple(commands))
        self._recovered.since_snapshot += 1
        writes: list[Write] = []
        for command in commands:
            writes += deliver(command, _ranks_of(command, ranks))
            if not isinstance(command, SetTimer):
                logger.debug("%s", command)
        fact = Fact(
            schema=SCHEMA,
            code=VERSION,
            policy=scheduler.state.parameters.policy,
            event=event,
            commands=tuple(commands),
        )
        return [Append(names.LOG, encode_fact(fact)), *writes]

    def _incoming(self) -> list[tuple[AnyEvent | None, str | None]]:
        due = self._recovered.next_timer()
        wait = _POLL_SECONDS if due is None else min(_POLL_SECONDS, max(due - self._clock.now(), 0) / 1e6)
        try:
            entries = self._store.read(names.EVENTS, self._position, wait_seconds=wait)
        except StoreUnavailableError as error:
            logger.warning("%s; trying again", error)
            return []
        return [(_readable(entry), entry.position) for entry in entries]

    def _due_events(self) -> list[tuple[AnyEvent | None, str | None]]:
        timers: list[AnyEvent] = [TimerFired(name=name) for name in self._recovered.due_timers(self._clock.now())]
        return [(event, None) for event in timers + self._lost_nodes()]

    def _lost_nodes(self) -> list[AnyEvent]:
        if not self._beats.is_due():
            return []
        try:
            beats = self._store.get_prefix(names.NODE_BEATS)
        except StoreUnavailableError:
            self._beats.forget()
            return []
        silent = self._beats.silent({key.removeprefix(names.NODE_BEATS): beat for key, beat in beats.items()})
        nodes = self._recovered.scheduler.state.nodes
        return [
            NodeLost(node=name, reason=f"no beat for {BEAT_PATIENCE_SECONDS:.0f} s")
            for name in silent
            if name in nodes and nodes[name].ready
        ]

    def _housekeeping(self) -> None:
        now = time.monotonic()
        if now >= self._renewal_due:
            self._renewal_due = now + LEASE_SECONDS / 4
            self._beat_number += 1
            assert self._lease is not None
            self._check_history()
            self._store.renew_lease(self._lease, LEASE_SECONDS)
            self._commit([Put(names.CONTROLLER_BEAT, str(self._beat_number).encode())])
        if self._recovered.since_snapshot >= SNAPSHOT_EVERY:
            self._commit(self._recovered.snapshot(self._store.last_position(names.LOG)))
        if now >= self._status_due:
            self._status_due = now + _IDLE_STATUS_SECONDS
            status = describe(self._recovered.scheduler, time.time())
            self._commit([Put(names.STATUS, msgspec.json.encode(status))])

    def _check_history(self) -> None:
        """A store that lost writes knows less than we decided: stop, and let the next controller start an epoch."""
        identity = self._store.identity()
        if identity.offset < self._identity.offset:
            raise FencedError(
                f"the store went back from {self._identity.offset} commits to {identity.offset}: a new epoch is needed"
            )
        self._identity = identity

    def _commit(self, writes: list[Write]) -> None:
        """Commit, and go on trying while the store is away: what was decided is not decided again."""
        while True:
            try:
                self._sender.commit(writes, guard=self._lease)
            except StoreUnavailableError as error:
                logger.warning("%s; trying again", error)
            else:
                return


class _Beats:
    """When each node's beat last changed, on our monotonic clock: no wall clock is compared with another."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[bytes, float]] = {}
        self._due = 0.0

    def is_due(self) -> bool:
        """Whether a second has passed since the last look."""
        return time.monotonic() >= self._due

    def forget(self) -> None:
        """The store was away: nobody could beat, so everybody's patience starts again."""
        self._seen.clear()

    def silent(self, beats: dict[str, bytes]) -> list[str]:
        """Nodes whose beat has stood still for longer than its patience."""
        now = time.monotonic()
        self._due = now + 1.0
        for node, beat in beats.items():
            if node not in self._seen or self._seen[node][0] != beat:
                self._seen[node] = (beat, now)
        return [node for node, (_, at) in self._seen.items() if now - at > BEAT_PATIENCE_SECONDS]


def _readable(entry: Entry) -> AnyEvent | None:
    """The event of an entry; one that cannot be read is named in the log and passed over, not tried for ever."""
    try:
        return decode_event(entry.data)
    except WireError as error:
        logger.error("event %s is passed over: %s", entry.position, error)
        return None


def _ranks_of(command: AnyCommand, ranks: dict[str, tuple[RankId, ...]]) -> tuple[RankId, ...]:
    return ranks.get(getattr(command, "job", ""), ())
