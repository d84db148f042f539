"""A producer's way into the store: every commit gets the next sequence number, so that retries never repeat it."""

import threading
from collections.abc import Sequence

from weaverl.channel.names import EVENTS
from weaverl.channel.store import Append, Lease, Store, Write
from weaverl.channel.wire import encode_event
from weaverl.domain.events import AnyEvent


class Sender:
    """Commits of one producer, in order. Threads may share it."""

    def __init__(self, store: Store, producer: str) -> None:
        self._store = store
        self._producer = producer
        self._sequence = store.last_sequence(producer)
        self._unsettled: list[Write] | None = None
        self._lock = threading.Lock()

    @property
    def sequence(self) -> int:
        """The number of the last commit that was answered."""
        return self._sequence

    def send(self, event: AnyEvent, *more: Write) -> None:
        """Tell the controller, together with other writes or not at all."""
        self.commit([Append(EVENTS, encode_event(event)), *more])

    def commit(self, writes: Sequence[Write], guard: Lease | None = None) -> None:
        """Apply writes as the producer's next commit.

        One that got no answer may be tried again: the same writes are taken as the same commit, and happen once.
        Other writes give it up and take the next number, so that it is dropped should it still arrive.
        """
        with self._lock:
            if self._unsettled is not None and self._unsettled != list(writes):
                self._sequence += 1
            self._unsettled = list(writes)
            self._store.commit(writes, producer=self._producer, sequence=self._sequence + 1, guard=guard)
            self._sequence += 1
            self._unsettled = None
