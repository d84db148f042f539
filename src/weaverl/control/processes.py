"""Processes that outlive their starter: known by pid and start time, found again by a mark in their environment.

Numbers of processes are used again, so nothing is ever signalled by a bare pid. The mark is inherited by whatever a
rank starts, so a helper that left the process group is still found, and nobody else's process is touched. A process
that wiped its environment (some rewrite their title over it) counts with the nearest ancestor that has a mark.
"""

import os
import signal
import subprocess
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from weaverl.channel.process_start import ProcessLook, boot_id, look

MARK = "WEAVERL_MARK"
LAUNCHER = "/launcher"
"""Ends the mark of a rank's launcher: it keeps the rank's family together, so it is the last to go."""

TERM_GRACE_SECONDS = 2.0
_LOOK_SECONDS = 0.03
_STOPPED = "Tt"


class ProcessId(msgspec.Struct, frozen=True):
    """A process of this host for as long as it lives; its start and the boot tell it from a later one of its number.

    The start is in clock ticks after boot: no clock that people or NTP may set goes into it.
    """

    pid: int
    start_ticks: int
    boot: str

    @classmethod
    def of(cls, pid: int) -> "ProcessId | None":
        """The process that has this number now, None if there is none or it is a zombie."""
        found = look(pid)
        return None if found is None or found.is_dead else cls(pid, found.start_ticks, boot_id())

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
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        try:
            if self.is_alive():
                signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            return
        finally:
            os.close(descriptor)


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


@contextmanager
def _pinned(cpus: tuple[int, ...]) -> Iterator[None]:
    before = os.sched_getaffinity(0)
    if cpus:
        os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class MarkedProcess(NamedTuple):
    """A process that bears a mark, or whose nearest marked ancestor does."""

    process: ProcessId
    mark: str
    is_stopped: bool

    @property
    def is_launcher(self) -> bool:
        """Whether it is a rank's launcher."""
        return self.mark.endswith(LAUNCHER)


def marked(mark: str) -> list[MarkedProcess]:
    """Living processes whose mark begins with ``mark``; this process is never among them."""
    family = {pid: found for pid in _pids() if (found := look(pid)) is not None}
    marks = {pid: _mark_of(pid) for pid in family}
    boot = boot_id()
    return [
        MarkedProcess(ProcessId(pid, found.start_ticks, boot), inherited, found.state in _STOPPED)
        for pid, found in family.items()
        if not found.is_dead and pid != os.getpid()
        if (inherited := _inherited_mark(pid, family, marks)).startswith(mark)
    ]


def kill_marked(mark: str, *, grace_seconds: float = TERM_GRACE_SECONDS, patience_seconds: float = 60.0) -> bool:
    """End every process of a mark. False if some survive the patience.

    A process in uninterruptible sleep (a dead network disk, a driver) cannot be ended; its slots must not be reused.
    """
    deadline = time.monotonic() + patience_seconds
    killing = Killing(mark, grace_seconds)
    while not killing.step():
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_SECONDS)
    return True


class Killing:
    """The end of every process of a mark, a step at a time: TERM once, after a grace KILL, until none is left.

    A stopped process is killed at once: woken by TERM it would go on with what it was doing. It takes two looks
    without a find, since one that forks and ends while we look can hide its child from a single one.
    """

    def __init__(self, mark: str, grace_seconds: float = TERM_GRACE_SECONDS) -> None:
        self._mark = mark
        self._kill_at = time.monotonic() + grace_seconds
        self._told: set[ProcessId] = set()
        self._empty_looks = 0

    def step(self) -> bool:
        """Look, and signal what is there; True once nothing is left."""
        living = marked(self._mark)
        self._empty_looks = 0 if living else self._empty_looks + 1
        late = time.monotonic() >= self._kill_at
        for one in [one for one in living if not one.is_launcher] or (living if late else []):
            if late or one.is_stopped:
                one.process.send(signal.SIGKILL)
            elif one.process not in self._told:
                self._told.add(one.process)
                one.process.send(signal.SIGTERM)
        return self._empty_looks >= 2


def reap_orphans(own: Collection[int]) -> None:
    """Take the status of ended processes that fell to us: as pid 1 of a container we inherit all orphans.

    Children in ``own`` are left to whoever waits for them.
    """
    try:
        while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if ended.si_pid in own:
                return
            os.waitpid(ended.si_pid, 0)
    except ChildProcessError:
        return


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208 - thousands, often


def _mark_of(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123 - thousands, often
            environment = b"\0" + file.read()
    except OSError:
        return ""
    _, found, rest = environment.partition(b"\0" + MARK.encode() + b"=")
    return rest.partition(b"\0")[0].decode(errors="replace") if found else ""


def _inherited_mark(pid: int, family: Mapping[int, ProcessLook], marks: Mapping[int, str]) -> str:
    own, ancestor = marks[pid], pid
    while not own and ancestor in family and family[ancestor].parent != ancestor:
        ancestor = family[ancestor].parent
        own = marks.get(ancestor, "").removesuffix(LAUNCHER)
    return own
