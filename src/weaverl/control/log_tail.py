"""The end of a log file, following it, and keeping it from growing without bound."""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

_TAIL_BYTES = 16 * 1024
_CHUNK_BYTES = 1024 * 1024


def last_lines(log: Path, count: int = 12) -> tuple[str, ...]:
    """The last lines of a log; an empty tuple if there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return ()
    return tuple(text.splitlines()[-count:])


def bound_size(log: Path, limit_bytes: int) -> None:
    """Put what a log has beside (``.1``, over what was there) once it is too large, and let it begin anew.

    For logs that their writers append to: the next line then is the first. One that comes in between may be lost.
    """
    try:
        if log.stat().st_size <= limit_bytes:
            return
        shutil.copyfile(log, log.with_name(f"{log.name}.1"))
        os.truncate(log, 0)
    except FileNotFoundError:
        return


def follow(logs: Callable[[], list[Path]], ended: Callable[[], bool]) -> Iterator[tuple[Path, str]]:
    """Lines of all logs as they are written, each with its file, until ``ended`` says so and all is read."""
    places: dict[Path, int] = {}
    torn: dict[Path, bytes] = {}
    while True:
        is_last = ended()
        for log in logs():
            with log.open("rb") as file:
                file.seek(places.get(log, 0))
                while chunk := file.read(_CHUNK_BYTES):
                    *lines, torn[log] = (torn.get(log, b"") + chunk).split(b"\n")
                    for line in lines:
                        yield log, line.decode(errors="replace")
                places[log] = file.tell()
            if is_last and torn.get(log):
                yield log, torn[log].decode(errors="replace")
        if is_last:
            return
        time.sleep(0.2)
