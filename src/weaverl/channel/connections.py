"""Connections to a Redis or Valkey server that outlive its restarts, within a stated patience.

redis-py's own retries stay off: they would repeat commands that are not safe to repeat, and in step with every
other client. Here every attempt is ours: jittered, capped, bounded, and logged once an outage.
"""

import logging
import os
import random
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import Any, Protocol

import redis
from redis.backoff import NoBackoff
from redis.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.retry import Retry

from weaverl.channel.url import Endpoint
from weaverl.errors import StoreRefusedError, StoreUnavailableError

_log = logging.getLogger("weaverl.channel")

FIRST_PAUSE_SECONDS = 0.01
LONGEST_PAUSE_SECONDS = 2.0
_OLDEST_VERSION = 7

# Answers of a server that will be able to serve, or that another server is about to take over from.
_PASSING_CODES = ("BUSY ", "UNBLOCKED ", "NOREPLICAS ")
_PASSING_ERRORS = (
    redis.ConnectionError,
    redis.TimeoutError,
    redis.exceptions.ReadOnlyError,
    redis.exceptions.TryAgainError,
    redis.exceptions.ClusterDownError,
)


class _Wire(Protocol):
    """What is used here of a redis-py connection, which redis-py leaves untyped."""

    def connect(self) -> None: ...
    def on_connect(self) -> None: ...
    def disconnect(self) -> None: ...
    def send_command(self, *command: bytes | str | int) -> None: ...
    def read_response(self) -> Any: ...


class Connections:
    """Connections to one server, each used by one thread at a time, opened as threads need them.

    A forked child starts with none of its parent's. Every new connection is checked: a server that evicts, is
    clustered or too old is refused, a replica counts as a lost connection.
    """

    def __init__(self, endpoint: Endpoint, *, patience_seconds: float, socket_timeout_seconds: float) -> None:
        self._endpoint = endpoint
        self._patience_seconds = patience_seconds
        self._socket_timeout_seconds = socket_timeout_seconds
        self._start_afresh()

    def execute(self, *command: bytes | str | int) -> Any:
        """The server's answer to a command that is safe to repeat, in one round trip while all is well.

        Raises StoreUnavailableError after ``patience_seconds`` of failed attempts, StoreRefusedError for a server
        that cannot be used, redis.ResponseError for the command's own errors and redis.AuthenticationError.
        """
        started = time.monotonic()
        failures = 0
        while True:
            reused = bool(self._idle)
            try:
                answer = self._attempt(command)
            except redis.RedisError as error:
                if not _passes(error):
                    raise
                self.close()
                if reused and isinstance(error, redis.ConnectionError):
                    continue
                failures += 1
                self._pause(error, failures, started)
            else:
                if self._outage_since is not None:
                    self._end_outage()
                return answer

    def close(self) -> None:
        """Drop the connections that no thread is using."""
        while True:
            try:
                self._idle.pop().disconnect()
            except IndexError:
                return

    def _start_afresh(self) -> None:
        self._pid = os.getpid()
        self._idle: deque[_Wire] = deque()
        self._outage_lock = threading.Lock()
        self._outage_since: float | None = None

    def _attempt(self, command: tuple[bytes | str | int, ...]) -> Any:
        connection = self._take()
        try:
            connection.send_command(*command)
            answer = connection.read_response()
        except redis.ResponseError as error:
            if _passes(error):
                connection.disconnect()
            else:
                self._idle.append(connection)
            raise
        except BaseException:  # also an interrupt
            # An answer may still be on its way; nobody else must take it for theirs.
            connection.disconnect()
            raise
        self._idle.append(connection)
        return answer

    def _take(self) -> _Wire:
        if self._pid != os.getpid():
            self._start_afresh()
        try:
            return self._idle.pop()
        except IndexError:
            connection = self._make_connection()
            connection.connect()
            return connection

    def _make_connection(self) -> _Wire:
        endpoint = self._endpoint
        options: dict[str, Any] = {
            "db": endpoint.database,
            "username": endpoint.username,
            "password": endpoint.password,
            "socket_timeout": self._socket_timeout_seconds,
            "socket_connect_timeout": self._socket_timeout_seconds,
            "retry": Retry(NoBackoff(), 0),
            "redis_connect_func": _greet,
            "protocol": 2,
        }
        connection_class: Any
        if endpoint.path:
            connection_class = UnixDomainSocketConnection
            options["path"] = endpoint.path
        else:
            connection_class = SSLConnection if endpoint.tls else Connection
            options |= {"host": endpoint.host, "port": endpoint.port, "socket_keepalive": True}
        connection: _Wire = connection_class(**options)
        return connection

    def _pause(self, error: redis.RedisError, failures: int, started: float) -> None:
        waited = time.monotonic() - started
        if waited >= self._patience_seconds:
            raise StoreUnavailableError(
                f"store at {self._endpoint} did not answer for {waited:.1f} s ({error}): see that it runs, ask again"
            ) from error
        self._begin_outage(error)
        pause = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** min(failures, 16))
        time.sleep(min(random.uniform(0.5, 1.0) * pause, self._patience_seconds - waited))

    def _begin_outage(self, error: redis.RedisError) -> None:
        with self._outage_lock:
            if self._outage_since is not None:
                return
            self._outage_since = time.monotonic()
        _log.warning("store at %s does not answer: %s", self._endpoint, error)

    def _end_outage(self) -> None:
        with self._outage_lock:
            since, self._outage_since = self._outage_since, None
        if since is not None:
            _log.warning("store at %s is back after %.1f s", self._endpoint, time.monotonic() - since)


def check_server(info: Mapping[str, str]) -> None:
    """Refuse a server by its INFO: StoreRefusedError if it never will do, redis.ConnectionError if it may later."""
    version = info.get("redis_version", "0")
    if int(version.split(".")[0]) < _OLDEST_VERSION:
        raise StoreRefusedError(f"store is of version {version}: use Redis >= {_OLDEST_VERSION} or Valkey")
    if (mode := info.get("redis_mode") or info.get("server_mode", "standalone")) != "standalone":
        raise StoreRefusedError(f"store runs in {mode} mode, which is not supported: use a single server")
    if (policy := info.get("maxmemory_policy", "noeviction")) != "noeviction":
        raise StoreRefusedError(
            f"store evicts keys (maxmemory-policy {policy}), leases first: set maxmemory-policy noeviction"
        )
    if info.get("role", "master") != "master":
        raise redis.ConnectionError("the server is a replica")
    if info.get("loading", "0") != "0":
        raise redis.ConnectionError("the server is loading its data")


def parse_info(answer: bytes) -> dict[str, str]:
    """The fields of an INFO answer."""
    lines = answer.decode(errors="replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))


def _greet(connection: _Wire) -> None:
    """What every new connection says first."""
    connection.on_connect()
    connection.send_command("INFO")
    try:
        check_server(parse_info(connection.read_response()))
    except StoreRefusedError:
        connection.disconnect()
        raise


def _passes(error: redis.RedisError) -> bool:
    if isinstance(error, redis.AuthenticationError):
        return False
    return isinstance(error, _PASSING_ERRORS) or str(error).startswith(_PASSING_CODES)
