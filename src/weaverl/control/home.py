"""The state directory of a cluster on this host: one place for its records, store, logs and ledgers."""

import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import msgspec

from weaverl.control.processes import ProcessId
from weaverl.control.rank_process import StoreAccess
from weaverl.domain.cluster import Cluster
from weaverl.errors import ClusterError, UsageError

HEAD = "head"
_ROOM_BYTES = 1024 * 1024
_HISTORY = ("store", "ranks", "logs")
"""What belongs to one history of events: attempts of jobs are counted in it."""


class HeadRecord(msgspec.Struct, frozen=True):
    """The head of a cluster that is up: its process, its cluster file's content, and how to reach the store."""

    process: ProcessId
    cluster: Cluster
    access: StoreAccess


class Home:
    """``$WEAVERL_HOME``, or ``~/.weaverl``: one cluster at a time."""

    def __init__(self, directory: Path | None = None) -> None:
        chosen = directory or Path(os.environ.get("WEAVERL_HOME") or Path.home() / ".weaverl")
        self.directory = chosen.absolute()
        self._locks: list[BinaryIO] = []

    @property
    def instance(self) -> str:
        """A name that no other cluster on this host has: processes bear it as their mark."""
        return hashlib.sha256(os.fsencode(self.directory)).hexdigest()[:12]

    @property
    def store_mark(self) -> str:
        """The mark of the embedded store; what ends all others, which begin with ``instance/``, leaves it for last."""
        return f"{self.instance}@store"

    @property
    def store(self) -> Path:
        """Directory of the embedded store."""
        return self.directory / "store"

    @property
    def logs(self) -> Path:
        """Directory of the control plane's own logs."""
        return self.directory / "control"

    @property
    def cluster_file(self) -> Path:
        """The cluster as it was brought up, for the head's children."""
        return self.directory / "cluster.json"

    def job_logs(self, job: str, attempt: int = 0) -> list[Path]:
        """Log files of a job's newest attempt, by rank, if it is not before ``attempt``."""
        folders = [path for path in (self.directory / "logs" / job).glob("*") if path.name.isdecimal()]
        newest = max(folders, key=lambda path: int(path.name), default=None)
        return sorted(newest.glob("*.log")) if newest is not None and int(newest.name) >= attempt else []

    def hold(self, name: str) -> None:
        """Be the only process of this name here for as long as this process lives, and be known for it.

        Raises ClusterError if another one is.
        """
        lock = self._open_lock(name)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise ClusterError(f"another {name} runs in {self.directory} already: {self.process(name)}") from None
        self._locks.append(lock)
        self._write(self._record(name), msgspec.json.encode(ProcessId.of_self()))

    @contextmanager
    def changing(self) -> Iterator[None]:
        """One `up` or `down` at a time: a second one waits for the first."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._open_lock("change") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def process(self, name: str) -> ProcessId | None:
        """The living process of a name."""
        try:
            recorded = msgspec.json.decode(self._record(name).read_bytes(), type=ProcessId)
        except (FileNotFoundError, msgspec.DecodeError):
            return None
        return recorded if recorded.is_alive() else None

    def processes(self) -> dict[str, ProcessId]:
        """All living processes that hold a name here."""
        names = [path.stem.removeprefix("process-") for path in self.directory.glob("process-*.json")]
        return {name: process for name in names if (process := self.process(name)) is not None}

    def read_cluster(self) -> Cluster:
        """The cluster that was brought up here."""
        return msgspec.json.decode(self.cluster_file.read_bytes(), type=Cluster)

    def write_head(self, record: HeadRecord) -> None:
        """Publish the head, whole or not at all."""
        self._write(self.directory / "head.json", msgspec.json.encode(record))

    def write_cluster(self, cluster: Cluster) -> None:
        """Keep the cluster for the head's children."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._write(self.cluster_file, msgspec.json.encode(cluster))

    def write_password(self, password: str) -> Path:
        """Keep the store's password where only we can read it."""
        path = self.directory / "password"
        self._write(path, password.encode())
        return path

    def set_history_aside(self) -> Path | None:
        """Keep what belongs to an earlier history beside; None if there was nothing."""
        found = [path for name in _HISTORY if (path := self.directory / name).exists()]
        if not found:
            return None
        kept = self.directory / f"history-{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}"
        kept.mkdir()
        for path in found:
            shutil.move(path, kept / path.name)
        return kept

    def check_room(self) -> None:
        """Raise OSError if the directory cannot take what a cluster writes first."""
        self._write(self.directory / "probe", bytes(_ROOM_BYTES))
        (self.directory / "probe").unlink()

    def remove_head(self) -> None:
        """The cluster is down."""
        (self.directory / "head.json").unlink(missing_ok=True)

    def head(self) -> HeadRecord | None:
        """The record of the head, also of one that died; None where nothing was brought up, or by another version."""
        try:
            return msgspec.json.decode((self.directory / "head.json").read_bytes(), type=HeadRecord)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def require_head(self) -> HeadRecord:
        """The record of the head. Raises UsageError where no cluster is up."""
        record = self.head()
        if record is None:
            raise UsageError(f"no cluster is up in {self.directory}: run `weaverl up CLUSTER.yaml` first")
        return record

    def _record(self, name: str) -> Path:
        return self.directory / f"process-{name}.json"

    def _open_lock(self, name: str) -> BinaryIO:
        return (self.directory / f"{name}.lock").open("ab")

    @staticmethod
    def _write(path: Path, data: bytes) -> None:
        """Whole or not at all, and for our eyes only from its first byte on."""
        draft = path.with_suffix(f".{os.getpid()}")
        try:
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(data)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
