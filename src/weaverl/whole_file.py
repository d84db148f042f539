"""Files that are there whole or not at all: what was there stays until the new text is complete."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO


@contextmanager
def whole_file(path: Path) -> Iterator[TextIO]:
    """A stream whose text becomes the file at its end; after an error what was there is there still.

    UTF-8, line ends as written; ``stream.buffer`` takes bytes. A link stays, its target is replaced. What is no regular
    file (a device, a pipe) is written into.

    Raises:
        OSError: with the file's name: it cannot be made, or not to its end.
    """
    try:
        if _is_special(path):
            with path.open("w", encoding="utf-8", newline="") as stream:
                yield stream
        else:
            with _replacing(path) as stream:
                yield stream
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(path)  # a failed write does not say of what
        raise


def write_whole(path: Path, text: str) -> None:
    """Write a text as a whole file. Raises OSError as ``whole_file`` does."""
    with whole_file(path) as stream:
        stream.write(text)


def try_whole_file(path: Path) -> None:
    """Raise OSError if a whole file cannot be begun there; nothing is changed, and a pipe is not opened."""
    if path.exists() and not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    if not _is_special(path):
        draft = _draft_of(_target_of(path))
        draft.touch()
        draft.unlink()


@contextmanager
def _replacing(path: Path) -> Iterator[TextIO]:
    target = _target_of(path)
    draft = _draft_of(target)
    try:
        with draft.open("w", encoding="utf-8", newline="") as stream:
            yield stream
        if target.exists():
            shutil.copymode(target, draft)
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


def _is_special(path: Path) -> bool:
    # Asked before links are resolved: /dev/stdout may lead to a pipe, which has no path.
    return path.exists() and not path.is_file()


def _target_of(path: Path) -> Path:
    return Path(os.path.realpath(path))  # Path.resolve raises RuntimeError for a link to itself before Python 3.13


def _draft_of(target: Path) -> Path:
    """Beside the target: a file can be moved to its place only within a file system."""
    return target.with_name(f".{target.name}.{os.getpid()}")
