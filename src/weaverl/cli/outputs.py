"""Files of a command: those that it will write are looked at before the work begins; what is wrong bears its name."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import isfinite
from pathlib import Path

import msgspec

from weaverl.errors import SpecError, UsageError
from weaverl.whole_file import try_whole_file, write_whole


@contextmanager
def naming(file: Path) -> Iterator[None]:
    """What is found wrong within is wrong with this file, and says so."""
    try:
        yield
    except SpecError as error:
        raise SpecError(f"{file}: {error}") from error


def check_writable(path: Path | None) -> None:
    """Raise UsageError if a file cannot be put there; ``-`` and nothing are standard output."""
    if path is None or is_standard_output(path):
        return
    if path.is_dir():
        raise UsageError(f"{path} is a folder: give a file")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"{path.absolute().parent} is not a folder: make it first, or give another path")
    try:
        try_whole_file(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written ({error.strerror}): give another path") from error


def make_folder(path: Path) -> None:
    """Make a folder for what a command writes. Raises UsageError if that cannot be, or nothing can be put there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        try_whole_file(path / "report")
    except OSError as error:
        raise UsageError(f"{path} cannot be a folder of results ({error.strerror}): give another path") from error


def is_standard_output(path: Path | None) -> bool:
    """Whether a file was given as ``-``."""
    return str(path) == "-"


def require_finite(options: dict[str, float | None]) -> None:
    """Raise UsageError for an option that is given as nan or infinity."""
    for name, value in options.items():
        if value is not None and not isfinite(value):
            raise UsageError(f"{name} is {value}: give a finite number")


def write_json(figures: object, path: Path) -> None:
    """Figures as JSON into a file; ``-`` is standard output."""
    text = json.dumps(msgspec.to_builtins(figures), indent=2)
    if is_standard_output(path):
        print(text)
    else:
        write_whole(path, text + "\n")


def emit(figures: object, as_json: Path | None, show: Callable[[], None]) -> None:
    """Write JSON where it is wanted; unless that is standard output, show the figures to people."""
    if as_json is not None:
        write_json(figures, as_json)
    if not is_standard_output(as_json):
        show()
