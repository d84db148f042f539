"""The parent of one rank: it starts the rank once, and writes down how it ended, whatever becomes of the agent.

Run as a plain script without site-packages, so that it is there in 10 ms: standard library only. What the rank leaves
behind falls to this process (it is a subreaper), and it stays until all of that is gone: so the family of a rank is
known by its parents too, not by its mark alone.
"""

import ctypes
import os
import signal
import sys

CLAIMED = 3
"""Exit code of a launcher that found the rank started already."""

_SUBREAPER = 36


def main(record: str, descriptor: str, command: list[str]) -> int:
    """Start the command and wait.

    Args:
        record: path without ending of the rank's files: ``.claim`` names this process, ``.exit`` tells the end.
        descriptor: number of the listening socket that the rank is given, or nothing.
        command: the rank's.
    """
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    if not _claim(record):
        return CLAIMED
    environment = dict(os.environ, WEAVERL_MARK=os.environ["WEAVERL_MARK"].removesuffix("/launcher"))
    defaults = set(range(1, 32)) - {signal.SIGKILL, signal.SIGSTOP}
    try:
        rank = os.posix_spawn(command[0], command, environment, setsigmask=[], setsigdef=defaults)
    except OSError as error:
        _write(f"{record}.exit", f"{error.strerror}: {command[0]}")
        return 0
    if descriptor:
        os.close(int(descriptor))
    _wait(rank, record)
    return 0


def _wait(rank: int, record: str) -> None:
    while True:
        try:
            pid, status = os.wait()
        except ChildProcessError:
            return
        if pid == rank:
            _write(f"{record}.exit", str(os.waitstatus_to_exitcode(status)))


def _claim(record: str) -> bool:
    """Whether nobody started this rank before; of two launchers one wins."""
    with open("/proc/self/stat") as file:  # noqa: PTH123 - as light as can be
        start_ticks = file.read().rpartition(")")[2].split()[19]
    with open("/proc/sys/kernel/random/boot_id") as file:  # noqa: PTH123
        boot = file.read().strip()
    draft = f"{record}.{os.getpid()}"
    with open(draft, "w") as file:  # noqa: PTH123
        file.write(f'{{"pid": {os.getpid()}, "start_ticks": {start_ticks}, "boot": "{boot}"}}')
    try:
        os.link(draft, f"{record}.claim")
    except FileExistsError:
        return False
    finally:
        os.unlink(draft)  # noqa: PTH108
    return True


def _write(path: str, text: str) -> None:
    with open(f"{path}.new", "w") as file:  # noqa: PTH123
        file.write(text)
    os.rename(f"{path}.new", path)  # noqa: PTH104


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
