"""A store on a Redis (7 or newer) or Valkey server."""

import time
from collections.abc import Sequence
from typing import Any, NamedTuple, Self, assert_never

import redis

from weaverl.channel.connections import Connections, parse_info
from weaverl.channel.scripts import (
    ACQUIRE_LEASE,
    COMMIT,
    COMMIT_THAT_FREES,
    IDENTITY,
    RELEASE_LEASE,
    RENEW_LEASE,
    Script,
)
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
from weaverl.channel.url import Endpoint, parse_url
from weaverl.errors import FencedError, StoreRefusedError

_LARGEST_SEQUENCE = 2**53
"""Lua compares numbers as doubles."""

_SCAN_COUNT = 1000
_Argument = bytes | str | int


class _Sighting(NamedTuple):
    """Another owner's lease as it was last seen to change. ``at`` is on our monotonic clock."""

    token: bytes
    beats: bytes
    ttl_seconds: float
    at: float


class RedisStore:
    """A store on a server that several hosts reach. Threads may share it; a waiting read delays no commit.

    A call that gets no answer is asked again for ``patience_seconds``. That is safe: a commit is known by its
    producer and sequence, a lease by its owner. An answer is waited for ``socket_timeout_seconds`` at most, which is
    how soon a vanished host is noticed; the last attempt may end that much after the patience. A repeated
    ``release_lease`` whose first answer was lost says False.

    Leases end on the server's wall clock. If that jumps forward they end early, all at once: their holders learn
    it from the next guarded commit or renewal. If it jumps back they would not end: whoever keeps asking for a
    lease takes it over once its holder has not renewed it for twice its length, by the asker's monotonic clock.
    In both cases the guard of a commit is what keeps two holders apart, never the time.

    Streams, keys and leases have name spaces of their own under ``prefix``: no name can meet one of another kind.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        prefix: str = "weaverl:",
        patience_seconds: float = 30.0,
        socket_timeout_seconds: float = 5.0,
    ) -> None:
        self._prefix = prefix
        # The server looks for ended waits ten times a second: an answer may come 0.1 s late.
        self._longest_wait_seconds = socket_timeout_seconds / 3
        self._connections = Connections(
            endpoint, patience_seconds=patience_seconds, socket_timeout_seconds=socket_timeout_seconds
        )
        self._sightings: dict[str, _Sighting] = {}

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        username: str | None = None,
        password: str | None = None,
        prefix: str = "weaverl:",
        patience_seconds: float = 30.0,
        socket_timeout_seconds: float = 5.0,
    ) -> Self:
        """A store by its URL; nothing is connected yet. Raises UsageError for a URL that cannot be read."""
        return cls(
            parse_url(url, username=username, password=password),
            prefix=prefix,
            patience_seconds=patience_seconds,
            socket_timeout_seconds=socket_timeout_seconds,
        )

    def commit(self, writes: Sequence[Write], *, producer: str, sequence: int, guard: Lease | None = None) -> bool:
        """Apply all writes, or none, in one round trip; see ``Store.commit``.

        Raises FencedError if the guard is lost. A full store refuses it whole (StoreRefusedError), unless all
        writes are Delete and Trim.
        """
        assert 0 < sequence < _LARGEST_SEQUENCE, sequence
        lease = self._lease(guard.name) if guard else self._commits
        keys = [self._key(producer_key(producer)), self._commits, lease]
        arguments: list[_Argument] = [sequence, guard.token, guard.owner] if guard else [sequence, "", ""]
        for write in writes:
            self._encode(write, keys, arguments)
        frees = bool(writes) and all(isinstance(write, Delete | Trim) for write in writes)
        try:
            answer = self._run(COMMIT_THAT_FREES if frees else COMMIT, keys, arguments)
        except _StoreFullError:
            # The answer to an earlier attempt may have been lost before the store filled up.
            if self.last_sequence(producer) >= sequence:
                return False
            raise
        if isinstance(answer, list):
            assert guard is not None
            raise FencedError(
                f"lease {guard.name!r} with token {guard.token} is no longer held "
                f"(token now: {answer[0].decode() or 'none'}): stop"
            )
        return bool(answer)

    def last_sequence(self, producer: str) -> int:
        """The sequence of the producer's last applied commit, 0 if there is none."""
        return int(self.get(producer_key(producer)) or 0)

    def read(self, stream: str, after: str, *, limit: int = 256, wait_seconds: float = 0.0) -> list[Entry]:
        """Records after a position, in order; waits up to ``wait_seconds`` for the first, then returns [].

        Waits in slices shorter than the socket timeout, so that silence of the network is told from an empty stream.
        """
        deadline = time.monotonic() + wait_seconds
        while True:
            remaining = min(deadline - time.monotonic(), self._longest_wait_seconds)
            block = ("BLOCK", _milliseconds(remaining)) if remaining > 0 else ()
            answer = self._execute("XREAD", "COUNT", limit, *block, "STREAMS", self._stream(stream), after)
            if answer:
                return [Entry(position.decode(), fields[1]) for position, fields in answer[0][1]]
            if not block or time.monotonic() >= deadline:
                return []

    def last_position(self, stream: str) -> str:
        """The position of a stream's last record, START if it has none."""
        answer = self._execute("XREVRANGE", self._stream(stream), "+", "-", "COUNT", 1)
        return str(answer[0][0].decode()) if answer else START

    def get(self, key: str) -> bytes | None:
        """The value of a key."""
        value: bytes | None = self._execute("GET", self._key(key))
        return value

    def get_prefix(self, prefix: str) -> dict[str, bytes]:
        """All keys that begin with ``prefix``, with their values; goes through all names, so not for hot paths."""
        values: dict[str, bytes] = {}
        pattern, cursor = _escape(self._key(prefix)) + "*", b"0"
        while True:
            cursor, keys = self._execute("SCAN", cursor, "MATCH", pattern, "COUNT", _SCAN_COUNT)
            if keys:
                found = zip(keys, self._execute("MGET", *keys), strict=True)
                skipped = len(self._key(""))
                values.update({key.decode()[skipped:]: value for key, value in found if value is not None})
            if cursor == b"0":
                return values

    def acquire_lease(self, name: str, owner: str, ttl_seconds: float) -> Lease | None:
        """Take the lease if nobody holds it; see ``Store.acquire_lease``.

        Works in a full store too, or nobody could take over and make room.
        """
        seen = self._sightings.get(name)
        stale = seen is not None and time.monotonic() - seen.at >= 2 * seen.ttl_seconds
        overtaken = (seen.token, seen.beats) if seen is not None and stale else ("", "")
        taken, token, *holder = self._run(
            ACQUIRE_LEASE,
            [self._lease(name), self._prefix + "token:" + name],
            [owner, _milliseconds(ttl_seconds), *overtaken],
        )
        if taken:
            self._sightings.pop(name, None)
            return Lease(name, int(token), owner)
        beats, ttl = holder
        if seen is None or (seen.token, seen.beats) != (token, beats):
            self._sightings[name] = _Sighting(token, beats, int(ttl) / 1000, time.monotonic())
        return None

    def renew_lease(self, lease: Lease, ttl_seconds: float) -> bool:
        """Push the end of a held lease out; False if it was lost (expired or taken). Works in a full store too."""
        arguments: list[_Argument] = [lease.token, lease.owner, _milliseconds(ttl_seconds)]
        return bool(self._run(RENEW_LEASE, [self._lease(lease.name)], arguments))

    def release_lease(self, lease: Lease) -> bool:
        """Give a held lease back; False, and nothing happens, if it was lost. Works in a full store too."""
        return bool(self._run(RELEASE_LEASE, [self._lease(lease.name)], [lease.token, lease.owner]))

    def identity(self) -> Identity:
        """Which server process answers now, and how many commits its data holds.

        The count is ours because the server has no offset that only grows: replication offsets begin again at 0
        with a restart, and the append-only file shrinks when it is rewritten.
        """
        info, commits = self._run(IDENTITY, [self._commits], [])
        return Identity(parse_info(info)["run_id"], int(commits))

    def close(self) -> None:
        """Drop all idle connections; call it when no other thread is in a call."""
        self._connections.close()

    @property
    def _commits(self) -> str:
        return self._prefix + "commits"

    def _key(self, key: str) -> str:
        return self._prefix + "key:" + key

    def _stream(self, stream: str) -> str:
        return self._prefix + "stream:" + stream

    def _lease(self, name: str) -> str:
        return self._prefix + "lease:" + name

    def _encode(self, write: Write, keys: list[str], arguments: list[_Argument]) -> None:
        match write:
            case Append(stream, data):
                keys.append(self._stream(stream))
                arguments += ("A", data)
            case Put(key, value, ttl_seconds):
                keys.append(self._key(key))
                arguments += ("P", value, 0 if ttl_seconds is None else _milliseconds(ttl_seconds))
            case Delete(key):
                keys += (self._key(key), self._stream(key))
                arguments.append("D")
            case Trim(stream, position):
                keys.append(self._stream(stream))
                arguments += ("T", _next_position(position))
            case _:
                assert_never(write)

    def _run(self, script: Script, keys: list[str], arguments: list[_Argument]) -> Any:
        try:
            return self._execute("EVALSHA", script.sha, len(keys), *keys, *arguments)
        except redis.exceptions.NoScriptError:
            self._execute("SCRIPT", "LOAD", script.text)
            return self._execute("EVALSHA", script.sha, len(keys), *keys, *arguments)

    def _execute(self, *command: _Argument) -> Any:
        try:
            return self._connections.execute(*command)
        except redis.exceptions.NoScriptError:
            raise
        except redis.exceptions.OutOfMemoryError as error:
            raise _StoreFullError("store is full: raise its maxmemory, or end jobs to make room") from error
        except (redis.ResponseError, redis.AuthenticationError) as error:
            raise StoreRefusedError(f"store refused {command[0]!s}: {error}") from error


class _StoreFullError(StoreRefusedError):
    """The store is at its maxmemory."""


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def _next_position(position: str) -> str:
    major, minor = position.split("-")
    return f"{int(major)}-{int(minor) + 1}"


def _escape(name: str) -> str:
    return "".join("\\" + letter if letter in "\\*?[]^-" else letter for letter in name)
