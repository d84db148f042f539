"""A store inside one process: for tests, and for control-plane tests with several threads."""

import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple, assert_never

from weaverl.channel.store import (
    START,
    Append,
    Delete,
    Entry,
    Identity,
    Lease,
    Put,
    Trim,
    Write,
    producer_key,
)
from weaverl.errors import FencedError


class _Value(NamedTuple):
    data: bytes
    ends_at: float | None


class _Holding(NamedTuple):
    lease: Lease
    ends_at: float


class InMemoryStore:
    """A store in memory, shared by the threads of one process.

    ``clock`` gives the seconds that leases and keys with an end are measured by; a test passes its own, so that
    nothing has to sleep. Readers wait in real time.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._streams: dict[str, list[Entry]] = {}
        self._values: dict[str, _Value] = {}
        self._holdings: dict[str, _Holding] = {}
        self._tokens: dict[str, int] = {}
        self._num_records = 0
        self._num_commits = 0

    def commit(self, writes: Sequence[Write], *, producer: str, sequence: int, guard: Lease | None = None) -> bool:
        """Apply all writes, or none; see ``Store.commit``. Raises FencedError if the guard is lost."""
        with self._changed:
            if sequence <= self._last_sequence(producer):
                return False
            if guard is not None and self._holder(guard.name) != guard:
                raise FencedError(f"lease {guard.name!r} with token {guard.token} is no longer held: stop")
            self._values[producer_key(producer)] = _Value(str(sequence).encode(), None)
            self._num_commits += 1
            for write in writes:
                self._apply(write)
            self._changed.notify_all()
            return True

    def last_sequence(self, producer: str) -> int:
        """The sequence of the producer's last applied commit, 0 if there is none."""
        with self._changed:
            return self._last_sequence(producer)

    def read(self, stream: str, after: str, *, limit: int = 256, wait_seconds: float = 0.0) -> list[Entry]:
        """Records after a position, in order; waits up to ``wait_seconds`` for the first."""
        with self._changed:
            self._changed.wait_for(lambda: self._following(stream, after, 1), wait_seconds)
            return self._following(stream, after, limit)

    def last_position(self, stream: str) -> str:
        """The position of a stream's last record, START if it has none."""
        with self._changed:
            entries = self._streams.get(stream)
            return entries[-1].position if entries else START

    def get(self, key: str) -> bytes | None:
        """The value of a key."""
        with self._changed:
            value = self._values.get(key)
            return value.data if value is not None and self._lives(value) else None

    def get_prefix(self, prefix: str) -> dict[str, bytes]:
        """All keys that begin with ``prefix``, with their values."""
        with self._changed:
            return {
                key: value.data for key, value in self._values.items() if key.startswith(prefix) and self._lives(value)
            }

    def acquire_lease(self, name: str, owner: str, ttl_seconds: float) -> Lease | None:
        """Take the lease if nobody holds it; see ``Store.acquire_lease``."""
        with self._changed:
            lease = self._holder(name)
            if lease is None:
                self._tokens[name] = self._tokens.get(name, 0) + 1
                lease = Lease(name, self._tokens[name], owner)
            elif lease.owner != owner:
                return None
            self._holdings[name] = _Holding(lease, self._clock() + ttl_seconds)
            return lease

    def renew_lease(self, lease: Lease, ttl_seconds: float) -> bool:
        """Push the end of a held lease out; False if it was lost."""
        with self._changed:
            if self._holder(lease.name) != lease:
                return False
            self._holdings[lease.name] = _Holding(lease, self._clock() + ttl_seconds)
            return True

    def release_lease(self, lease: Lease) -> bool:
        """Give a held lease back; False, and nothing happens, if it was lost."""
        with self._changed:
            if self._holder(lease.name) != lease:
                return False
            del self._holdings[lease.name]
            return True

    def identity(self) -> Identity:
        """Always the same server: it ends with the process."""
        with self._changed:
            return Identity("memory", self._num_commits)

    def close(self) -> None:
        """Nothing to drop: other threads may still use the store."""

    def _apply(self, write: Write) -> None:
        match write:
            case Append(stream, data):
                self._num_records += 1
                self._streams.setdefault(stream, []).append(Entry(f"{self._num_records}-0", data))
            case Put(key, value, ttl_seconds):
                ends_at = None if ttl_seconds is None else self._clock() + ttl_seconds
                self._values[key] = _Value(value, ends_at)
            case Delete(key):
                self._streams.pop(key, None)
                self._values.pop(key, None)
            case Trim(stream, position):
                entries = self._streams.get(stream, [])
                del entries[: bisect_right(entries, _order(position), key=_entry_order)]
            case _:
                assert_never(write)

    def _following(self, stream: str, after: str, limit: int) -> list[Entry]:
        entries = self._streams.get(stream, [])
        first = bisect_right(entries, _order(after), key=_entry_order)
        return entries[first : first + limit]

    def _last_sequence(self, producer: str) -> int:
        value = self._values.get(producer_key(producer))
        return 0 if value is None else int(value.data)

    def _holder(self, name: str) -> Lease | None:
        holding = self._holdings.get(name)
        return holding.lease if holding is not None and self._clock() < holding.ends_at else None

    def _lives(self, value: _Value) -> bool:
        return value.ends_at is None or self._clock() < value.ends_at


def _order(position: str) -> tuple[int, int]:
    major, _, minor = position.partition("-")
    return int(major), int(minor)


def _entry_order(entry: Entry) -> tuple[int, int]:
    return _order(entry.position)
