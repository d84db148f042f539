"""What a rank knows of itself: set by the agent that started it, read once by ``weave.init``."""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from weaverl.domain.cluster import Slot
from weaverl.domain.events import RankId
from weaverl.errors import SpecError

MODES = ("permits", "observe")


class RankEnvironment(msgspec.Struct, frozen=True, kw_only=True):
    """A rank started by an agent."""

    url: str
    password: str | None
    rank: RankId
    world_size: int
    role_sizes: dict[str, int]
    node: str
    slots: tuple[Slot, ...]
    ledger: Path
    master: tuple[str, int]
    master_fd: int | None
    checkpoint_directory: Path | None


def mode(environment: Mapping[str, str] = os.environ) -> str:
    """``permits``, or ``observe``: measure only. SpecError for anything else."""
    chosen = environment.get("WEAVERL_MODE") or "permits"
    if chosen not in MODES:
        raise SpecError(f"WEAVERL_MODE is {chosen!r}: set it to one of {', '.join(MODES)}, or unset it")
    return chosen


def read_environment(environment: Mapping[str, str] = os.environ) -> RankEnvironment | None:
    """The rank's environment, None where no agent started this process. SpecError if it is incomplete."""
    if "WEAVERL_URL" not in environment:
        return None
    try:
        return _read(environment)
    except KeyError as error:
        raise SpecError(f"WEAVERL_URL is set but {error.args[0]} is not: unset both to run alone") from error


def _read(environment: Mapping[str, str]) -> RankEnvironment:
    sizes = (pair.split("=") for pair in environment["WEAVERL_ROLE_SIZES"].split(","))
    password_file = environment.get("WEAVERL_PASSWORD_FILE")
    descriptor = environment.get("WEAVERL_MASTER_FD")
    checkpoints = environment.get("WEAVERL_CHECKPOINT_DIRECTORY")
    return RankEnvironment(
        url=environment["WEAVERL_URL"],
        password=Path(password_file).read_text().strip() if password_file else None,
        rank=RankId(
            environment["WEAVERL_JOB"],
            int(environment["WEAVERL_ATTEMPT"]),
            environment["WEAVERL_ROLE"],
            int(environment["WEAVERL_RANK"]),
        ),
        world_size=int(environment["WEAVERL_WORLD_SIZE"]),
        role_sizes={role: int(size) for role, size in sizes},
        node=environment["WEAVERL_NODE"],
        slots=tuple(_slot(text) for text in environment["WEAVERL_SLOTS"].split(",") if text),
        ledger=Path(environment["WEAVERL_LEDGER"]),
        master=(environment["MASTER_ADDR"], int(environment["MASTER_PORT"])),
        master_fd=int(descriptor) if descriptor else None,
        checkpoint_directory=Path(checkpoints) if checkpoints else None,
    )


def _slot(text: str) -> Slot:
    node, _, device = text.rpartition(":")
    return Slot(node, int(device))
