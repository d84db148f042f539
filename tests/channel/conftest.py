"""Servers and stores for the channel's tests."""

import itertools
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis

from weaverl.channel.memory import InMemoryStore
from weaverl.channel.redis import RedisStore
from weaverl.channel.store import Store
from weaverl.channel.valkey_server import ValkeyServer

_prefixes = itertools.count()

_ROOT = "/dev/shm" if os.access("/dev/shm", os.W_OK) else "/tmp"
"""In memory where there is such a place: an fsync a write takes most of the time of these tests."""


@pytest.fixture
def short_directory() -> Iterator[Path]:
    """A directory that leaves room for a socket path, which pytest's own may not."""
    directory = Path(tempfile.mkdtemp(prefix="wv-", dir=_ROOT))
    yield directory
    shutil.rmtree(directory)


@pytest.fixture(scope="session")
def shared_server() -> Iterator[ValkeyServer]:
    """A server for tests that do it no harm."""
    directory = Path(tempfile.mkdtemp(prefix="wv-", dir=_ROOT))
    server = ValkeyServer(directory)
    server.start()
    yield server
    server.stop()
    shutil.rmtree(directory)


@pytest.fixture
def server(short_directory: Path) -> Iterator[ValkeyServer]:
    """A server of the test's own, to be stopped, killed and filled."""
    server = ValkeyServer(short_directory)
    server.start()
    yield server
    if (pid := server.pid) is not None:
        os.kill(pid, signal.SIGKILL)  # its own way out takes a tenth of a second
        _await_true(lambda: not server.alive())


@pytest.fixture
def connect(server: ValkeyServer) -> Callable[..., RedisStore]:
    """Stores on the test's own server: impatient, unless the test says otherwise."""

    def store(*, patience_seconds: float = 5.0, socket_timeout_seconds: float = 0.3) -> RedisStore:
        return RedisStore.from_url(
            server.url,
            password=server.password,
            patience_seconds=patience_seconds,
            socket_timeout_seconds=socket_timeout_seconds,
        )

    return store


@pytest.fixture
def admin(server: ValkeyServer) -> Iterator[redis.Redis]:
    """A bare client of the test's own server, to do harm with."""
    with redis.Redis.from_url(server.url, password=server.password) as client:
        yield client


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Bench:
    """A store, and how to let the time of its leases pass."""

    def __init__(self, store: Store, pass_seconds: Callable[[float], None], other_handle: Callable[[], Store]) -> None:
        self.store = store
        self.pass_seconds = pass_seconds
        self.other_handle = other_handle


@pytest.fixture(params=["memory", "redis"])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    """Each implementation in turn, empty."""
    if request.param == "memory":
        clock = Clock()
        memory = InMemoryStore(clock)
        yield Bench(memory, lambda seconds: setattr(clock, "now", clock.now + seconds), lambda: memory)
        return
    server = request.getfixturevalue("shared_server")
    prefix = f"test{os.getpid()}-{next(_prefixes)}:"

    def connected() -> RedisStore:
        return RedisStore.from_url(server.url, password=server.password, prefix=prefix)

    store = connected()
    yield Bench(store, time.sleep, connected)
    store.close()


@pytest.fixture
def store(bench: Bench) -> Store:
    """Each implementation in turn, empty."""
    return bench.store


@pytest.fixture
def in_thread() -> Iterator[Callable[[Callable[[], object]], Callable[[], object]]]:
    """Starts a call in a thread; the answer waits for its end and gives its value, or raises what it raised."""
    executor = ThreadPoolExecutor(max_workers=32)

    def start(call: Callable[[], object]) -> Callable[[], object]:
        future = executor.submit(call)
        return lambda: future.result(timeout=30)

    yield start
    executor.shutdown(wait=False)


@pytest.fixture
def await_true() -> Callable[[Callable[[], bool]], None]:
    """Waits for what has no event to wait for."""
    return _await_true


def _await_true(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.005)
