"""The end of a log file, and following it."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

_TAIL_BYTES = 16 * 1024


def last_lines(log: Path, count: int = 12) -> tuple[str, ...]:
    """The last lines of a log; an empty tuple if there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return ()
    return tuple(text.splitlines()[-count:])


def follow(logs: Callable[[], list[Path]], ended: Callable[[], bool]) -> Iterator[tuple[Path, str]]:
    """Lines of all logs as they are written, each with its file, until ``ended`` says so and all is read."""
    places: dict[Path, int] = {}
    torn: dict[Path, bytes] = {}
    while True:
        is_last = ended()
        for log in logs():
            with log.open("rb") as file:
                file.seek(places.get(log, 0))
                data = torn.pop(log, b"") + file.read()
                places[log] = file.tell()
            *lines, torn[log] = data.split(b"\n")
            if is_last and torn[log]:
                lines.append(torn[log])
            for line in lines:
                yield log, line.decode(errors="replace")
        if is_last:
            return
        time.sleep(0.2)
