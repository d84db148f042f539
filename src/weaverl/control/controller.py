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
from weaverl.control.planner import Planner
from weaverl.control.recovery import SNAPSHOT_EVERY, Recovered, recover
from weaverl.control.status import describe
from weaverl.domain.cluster import Cluster
from weaverl.domain.commands import AnyCommand, SetTimer
from weaverl.domain.events import AnyEvent, ControllerStarted, NodeLost, RankId, TimerFired
from weaverl.domain.facts import SCHEMA, Fact
from weaverl.errors import FencedError, StoreUnavailableError
from weaverl.scheduling.state import Parameters
from weaverl.version import VERSION

logger = logging.getLogger("weaverl.controller")

LEASE_SECONDS = 10.0
BEAT_PATIENCE_SECONDS = 4.0
TIMER_GRACE_SECONDS = 10.0
"""No timer falls due this soon after a controller took over: while nobody led, nobody was heard."""

_BATCH = 256
_POLL_SECONDS = 0.2
_STATUS_SECONDS = 0.2
_IDLE_STATUS_SECONDS = 2.0


class Controller:
    """One controller process of a cluster.

    ``owner`` is the same for each controller of a host and cluster; whoever starts one sees to it that there are no
    two at a time. So a new one need not wait for the lease of a dead one to end.
    """

    def __init__(
        self,
        store: Store,
        cluster: Cluster,
        owner: str,
        parameters: Parameters = Parameters(),
        snapshot_every: int = SNAPSHOT_EVERY,
    ) -> None:
        self._store = store
        self._cluster = cluster
        self._owner = owner
        self._parameters = parameters
        self._snapshot_every = snapshot_every
        self._lease: Lease | None = None
        self._recovered = Recovered.empty(cluster)
        self._position = START
        self._clock = Clock()
        self._beats = _Beats()
        self._planner = Planner()
        self._status_due = 0.0
        self._renewal_due = 0.0
        self._beat_number = 0

    def run(self, stop: threading.Event) -> None:
        """Lead until told to stop.

        Raises FencedError when another controller has taken over, WireError for a log of a newer version.
        """
        if not self.take_over(stop):
            return
        while not stop.is_set():
            try:
                self.turn()
            except StoreUnavailableError as error:
                logger.warning("%s; trying again", error)
        self._planner.close()
        assert self._lease is not None
        self._store.release_lease(self._lease)

    def turn(self) -> None:
        """Housekeeping, and whatever has come in; timers fall due only when all that was said before is heard."""
        self._housekeeping()
        incoming = self._incoming()
        self._handle(incoming)
        if len(incoming) < _BATCH:
            self._handle(self._due_events())
            plan = self._planner.look(self._recovered.scheduler.state)
            self._handle([] if plan is None else [(plan, None)])

    def take_over(self, stop: threading.Event) -> bool:
        """Get the lease and recover; False if told to stop before."""
        while (lease := self._acquire_afresh()) is None:
            if stop.wait(0.5):
                return False
        self._lease = lease
        self._sender = Sender(self._store, "controller")
        self._recovered = recover(self._store, self._cluster)
        self._recovered.scheduler.state.parameters = self._parameters
        self._position = self._recovered.position
        self._clock = Clock(not_before=self._recovered.scheduler.state.now + 1)
        self._recovered.postpone_timers(self._clock.now() + round(TIMER_GRACE_SECONDS * 1e6))
        self._identity = self._store.identity()
        epoch = max(self._lease.token, self._recovered.scheduler.state.epoch + 1)
        self._commit([Put(names.EPOCH, str(epoch).encode())])
        self._handle([(ControllerStarted(epoch=epoch), None)])
        logger.info("leads in epoch %d; %d facts replayed", epoch, self._recovered.since_snapshot)
        return True

    def _acquire_afresh(self) -> Lease | None:
        """The lease with a token that no controller before us had: what a dead one has on its way is fenced."""
        lease = self._store.acquire_lease(names.LEADER, self._owner, LEASE_SECONDS)
        if lease is None:
            return None
        self._store.release_lease(lease)
        return self._store.acquire_lease(names.LEADER, self._owner, LEASE_SECONDS)

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
        self._planner.hear(commands)
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
        entries = self._store.read(names.EVENTS, self._position, limit=_BATCH, wait_seconds=wait)
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
        nodes = self._recovered.scheduler.state.nodes
        self._beats.look({name: beats.get(names.node_beat(name), b"") for name in nodes})
        away = [name for name, node in nodes.items() if not node.ready and self._beats.is_beating(name)]
        if away:
            self._beat_number += 1
            call = f"{self._recovered.scheduler.state.epoch}-{self._beat_number}".encode()
            self._commit([Put(names.roll_call(name), call) for name in away])
        return [
            NodeLost(node=name, reason=f"no beat for {BEAT_PATIENCE_SECONDS:.0f} s")
            for name, node in nodes.items()
            if node.lost_at is None and self._beats.is_silent(name)
        ]

    def _housekeeping(self) -> None:
        now = time.monotonic()
        if now >= self._renewal_due:
            self._renewal_due = now + LEASE_SECONDS / 4
            self._beat_number += 1
            assert self._lease is not None
            self._check_history()
            if not self._store.renew_lease(self._lease, LEASE_SECONDS):
                raise FencedError("another controller has taken over: this one stops")
            self._commit([Put(names.CONTROLLER_BEAT, str(self._beat_number).encode())])
        if self._recovered.since_snapshot >= self._snapshot_every:
            self._commit(self._recovered.snapshot(self._store.last_position(names.LOG)))
        if now >= self._status_due:
            self._status_due = now + _IDLE_STATUS_SECONDS
            status = describe(self._recovered.scheduler, time.time())
            self._commit([Put(names.STATUS, msgspec.json.encode(status))])

    def _check_history(self) -> None:
        """A store that lost writes knows less than we decided: stop, and let the next controller start an epoch."""
        identity = self._store.identity()
        lost = self._store.last_sequence("controller") < self._sender.sequence
        if lost or identity.offset < self._identity.offset:
            raise FencedError(
                f"the store lost writes (it had {self._identity.offset} commits, now {identity.offset}): a new epoch "
                f"is needed"
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
        self._changed: set[str] = set()
        self._looked_at = 0.0
        self._due = 0.0

    def is_due(self) -> bool:
        """Whether a second has passed since the last look."""
        return time.monotonic() >= self._due

    def forget(self) -> None:
        """The store was away: nobody could beat, so everybody's patience starts again."""
        self._seen.clear()

    def look(self, beats: dict[str, bytes]) -> None:
        """Take each node's present beat in. After a long time without a look everybody's patience starts again."""
        now = time.monotonic()
        if now - self._looked_at > BEAT_PATIENCE_SECONDS / 2:
            self.forget()
        self._looked_at, self._due = now, now + 1.0
        self._changed = {node for node, beat in beats.items() if node in self._seen and self._seen[node][0] != beat}
        for node in beats.keys() - self._seen.keys() | self._changed:
            self._seen[node] = (beats[node], now)

    def is_beating(self, node: str) -> bool:
        """Whether the node has beaten between the last two looks."""
        return node in self._changed

    def is_silent(self, node: str) -> bool:
        """Whether its beat has stood still for longer than its patience."""
        return self._looked_at - self._seen[node][1] > BEAT_PATIENCE_SECONDS if node in self._seen else False


def _readable(entry: Entry) -> AnyEvent | None:
    """The event of an entry; one that cannot be read is named in the log and passed over, not tried for ever."""
    try:
        return decode_event(entry.data)
    except WireError as error:
        logger.error("event %s is passed over: %s", entry.position, error)
        return None


def _ranks_of(command: AnyCommand, ranks: dict[str, tuple[RankId, ...]]) -> tuple[RankId, ...]:
    return ranks.get(getattr(command, "job", ""), ())
