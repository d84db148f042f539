"""Processes that outlive their starter: known by pid and start time, found again by a mark in their environment.

Numbers of processes are used again, so nothing is ever signalled by a bare pid. The mark is inherited by whatever a
rank starts, so a helper that left the process group is still found, and nobody else's process is touched.
"""

import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import psutil

MARK = "WEAVERL_MARK"
TERM_GRACE_SECONDS = 2.0


class ProcessId(msgspec.Struct, frozen=True):
    """A process of this host for as long as it lives; ``started_at`` tells it from a later one of the same number."""

    pid: int
    started_at: float

    @classmethod
    def of(cls, pid: int) -> "ProcessId | None":
        """The process that has this number now, None if there is none or it is a zombie."""
        try:
            process = psutil.Process(pid)
            if process.status() == psutil.STATUS_ZOMBIE:
                return None
            return cls(pid, process.create_time())
        except psutil.NoSuchProcess:
            return None

    @classmethod
    def of_self(cls) -> "ProcessId":
        """This process."""
        found = cls.of(os.getpid())
        assert found is not None
        return found

    def is_alive(self) -> bool:
        """Whether it still runs."""
        return ProcessId.of(self.pid) == self

    def send(self, number: signal.Signals) -> None:
        """Signal it, if it still is the same process."""
        if self.is_alive():
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                return


def start(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    directory: Path,
    log: Path,
    cpus: tuple[int, ...] = (),
    inherited: tuple[int, ...] = (),
) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own, with its output appended to a log file.

    ``cpus`` pins it from its first instruction on: a child takes the affinity of the thread that forks it.
    Raises OSError when it cannot be started.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output, _pinned(cpus):
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=directory,
            env=dict(environment),
            start_new_session=True,
            pass_fds=inherited,
        )


class _pinned:  # noqa: N801 - reads as a verb where it is used
    """This thread's affinity for as long as the block lasts."""

    def __init__(self, cpus: tuple[int, ...]) -> None:
        self._cpus = cpus

    def __enter__(self) -> None:
        self._before = os.sched_getaffinity(0)
        if self._cpus:
            os.sched_setaffinity(0, self._cpus)

    def __exit__(self, *_: object) -> None:
        os.sched_setaffinity(0, self._before)


def marked(mark: str) -> Iterator[tuple[ProcessId, str]]:
    """Living processes whose mark begins with ``mark``, with the whole mark."""
    for process in psutil.process_iter():
        try:
            found = process.environ().get(MARK, "")
            if found.startswith(mark) and process.status() != psutil.STATUS_ZOMBIE:
                yield ProcessId(process.pid, process.create_time()), found
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue


def kill_marked(mark: str, *, grace_seconds: float = TERM_GRACE_SECONDS, patience_seconds: float = 60.0) -> bool:
    """End every process of a mark: TERM, after a grace KILL, until none is left. False if some survive the patience.

    A process in uninterruptible sleep (a dead network disk, a driver) cannot be ended; its slots must not be reused.
    """
    deadline = time.monotonic() + patience_seconds
    kill_at = time.monotonic() + grace_seconds
    number = signal.SIGTERM
    while living := [process for process, _ in marked(mark)]:
        if time.monotonic() > deadline:
            return False
        for process in living:
            process.send(number)
            process.send(signal.SIGCONT)
        time.sleep(0.02)
        if time.monotonic() >= kill_at:
            number = signal.SIGKILL
    return True


class ExitWatcher:
    """Waits for processes to end, through their pidfds: children of ours and others alike."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._watched: dict[int, tuple[str, int, subprocess.Popen[bytes] | None]] = {}
        self._lock = threading.Lock()

    def watch(self, key: str, process: ProcessId, child: subprocess.Popen[bytes] | None) -> bool:
        """Watch a process; False if it has ended already and is not our child."""
        try:
            descriptor = os.pidfd_open(process.pid)
        except ProcessLookupError:
            return False
        if child is None and not process.is_alive():
            os.close(descriptor)
            return False
        with self._lock:
            self._watched[descriptor] = (key, process.pid, child)
            self._poll.register(descriptor, select.POLLIN)
        return True

    def ended(self, wait_seconds: float = 0.0) -> list[tuple[str, int | None]]:
        """Keys of processes that have ended since the last call, with exit codes; None where we are not the parent."""
        found = []
        for descriptor, _ in self._poll.poll(wait_seconds * 1000):
            with self._lock:
                key, _, child = self._watched.pop(descriptor)
                self._poll.unregister(descriptor)
            os.close(descriptor)
            found.append((key, child.wait() if child is not None else None))
        return found
