"""A controller's state from the log: a snapshot, then facts replayed on it; nothing is decided again.

The log keeps the facts since the snapshot before the last, so that recent history can be drawn; older ones are dropped.
"""

from collections.abc import Iterator

import msgspec

from weaverl.channel import names
from weaverl.channel.store import START, Put, Store, Trim, Write
from weaverl.channel.wire import WireError, decode_fact
from weaverl.domain.cluster import Cluster
from weaverl.domain.commands import AnyCommand, SetTimer
from weaverl.domain.events import AnyEvent, TimerFired
from weaverl.domain.facts import SCHEMA, Fact
from weaverl.scheduling.scheduler import Scheduler, Snapshot
from weaverl.scheduling.state import JobRecord

_BATCH = 1000
SNAPSHOT_EVERY = 20_000
"""Facts between two snapshots."""


class StoredSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Scheduler state and timers as of a position of the log."""

    schema: int
    position: str
    timers: dict[str, int]
    scheduler: Snapshot


class Recovered(msgspec.Struct):
    """The scheduler and the timers that are set, as the log tells; and the position in the event stream behind it."""

    scheduler: Scheduler
    timers: dict[str, int]
    position: str
    snapshot_position: str = START
    since_snapshot: int = 0

    @classmethod
    def empty(cls, cluster: Cluster) -> "Recovered":
        """Before the first fact."""
        return cls(Scheduler(cluster), {}, START)

    def fold(self, fact: Fact) -> None:
        """Take one fact in."""
        self.scheduler.replay(fact.event, fact.commands)
        self.fold_timers(fact.event, fact.commands)
        self.since_snapshot += 1

    def fold_timers(self, event: AnyEvent, commands: tuple[AnyCommand, ...]) -> None:
        """Take in what an event and its commands say about timers."""
        if isinstance(event, TimerFired):
            self.timers.pop(event.name, None)
        for command in commands:
            if isinstance(command, SetTimer):
                self.timers[command.name] = command.at

    def snapshot(self, log_position: str) -> list[Write]:
        """What keeps the state as of a position of the log, and drops facts that nobody needs any more."""
        stored = StoredSnapshot(
            schema=SCHEMA, position=log_position, timers=self.timers, scheduler=self.scheduler.snapshot()
        )
        writes: list[Write] = [
            Put(names.SNAPSHOT, msgspec.msgpack.encode(stored)),
            Trim(names.LOG, self.snapshot_position),
        ]
        self.snapshot_position, self.since_snapshot = log_position, 0
        return writes

    def postpone_timers(self, until: int) -> None:
        """Nothing falls due before then: what happened while nobody led gets the time to be heard."""
        self.timers = {name: max(at, until) for name, at in self.timers.items()}

    def due_timers(self, now: int) -> list[str]:
        """Names of timers that are due, earliest first."""
        return [name for at, name in sorted((at, name) for name, at in self.timers.items() if at <= now)]

    def next_timer(self) -> int | None:
        """When the next timer is due."""
        return min(self.timers.values(), default=None)


def recover(store: Store, cluster: Cluster) -> Recovered:
    """Rebuild the state that the last controller had committed. Raises WireError if it is from a newer version."""
    recovered = Recovered.empty(cluster)
    stored = _read_snapshot(store)
    if stored is not None:
        recovered = Recovered(Scheduler.from_snapshot(stored.scheduler), stored.timers, START, stored.position)
    for fact in read_facts(store, recovered.snapshot_position):
        recovered.fold(fact)
    recovered.position = (store.get(names.CURSOR) or START.encode()).decode()
    return recovered


def read_facts(store: Store, after: str = START) -> Iterator[Fact]:
    """Facts of the log after a position, in order."""
    while entries := store.read(names.LOG, after, limit=_BATCH):
        for entry in entries:
            yield decode_fact(entry.data)
        after = entries[-1].position


def snapshot_jobs(store: Store) -> dict[str, JobRecord]:
    """Jobs by name as of the last snapshot."""
    stored = _read_snapshot(store)
    return {} if stored is None else stored.scheduler.cluster.jobs


def _read_snapshot(store: Store) -> StoredSnapshot | None:
    data = store.get(names.SNAPSHOT)
    if data is None:
        return None
    version = msgspec.msgpack.decode(data, type=_Version).schema
    if version > SCHEMA:
        raise WireError(f"the snapshot has schema {version}, this weaverl reads up to {SCHEMA}: upgrade weaverl")
    return msgspec.msgpack.decode(data, type=StoredSnapshot)


class _Version(msgspec.Struct, frozen=True):
    schema: int
