"""The head: supervises the store, the controller and this host's node agents, each a process of its own.

A child that dies is started again, with a pause that grows while it keeps dying. Children live in sessions of their
own and survive the head; the next head takes them over.
"""

import logging
import signal
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from weaverl.channel.valkey_server import ValkeyServer
from weaverl.control.home import HeadRecord, Home
from weaverl.control.processes import ExitWatcher, ProcessId, kill_marked, start
from weaverl.control.rank_process import StoreAccess
from weaverl.errors import ClusterError

logger = logging.getLogger("weaverl.head")

_FIRST_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 10.0
_STEADY_SECONDS = 30.0
_CHECK_SECONDS = 0.2


class Child:
    """One supervised process: started, found again after the head's own death, started again when it ends."""

    def __init__(self, name: str, arguments: tuple[str, ...], home: Home, environment: Mapping[str, str]) -> None:
        self.name = name
        self._arguments = arguments
        self._home = home
        self._environment = environment
        self._record = home.directory / f"process-{name}.json"
        self._watcher = ExitWatcher()
        self._pause = _FIRST_PAUSE_SECONDS
        self._started_at = 0.0
        self._start_due = 0.0

    @property
    def process(self) -> ProcessId | None:
        """The recorded process, if it lives."""
        try:
            recorded = msgspec.json.decode(self._record.read_bytes(), type=ProcessId)
        except FileNotFoundError:
            return None
        return recorded if recorded.is_alive() else None

    def ensure(self) -> None:
        """Start the process if it does not run and its pause is over."""
        for _, exit_code in self._watcher.ended():
            self._pause = _FIRST_PAUSE_SECONDS if self._was_steady() else min(self._pause * 2, _LONGEST_PAUSE_SECONDS)
            self._start_due = time.monotonic() + self._pause
            logger.warning("%s ended with %s; starting it again in %.1f s", self.name, exit_code, self._pause)
        if time.monotonic() < self._start_due or self.process is not None:
            return
        child = start(
            [sys.executable, "-m", "weaverl.cli.main", *self._arguments],
            environment=self._environment,
            directory=self._home.directory,
            log=self._home.logs / f"{self.name}.log",
        )
        process = ProcessId.of(child.pid) or ProcessId(child.pid, 0.0)
        self._record.write_bytes(msgspec.json.encode(process))
        self._watcher.watch(self.name, process, child)
        self._started_at = time.monotonic()

    def stop(self) -> None:
        """TERM, then KILL the recorded process."""
        process = self.process
        for number, patience in ((signal.SIGTERM, 10.0), (signal.SIGKILL, 5.0)):
            deadline = time.monotonic() + patience
            while process is not None and process.is_alive() and time.monotonic() < deadline:
                process.send(number)
                self._watcher.ended(wait_seconds=0.1)

    def _was_steady(self) -> bool:
        return time.monotonic() - self._started_at > _STEADY_SECONDS


class Head:
    """Brings a cluster's own processes up on this host, and keeps them up."""

    def __init__(self, home: Home, environment: Mapping[str, str]) -> None:
        self._home = home
        self._cluster = home.read_cluster()
        self._server = ValkeyServer(home.store)
        # Controller and agents do not use the slots' CPUs' thread pools: one thread each.
        mine = {**environment, "WEAVERL_HOME": str(home.directory), "OMP_NUM_THREADS": "1"}
        agents = [Child(f"agent-{node.name}", ("agent", node.name), home, mine) for node in self._cluster.nodes]
        self._children = [Child("controller", ("controller",), home, mine), *agents]

    def run(self, stop: threading.Event) -> None:
        """Supervise until told to stop; then end everything, jobs included."""
        process = ProcessId.of_self()
        self._ensure_store()
        access = StoreAccess(self._server.url, str(_password_file(self._home, self._server.password)))
        self._home.write_head(HeadRecord(process, self._cluster, access))
        while not stop.is_set():
            self._ensure_store()
            for child in self._children:
                child.ensure()
            stop.wait(_CHECK_SECONDS)
        self._shut_down()

    def _ensure_store(self) -> None:
        if not self._server.alive():
            logger.info("starts the store")
            try:
                self._server.start()
            except ClusterError as error:
                logger.error("%s", error)

    def _shut_down(self) -> None:
        for child in reversed(self._children):
            child.stop()
        kill_marked(f"{self._home.instance}/")
        self._server.stop()
        self._home.remove_head()


def _password_file(home: Home, password: str) -> Path:
    path = home.directory / "password"
    path.touch(mode=0o600)
    path.write_text(password)
    return path
