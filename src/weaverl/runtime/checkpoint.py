"""Checkpoints of a role: whole or absent, verified when read, restored in place to the bit.

The data (tensors and plain values) is read without executing anything; ``checkpoint_files`` says what lies where.
"""

import errno
import hashlib
import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

import msgspec
import torch

from weaverl.errors import CheckpointError
from weaverl.runtime.checkpoint_files import (
    FORMAT,
    Manifest,
    check_whole,
    data_file_of,
    drop_old,
    manifest_path,
    manifests,
)
from weaverl.runtime.random_state import random_state, set_random_state
from weaverl.runtime.residency import Residency
from weaverl.runtime.state_values import capture, restore_values


class Checkpoint:
    """A whole, verified checkpoint. ``data`` has the plain values that were saved, by name."""

    def __init__(self, iteration: int, captured: dict[str, Any], random: dict[str, Any]) -> None:
        self.iteration = iteration
        self._captured = captured
        self._random = random

    @property
    def data(self) -> dict[str, Any]:
        """Values that are no modules, optimizers or tensors: plain Python, as JSON would give them back."""
        return {name: msgspec.json.decode(item["json"]) for name, item in self._captured.items() if "json" in item}

    def restore(self, state: Mapping[str, object]) -> None:
        """Write everything back into living objects of the same names, and set the random generators.

        Objects keep their identity, tensors their dtype. Plain values are left to the caller (``data``). State must be
        on its slots. Raises CheckpointError, before anything is changed, if names, shapes or dtypes do not agree.
        """
        restore_values(self._captured, state)
        set_random_state(self._random)


def save_checkpoint(
    directory: Path | str,
    iteration: int,
    state: Mapping[str, object],
    *,
    keep: int = 2,
    residency: Residency | None = None,
    check: Callable[[], None] = lambda: None,
) -> Path:
    """Write a checkpoint and return the path of its manifest; of older ones ``keep - 1``, at least one, remain.

    ``state`` has modules, optimizers, tensors, torch generators, objects with ``state_dict`` and plain values that
    msgspec can encode. State that is away is read in host memory through ``residency``. ``check`` is called before the
    checkpoint is written and again before it is published. Raises CheckpointError if it cannot be written (full
    disk); what was there is untouched.
    """
    folder = Path(directory)
    check()
    if residency is None:
        return _write(folder, iteration, state, keep, lambda tensor: tensor, check)
    with residency.reading() as view:
        return _write(folder, iteration, state, keep, view, check)


def load_checkpoint(directory: Path | str, iteration: int | None = None) -> Checkpoint | None:
    """The checkpoint of an iteration, or else the newest whole one; None if there never was one.

    A damaged one is passed over with a warning; CheckpointError if all are damaged, or the one of the iteration is.
    """
    if iteration is not None:
        return _read(manifest_path(Path(directory), iteration))
    damaged: list[str] = []
    for _, path in manifests(Path(directory)):
        try:
            checkpoint = _read(path)
        except CheckpointError as error:
            damaged.append(str(error))
            continue
        for reason in damaged:
            warnings.warn(f"{reason}; continuing from iteration {checkpoint.iteration}", RuntimeWarning, stacklevel=2)
        return checkpoint
    if damaged:
        raise CheckpointError(f"no whole checkpoint in {directory}: {'; '.join(damaged)}")
    return None


def _write(
    folder: Path,
    iteration: int,
    state: Mapping[str, object],
    keep: int,
    view: Callable[[torch.Tensor], torch.Tensor],
    check: Callable[[], None],
) -> Path:
    payload = {"state": capture(state, view), "random": random_state()}
    data = folder / f"iteration-{iteration:08d}-{uuid4().hex[:8]}.pt"
    manifest = manifest_path(folder, iteration)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        digest = _write_whole(data, lambda file: _save_hashed(payload, file))
        check()
        record = Manifest(format=FORMAT, iteration=iteration, file=data.name, nbytes=data.stat().st_size, sha256=digest)
        _write_whole(manifest, lambda file: file.write(msgspec.json.encode(record)))
    except BaseException as error:  # also a signal in the middle
        if data_file_of(manifest) != data.name:
            data.unlink(missing_ok=True)
        if isinstance(error, OSError):
            reason = "the disk is full" if error.errno == errno.ENOSPC else str(error)
            raise CheckpointError(f"iteration {iteration} could not be saved in {folder}: {reason}") from error
        raise
    drop_old(folder, keep)
    return manifest


def _write_whole(path: Path, write: Callable[[IO[bytes]], Any]) -> Any:
    temporary = path.with_name(f".{path.name}.new")
    try:
        with temporary.open("wb") as file:
            result = write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    _sync_directory(path.parent)
    return result


def _sync_directory(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class _HashingFile:
    """Passes bytes on and hashes them; keeps the first error, which torch wraps in its own."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.digest = hashlib.sha256()
        self.error: OSError | None = None

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        try:
            return self._file.write(data)
        except OSError as error:
            self.error = self.error or error
            raise

    def flush(self) -> None:
        self._file.flush()


def _save_hashed(payload: object, file: IO[bytes]) -> str:
    hashing = _HashingFile(file)
    try:
        torch.save(payload, hashing)  # type: ignore[arg-type]
    except RuntimeError as error:
        if hashing.error is not None:
            raise hashing.error from error
        raise
    return hashing.digest.hexdigest()


def _read(path: Path) -> Checkpoint:
    manifest = check_whole(path)
    payload = torch.load(path.with_name(manifest.file), map_location="cpu", weights_only=True)
    return Checkpoint(manifest.iteration, payload["state"], payload["random"])
