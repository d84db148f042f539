"""Which process of this host a number means: numbers are used again, a number with its start and boot is not.

The start is in clock ticks after boot: no clock that people or NTP may set goes into it. (The launcher of a rank has
its own few lines of this: it loads nothing.)
"""

import functools
from pathlib import Path
from typing import NamedTuple

_DEAD = b"ZXx"


class ProcessLook(NamedTuple):
    """What /proc says of a process; ``is_dead`` if it only waits to be reaped."""

    state: str
    is_dead: bool
    parent: int
    start_ticks: int


def look(pid: int) -> ProcessLook | None:
    """Look at a process, None if there is none of this number."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - thousands, often
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # A leader that has exited may leave threads that live on.
    is_dead = fields[0] in _DEAD and int(fields[17]) <= 1
    return ProcessLook(fields[0].decode(), is_dead, int(fields[1]), int(fields[19]))


def start_ticks(pid: int) -> int | None:
    """When a process started; None if it is gone or only waits to be reaped."""
    found = look(pid)
    return None if found is None or found.is_dead else found.start_ticks


@functools.cache
def boot_id() -> str:
    """This boot of the host."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
