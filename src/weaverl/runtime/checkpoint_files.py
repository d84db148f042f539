"""Files of checkpoints, as far as they can be judged without reading what is in them: no torch here.

A checkpoint is a data file and a small manifest with its SHA-256, renamed into place last: the checkpoint exists when
its manifest does.
"""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from weaverl.errors import CheckpointError

FORMAT = 1
LEAST_KEPT = 2
"""Ranks of a synchronous job are at most one checkpoint apart, so that the last but one exists at all of them."""

_MANIFEST_NAME = re.compile(r"iteration-(\d{8,})\.json")
_DATA_GLOB = "iteration-*.pt"
_SUPERSEDED = "superseded"


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is written of a checkpoint beside its data."""

    format: int
    iteration: int
    file: str
    nbytes: int
    sha256: str


class Found(msgspec.Struct, frozen=True):
    """Iterations of a folder's checkpoints, newest first. ``unread`` are whole as far as their size tells."""

    whole: tuple[int, ...] = ()
    unread: tuple[int, ...] = ()
    damaged: tuple[int, ...] = ()

    @property
    def all(self) -> frozenset[int]:
        """Every iteration that something is there of."""
        return frozenset((*self.whole, *self.unread, *self.damaged))

    def __str__(self) -> str:
        there = ", ".join(map(str, (*self.whole, *self.unread))) or "none"
        return there + (f" (damaged: {', '.join(map(str, self.damaged))})" if self.damaged else "")


def find_checkpoints(folder: Path) -> Found | None:
    """Look through a folder, None if there is none. The newest ones are read and compared with their SHA-256.

    As many are read as can be agreed on unless more are damaged: reading all takes long where many are kept.
    """
    if not folder.is_dir():
        return None
    whole: list[int] = []
    unread: list[int] = []
    damaged: list[int] = []
    for iteration, path in manifests(folder):
        read = len(whole) < LEAST_KEPT
        try:
            check_whole(path) if read else _check_size(path)
        except CheckpointError:
            damaged.append(iteration)
        else:
            (whole if read else unread).append(iteration)
    return Found(tuple(whole), tuple(unread), tuple(damaged))


def check_whole(path: Path) -> Manifest:
    """Read a checkpoint's data and compare it with the manifest. Raises CheckpointError if they do not agree."""
    manifest = _check_size(path)
    data = path.with_name(manifest.file)
    try:
        with data.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise CheckpointError(f"checkpoint {path.name} is damaged: {error}") from error
    if digest != manifest.sha256:
        raise CheckpointError(f"checkpoint {path.name} is damaged: {data.name} is not what was written (SHA-256)")
    return manifest


def manifests(folder: Path) -> list[tuple[int, Path]]:
    """Iterations and manifests of a folder, newest first."""
    if not folder.is_dir():
        return []
    numbered = ((_MANIFEST_NAME.fullmatch(path.name), path) for path in folder.iterdir())
    return sorted(((int(match[1]), path) for match, path in numbered if match), reverse=True)


def manifest_path(folder: Path, iteration: int) -> Path:
    """Where the manifest of an iteration's checkpoint is."""
    return folder / f"iteration-{iteration:08d}.json"


def data_file_of(manifest: Path) -> str | None:
    """The data file that a manifest names; None if there is no whole manifest."""
    try:
        return msgspec.json.decode(manifest.read_bytes(), type=Manifest).file
    except (OSError, msgspec.MsgspecError):
        return None


def drop_old(folder: Path, keep: int) -> None:
    """Remove all but the newest checkpoints, and what no manifest names."""
    kept = max(LEAST_KEPT, keep)
    found = [path for _, path in manifests(folder)]
    for path in found[kept:]:
        path.unlink(missing_ok=True)
    used = {data_file_of(path) for path in found[:kept]}
    for path in [*folder.glob(_DATA_GLOB), *folder.glob(".iteration-*.new")]:
        if path.name not in used:
            path.unlink(missing_ok=True)


def set_newer_aside(folder: Path, agreed: int | None) -> None:
    """What is newer than the iteration that all resume from is not of the run that goes on: nobody must find it again.

    It waits in a folder beside, for people, until the next such case.
    """
    newer = [path for iteration, path in manifests(folder) if agreed is None or iteration > agreed]
    if not newer:
        return
    aside = folder / _SUPERSEDED
    aside.mkdir(exist_ok=True)
    for old in list(aside.iterdir()):
        old.unlink()
    for path in newer:
        for name in _files(path):
            (folder / name).replace(aside / name)


def _files(manifest: Path) -> Iterator[str]:
    """Names of a checkpoint's files that exist, the manifest first: without it there is no checkpoint."""
    data = data_file_of(manifest)
    yield manifest.name
    if data is not None and manifest.with_name(data).exists():
        yield data


def _check_size(path: Path) -> Manifest:
    try:
        manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
        nbytes = path.with_name(manifest.file).stat().st_size
    except (OSError, msgspec.MsgspecError) as error:
        raise CheckpointError(f"checkpoint {path.name} is damaged: {error}") from error
    if manifest.format > FORMAT:
        raise CheckpointError(f"checkpoint {path.name} has format {manifest.format}, this weaverl reads {FORMAT}")
    if nbytes != manifest.nbytes:
        problem = f"{manifest.file} has {nbytes:,} of {manifest.nbytes:,} bytes"
        raise CheckpointError(f"checkpoint {path.name} is damaged: {problem}")
    return manifest
