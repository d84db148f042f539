"""What a rank knows of itself: set by the agent that started it, read once by ``weave.init``."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from weaverl.domain.cluster import Slot
from weaverl.domain.events import RankId
from weaverl.errors import SpecError

_Value = TypeVar("_Value")

MODES = ("permits", "observe")


class RankEnvironment(msgspec.Struct, frozen=True, kw_only=True):
    """A rank started by an agent."""

    url: str
    prefix: str
    password: str | None
    rank: RankId
    world_size: int
    role_sizes: dict[str, int]
    node: str
    slots: tuple[Slot, ...]
    ledger: Path
    host_bytes: int | None
    master: tuple[str, int]
    master_fd: int | None
    checkpoint_directory: Path | None = None

    @property
    def checkpoint_folder(self) -> Path | None:
        """Where this rank's checkpoints are; None if the job keeps none."""
        base = self.checkpoint_directory
        return None if base is None else checkpoint_folder(base, self.rank.role, self.rank.rank)


def checkpoint_folder(base: Path, role: str, rank: int) -> Path:
    """The folder of one rank's checkpoints."""
    return base / f"{role}-{rank}"


def mode(environment: Mapping[str, str] = os.environ) -> str:
    """``permits``, or ``observe``: measure only. SpecError for anything else."""
    chosen = environment.get("WEAVERL_MODE") or "permits"
    if chosen not in MODES:
        raise SpecError(f"WEAVERL_MODE is {chosen!r}: set it to one of {', '.join(MODES)}, or unset it")
    return chosen


def read_environment(environment: Mapping[str, str] = os.environ) -> RankEnvironment | None:
    """The rank's environment, None where no agent started this process. SpecError if it cannot be used."""
    if "WEAVERL_URL" not in environment:
        return None
    read = _Reader(environment)
    return RankEnvironment(
        url=environment["WEAVERL_URL"],
        prefix=environment.get("WEAVERL_PREFIX", "weaverl:"),
        password=read.optional("WEAVERL_PASSWORD_FILE", _password),
        rank=RankId(
            read.required("WEAVERL_JOB", str),
            read.required("WEAVERL_ATTEMPT", int),
            read.required("WEAVERL_ROLE", str),
            read.required("WEAVERL_RANK", int),
        ),
        world_size=read.required("WEAVERL_WORLD_SIZE", int),
        role_sizes=read.required("WEAVERL_ROLE_SIZES", _role_sizes),
        node=read.required("WEAVERL_NODE", str),
        slots=read.required("WEAVERL_SLOTS", _slots),
        ledger=read.required("WEAVERL_LEDGER", Path),
        host_bytes=read.optional("WEAVERL_HOST_BYTES", int),
        master=(read.required("MASTER_ADDR", str), read.required("MASTER_PORT", int)),
        master_fd=read.optional("WEAVERL_MASTER_FD", int),
        checkpoint_directory=read.optional("WEAVERL_CHECKPOINT_DIRECTORY", Path),
    )


class _Reader:
    """Variables by name; SpecError says which one is wrong."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment

    def required(self, variable: str, parse: Callable[[str], _Value]) -> _Value:
        if variable not in self._environment:
            raise SpecError(f"WEAVERL_URL is set but {variable} is not: unset both to run alone")
        text = self._environment[variable]
        try:
            return parse(text)
        except ValueError as error:
            raise SpecError(f"{variable} is {text!r}, which is not what an agent sets: unset WEAVERL_URL") from error

    def optional(self, variable: str, parse: Callable[[str], _Value]) -> _Value | None:
        return self.required(variable, parse) if self._environment.get(variable) else None


def _password(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError as error:
        raise SpecError(f"WEAVERL_PASSWORD_FILE {path} cannot be read: {error.strerror}") from error


def _role_sizes(text: str) -> dict[str, int]:
    sizes = (pair.partition("=") for pair in text.split(","))
    return {role: int(size) for role, _, size in sizes}


def _slots(text: str) -> tuple[Slot, ...]:
    parts = (slot.rpartition(":") for slot in text.split(",") if slot)
    return tuple(Slot(node, int(device)) for node, _, device in parts)
