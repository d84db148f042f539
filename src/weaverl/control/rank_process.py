"""How a node's agent starts one rank of a job: its environment, its place to meet the others, its mark."""

import os
import shutil
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from weaverl.control.processes import LAUNCHER, MARK
from weaverl.domain.cluster import Node
from weaverl.domain.commands import StartRank
from weaverl.domain.events import RankId
from weaverl.domain.jobs import master_role
from weaverl.errors import ClusterError


def without_weaverl(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment without what weaverl told the process that it belongs to."""
    return {name: value for name, value in environment.items() if not name.startswith("WEAVERL_")}


class StoreAccess(msgspec.Struct, frozen=True):
    """How processes on this host reach the cluster's store. The password stays in a file that only we can read."""

    url: str
    password_file: str | None = None
    prefix: str = "weaverl:"


def mark_of(cluster: str, node: str, job: str, attempt: int) -> str:
    """The mark of all processes of an attempt on a node; a rank's mark goes on after it."""
    return f"{cluster}/{node}/{job}/{attempt}/"


def rank_of_mark(mark: str) -> RankId | None:
    """The rank whose process (or whose child) bears a mark."""
    parts = mark.removesuffix(LAUNCHER).split("/")
    if len(parts) != 6:
        return None
    return RankId(parts[2], int(parts[3]), parts[4], int(parts[5]))


def log_of(directory: Path, rank: RankId) -> Path:
    """Where a rank's output goes."""
    return directory / "logs" / rank.job / str(rank.attempt) / f"{rank.role}-{rank.rank}.log"


class Meeting(msgspec.Struct, frozen=True):
    """Where the ranks of an attempt meet. The listening socket is bound once and handed to the rank that serves."""

    host: str
    port: int

    @classmethod
    def bind(cls, host: str) -> tuple["Meeting", socket.socket]:
        """Listen on a free port of a host."""
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.bind((host, 0))
        listener.listen(128)
        return cls(host, listener.getsockname()[1]), listener


def is_master(command: StartRank) -> bool:
    """Whether this rank serves the meeting."""
    return command.rank.rank == 0 and command.rank.role == master_role(command.role_sizes)


def resolve_command(command: tuple[str, ...], directory: Path) -> list[str]:
    """The command with its program found: ``python`` is the interpreter that runs the agent.

    Raises ClusterError when the program or the directory is not there.
    """
    if not directory.is_dir():
        raise ClusterError(f"working directory {directory} is not there any more: create it, and submit again")
    program = command[0]
    if program in ("python", "python3"):
        return [sys.executable, "-u", *command[1:]]
    found = shutil.which(program, path=f"{directory}{os.pathsep}{os.environ.get('PATH', '')}")
    if found is None:
        raise ClusterError(f"program {program} is not on this host's PATH: install it, or give its full path")
    return [found, *command[1:]]


def environment_of(
    command: StartRank, node: Node, cluster: str, access: StoreAccess, ledger: Path, meeting: Meeting, fd: int | None
) -> dict[str, str]:
    """The environment of a rank: the agent's, then the job file's, then what weaverl says.

    What the agent's own environment says of weaverl is of another process: nothing of it may reach the rank.
    """
    rank = command.rank
    environment = {**without_weaverl(os.environ), "PYTHONUNBUFFERED": "1", **command.environment}
    environment |= {
        MARK: f"{mark_of(cluster, node.name, rank.job, rank.attempt)}{rank.role}/{rank.rank}",
        "WEAVERL_URL": access.url,
        "WEAVERL_PREFIX": access.prefix,
        "WEAVERL_JOB": rank.job,
        "WEAVERL_ATTEMPT": str(rank.attempt),
        "WEAVERL_ROLE": rank.role,
        "WEAVERL_RANK": str(rank.rank),
        "WEAVERL_WORLD_SIZE": str(command.world_size),
        "WEAVERL_ROLE_SIZES": ",".join(f"{role}={size}" for role, size in command.role_sizes.items()),
        "WEAVERL_NODE": node.name,
        "WEAVERL_SLOTS": ",".join(str(slot) for slot in command.slots),
        "WEAVERL_HOST_BYTES": str(command.host_bytes),
        "WEAVERL_LEDGER": str(ledger),
        "MASTER_ADDR": meeting.host,
        "MASTER_PORT": str(meeting.port),
        "RANK": str(rank.rank),
        "WORLD_SIZE": str(command.world_size),
    }
    if access.password_file is not None:
        environment["WEAVERL_PASSWORD_FILE"] = access.password_file
    if command.checkpoint_directory is not None:
        environment["WEAVERL_CHECKPOINT_DIRECTORY"] = command.checkpoint_directory
    if fd is not None:
        environment["WEAVERL_MASTER_FD"] = str(fd)
    if node.accelerator == "cuda":
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(_device_ids(command, node))
    return environment


def _device_ids(command: StartRank, node: Node) -> list[str]:
    ids = node.device_ids or tuple(range(node.num_devices))
    return [str(ids[slot.device]) for slot in command.slots if slot.node == node.name]
