"""A controller's state from the log: facts are replayed, nothing is decided again."""

from collections.abc import Iterator

import msgspec

from weaverl.channel import names
from weaverl.channel.store import START, Store
from weaverl.channel.wire import decode_fact
from weaverl.domain.cluster import Cluster
from weaverl.domain.commands import AnyCommand, SetTimer
from weaverl.domain.events import AnyEvent, TimerFired
from weaverl.domain.facts import Fact
from weaverl.scheduling.scheduler import Scheduler

_BATCH = 1000


class Recovered(msgspec.Struct):
    """The scheduler and the timers that are set, as the log tells; and the position in the event stream behind it."""

    scheduler: Scheduler
    timers: dict[str, int]
    position: str
    num_facts: int = 0

    @classmethod
    def empty(cls, cluster: Cluster) -> "Recovered":
        """Before the first fact."""
        return cls(Scheduler(cluster), {}, START)

    def fold(self, fact: Fact) -> None:
        """Take one fact in."""
        self.scheduler.replay(fact.event, fact.commands)
        self.fold_timers(fact.event, fact.commands)
        self.num_facts += 1

    def fold_timers(self, event: AnyEvent, commands: tuple[AnyCommand, ...]) -> None:
        """Take in what an event and its commands say about timers."""
        if isinstance(event, TimerFired):
            self.timers.pop(event.name, None)
        for command in commands:
            if isinstance(command, SetTimer):
                self.timers[command.name] = command.at

    def due_timers(self, now: int) -> list[str]:
        """Names of timers that are due, earliest first."""
        return [name for at, name in sorted((at, name) for name, at in self.timers.items()) if at <= now]

    def next_timer(self) -> int | None:
        """When the next timer is due."""
        return min(self.timers.values(), default=None)


def recover(store: Store, cluster: Cluster) -> Recovered:
    """Rebuild the state that the last controller had committed."""
    recovered = Recovered.empty(cluster)
    for fact in read_facts(store):
        recovered.fold(fact)
    recovered.position = (store.get(names.CURSOR) or START.encode()).decode()
    return recovered


def read_facts(store: Store) -> Iterator[Fact]:
    """All facts of the log, in order."""
    position = START
    while entries := store.read(names.LOG, position, limit=_BATCH):
        for entry in entries:
            yield decode_fact(entry.data)
        position = entries[-1].position
