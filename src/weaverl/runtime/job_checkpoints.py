"""``weave.checkpoint`` and ``weave.resume``: a job's checkpoints, each rank's in a folder of its own."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from weaverl.errors import CheckpointError
from weaverl.runtime.checkpoint_agreement import AllFound, agreed_iteration, describe_found, gather_in_process_group
from weaverl.runtime.checkpoint_files import Found, find_checkpoints, set_newer_aside
from weaverl.runtime.session import Job, current_job

if TYPE_CHECKING:
    from weaverl.runtime.checkpoint import Checkpoint


def checkpoint(iteration: int, state: Mapping[str, object], *, keep: int = 2) -> Path | None:
    """Write what is needed to go on after an iteration; None where the job has no checkpoint directory.

    The directory is the job file's ``checkpoint_directory``, or ``WEAVERL_CHECKPOINT_DIRECTORY`` for a run by hand.
    State need not be on its devices. A checkpoint is whole or absent. Every rank that holds state of its own writes
    one of the same iterations, and calls ``resume`` when it starts. A job that writes them between an iteration's
    training and the next rollout can be moved to other devices there.

    Args:
        iteration: the finished one, counted from 0.
        state: by name: modules, optimizers, tensors, generators, objects with ``state_dict``, and plain values such as
            the data position. Random states of Python, numpy and torch are added.
        keep: how many checkpoints stay, at least 2: a job may be killed when only some of its ranks have the newest.

    Raises:
        CheckpointError: it cannot be written; what was there is untouched.
        FencedError: this attempt of the job was given up.
    """
    from weaverl.runtime.checkpoint import save_checkpoint

    job = current_job()
    folder = job.checkpoint_folder
    if folder is None:
        return None
    written = save_checkpoint(folder, iteration, state, keep=keep, residency=job.residency, check=job.check)
    job.saved(iteration)
    return written


def resume(state: Mapping[str, object]) -> Checkpoint | None:
    """Restore the newest checkpoint that is whole at all ranks, into living objects of the same names; None if none is.

    To be called once, where state is built (within ``job.load``), so that it is on its devices. The phases of this
    process then go on with the iteration after the checkpoint's. Plain values are in the result's ``data``. What this
    rank has of later iterations is set aside.

    Several ranks without a controller agree through torch's default process group, so all of its ranks call this.

    Raises:
        CheckpointError: all checkpoints are damaged, the ranks could not agree on one, or it is of another model;
            nothing is changed.
    """
    from weaverl.runtime.checkpoint import load_checkpoint

    job = current_job()
    folder = job.checkpoint_folder
    if folder is None:
        return None
    everybody = _gather(job, folder)
    if everybody is None:
        found = load_checkpoint(folder)
    else:
        agreed = agreed_iteration(everybody)
        _warn_of_loss(everybody, agreed)
        _require_own(everybody[job.role or "run", job.rank], agreed, everybody)
        found = None if agreed is None else load_checkpoint(folder, agreed)
    if found is not None:
        found.restore(state)
        job.resume_from(found.iteration + 1)
    _begin_after(folder, None if found is None else found.iteration)
    return found


def _gather(job: Job, folder: Path) -> AllFound | None:
    """What the ranks of the job have; None where this process is its only rank."""
    if job.exchange is not None:
        return None if job.exchange.is_alone else job.exchange.gather(job.check)
    if "torch" in sys.modules and _in_process_group():
        return gather_in_process_group(job.role or "run", job.rank, find_checkpoints(folder) or Found())
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise CheckpointError(
            f"WORLD_SIZE is {os.environ['WORLD_SIZE']} and there is no process group to agree on a checkpoint in: call "
            f"torch.distributed.init_process_group before weave.resume"
        )
    return None


def _in_process_group() -> bool:
    import torch.distributed as dist

    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def _warn_of_loss(everybody: AllFound, agreed: int | None) -> None:
    there = frozenset[int]().union(*(one.all for one in everybody.values() if one))
    if there and (agreed is None or max(there) > agreed):
        start = "from the start" if agreed is None else f"after iteration {agreed}"
        warnings.warn(f"all ranks go on {start}: {describe_found(everybody)}", RuntimeWarning, stacklevel=3)


def _require_own(own: Found | None, agreed: int | None, everybody: AllFound) -> None:
    """A role that has none when the others agree cannot go on with them."""
    if agreed is not None and (own is None or not own.all):
        raise CheckpointError(
            f"the others go on after iteration {agreed} ({describe_found(everybody)}), and this role has no "
            f"checkpoint: bring it back or remove theirs; a role that writes none does not call weave.resume"
        )


def _begin_after(folder: Path, agreed: int | None) -> None:
    """From here on the folder says that this rank keeps checkpoints, and none that is later than all agreed on."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        set_newer_aside(folder, agreed)
    except OSError as error:
        raise CheckpointError(
            f"{folder} cannot be used for checkpoints ({error.strerror}): make it writable"
        ) from error
