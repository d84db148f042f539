"""``weave.checkpoint`` and ``weave.resume``: a job's checkpoints, each rank's in a folder of its own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from weaverl.runtime.session import Job, current_job

if TYPE_CHECKING:
    from weaverl.runtime.checkpoint import Checkpoint


def checkpoint(iteration: int, state: Mapping[str, object], *, keep: int = 2) -> Path | None:
    """Write what is needed to go on after an iteration; None where the job has no checkpoint directory.

    The directory is the job file's ``checkpoint_directory``, or ``WEAVERL_CHECKPOINT_DIRECTORY`` for a run by hand.
    State need not be on its devices. A checkpoint is whole or absent.

    Args:
        iteration: the finished one, counted from 0.
        state: by name: modules, optimizers, tensors, generators, objects with ``state_dict``, and plain values such as
            the data position. Random states of Python, numpy and torch are added.
        keep: how many checkpoints stay.

    Raises:
        CheckpointError: it cannot be written; what was there is untouched.
        FencedError: this attempt of the job was given up.
    """
    from weaverl.runtime.checkpoint import save_checkpoint

    job = current_job()
    directory = _directory(job)
    if directory is None:
        return None
    return save_checkpoint(directory, iteration, state, keep=keep, residency=job.residency, check=job.check)


def resume(state: Mapping[str, object]) -> Checkpoint | None:
    """Restore the newest whole checkpoint into living objects of the same names; None if there is none.

    To be called where state is built (within ``job.load``), so that it is on its devices. The phases of this process
    then go on with the iteration after the checkpoint's. Plain values are in the result's ``data``.

    Raises:
        CheckpointError: all checkpoints are damaged, or one is of another model; nothing is changed.
    """
    from weaverl.runtime.checkpoint import load_checkpoint

    job = current_job()
    directory = _directory(job)
    found = load_checkpoint(directory) if directory is not None else None
    if found is not None:
        found.restore(state)
        job.resume_from(found.iteration + 1)
    return found


def _directory(job: Job) -> Path | None:
    base = os.environ.get("WEAVERL_CHECKPOINT_DIRECTORY")
    return Path(base) / f"{job.role or 'run'}-{job.rank}" if base else None
