"""The head: supervises the store, the controller and this host's node agents, each a process of its own.

A child that dies is started again, with a pause that grows while it keeps dying. Children live in sessions of their
own and survive the head; the next head takes them over. One that says that it cannot run as things are (exit code 2)
is not tried again: the head ends with its words.
"""

import logging
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping

from weaverl.channel.valkey_server import ValkeyServer
from weaverl.control.client import connect
from weaverl.control.home import HEAD, HeadRecord, Home
from weaverl.control.log_tail import bound_size, last_lines
from weaverl.control.processes import MARK, ProcessId, kill_marked, reap_orphans, start
from weaverl.control.rank_process import StoreAccess
from weaverl.errors import ClusterError, UsageError

logger = logging.getLogger("weaverl.head")

CANNOT_RUN = 2
LOG_BYTES = 16 * 1024 * 1024
"""How large a log of the cluster's own processes grows, and as much again for what came before."""

_FIRST_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 10.0
_STEADY_SECONDS = 30.0
_CHECK_SECONDS = 0.2
_LOGS_SECONDS = 60.0


class Child:
    """One supervised process: started, found again after the head's own death, started again when it ends."""

    def __init__(self, name: str, arguments: tuple[str, ...], home: Home, environment: Mapping[str, str]) -> None:
        self._name = name
        self._arguments = arguments
        self._home = home
        self._environment = {**environment, MARK: f"{home.instance}/@control/{name}"}
        self._child: subprocess.Popen[bytes] | None = None
        self._pause = 0.0
        self._started_at = 0.0
        self._start_due = 0.0

    @property
    def pid(self) -> int | None:
        """The process, if it is a child of ours that was not reaped yet."""
        return None if self._child is None else self._child.pid

    def ensure(self) -> None:
        """Start the process if it does not run and its pause is over. Raises UsageError if it cannot run."""
        if self._child is not None and not self._has_ended(self._child):
            return
        if time.monotonic() < self._start_due or self._home.process(self._name) is not None:
            return
        self._child = start(
            [sys.executable, "-m", "weaverl.cli.main", *self._arguments],
            environment=self._environment,
            directory=self._home.directory,
            log=self._home.logs / f"{self._name}.log",
        )
        self._started_at = time.monotonic()

    def _has_ended(self, child: subprocess.Popen[bytes]) -> bool:
        exit_code = child.poll()
        if exit_code is None:
            return False
        self._child = None
        if exit_code == CANNOT_RUN:
            words = " ".join(last_lines(self._home.logs / f"{self._name}.log", 1)).removeprefix("weaverl: ")
            raise UsageError(f"the {self._name} cannot run: {words}")
        is_steady = time.monotonic() - self._started_at > _STEADY_SECONDS
        longer = min(max(self._pause * 2, _FIRST_PAUSE_SECONDS), _LONGEST_PAUSE_SECONDS)
        self._pause = _FIRST_PAUSE_SECONDS if is_steady else longer
        self._start_due = time.monotonic() + self._pause
        logger.warning("%s ended with %s; starting it again in %.1f s", self._name, exit_code, self._pause)
        return True


class Head:
    """Brings a cluster's own processes up on this host, and keeps them up."""

    def __init__(self, home: Home, environment: Mapping[str, str]) -> None:
        self._home = home
        self._cluster = home.read_cluster()
        self._server = ValkeyServer(home.store) if self._cluster.store is None else None
        self._store_due = 0.0
        self._logs_due = 0.0
        # Controller and agents do not use the slots' CPUs' thread pools: one thread each.
        mine = {**environment, "WEAVERL_HOME": str(home.directory), "OMP_NUM_THREADS": "1"}
        agents = [Child(f"agent-{node.name}", ("agent", node.name), home, mine) for node in self._cluster.nodes]
        self._children = [Child("controller", ("controller",), home, mine), *agents]

    def run(self, stop: threading.Event) -> None:
        """Supervise until told to stop; then end everything, jobs included.

        Raises ClusterError or UsageError, and leaves what runs running, if the store does not come up at first or a
        child cannot run.
        """
        self._home.hold(HEAD)
        access = self._open_store()
        self._home.write_head(HeadRecord(ProcessId.of_self(), self._cluster, access))
        while not stop.is_set():
            self._ensure_store()
            for child in self._children:
                child.ensure()
            reap_orphans({child.pid for child in self._children if child.pid is not None})
            self._bound_logs()
            stop.wait(_CHECK_SECONDS)
        end_cluster(self._home)

    def _open_store(self) -> StoreAccess:
        """Start the cluster's own server, or see that the one it was given can be used."""
        if self._server is not None:
            self._server.start()
            return StoreAccess(self._server.url, str(self._home.write_password(self._server.password)))
        given = self._cluster.store
        assert given is not None
        access = StoreAccess(given.url, given.password_file, f"weaverl:{self._cluster.name}:")
        connect(access).identity()
        return access

    def _bound_logs(self) -> None:
        if time.monotonic() < self._logs_due:
            return
        self._logs_due = time.monotonic() + _LOGS_SECONDS
        for log in (*self._home.logs.glob("*.log"), *self._home.store.glob("*.log")):
            bound_size(log, LOG_BYTES)

    def _ensure_store(self) -> None:
        if self._server is None or self._server.alive() or time.monotonic() < self._store_due:
            return
        logger.warning("the store does not run; starting it")
        try:
            self._server.start()
        except ClusterError as error:
            logger.error("%s", error)
            self._store_due = time.monotonic() + _LONGEST_PAUSE_SECONDS


def end_cluster(home: Home) -> None:
    """End everything of a cluster on this host but its head: controller and agents, then jobs, then the store.

    In this order, so that no job is started again while it is being ended.
    """
    processes = [process for name, process in home.processes().items() if name != HEAD]
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in processes:
            process.send(number)
        deadline = time.monotonic() + 5.0
        while any(process.is_alive() for process in processes) and time.monotonic() < deadline:
            time.sleep(0.02)
    kill_marked(f"{home.instance}/")
    ValkeyServer(home.store).stop()
    kill_marked(home.store_mark)
    home.remove_head()
