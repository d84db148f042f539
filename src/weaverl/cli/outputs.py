"""Files of a command: those that it will write are looked at before the work begins; what is wrong bears its name."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from math import isfinite
from pathlib import Path

import msgspec

from weaverl.errors import SpecError, UsageError


@contextmanager
def naming(file: Path) -> Iterator[None]:
    """What is found wrong within is wrong with this file, and says so."""
    try:
        yield
    except SpecError as error:
        raise SpecError(f"{file}: {error}") from error


def check_writable(path: Path | None) -> None:
    """Raise UsageError if a file cannot be put there; ``-`` and nothing are standard output."""
    if path is None or str(path) == "-":
        return
    if path.is_dir():
        raise UsageError(f"{path} is a folder: give a file")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"{path.absolute().parent} is not a folder: make it first, or give another path")


def require_finite(options: dict[str, float | None]) -> None:
    """Raise UsageError for an option that is given as nan or infinity."""
    for name, value in options.items():
        if value is not None and not isfinite(value):
            raise UsageError(f"{name} is {value}: give a finite number")


def write_json(figures: object, path: Path) -> None:
    """Figures as JSON into a file; ``-`` is standard output."""
    text = json.dumps(msgspec.to_builtins(figures), indent=2)
    if str(path) == "-":
        print(text)
    else:
        path.write_text(text + "\n")
