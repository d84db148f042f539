"""The state directory of a cluster on this host: one place for its records, store, logs and ledgers."""

import hashlib
import os
from pathlib import Path

import msgspec

from weaverl.control.processes import ProcessId
from weaverl.control.rank_process import StoreAccess
from weaverl.domain.cluster import Cluster
from weaverl.errors import UsageError


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

    @property
    def instance(self) -> str:
        """A name that no other cluster on this host has: processes bear it as their mark."""
        return hashlib.sha256(os.fsencode(self.directory)).hexdigest()[:12]

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

    def job_logs(self, job: str) -> list[Path]:
        """Log files of a job's newest attempt, by rank."""
        attempts = sorted((self.directory / "logs" / job).glob("*"), key=lambda path: int(path.name))
        return sorted(attempts[-1].glob("*.log")) if attempts else []

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

    def remove_head(self) -> None:
        """The cluster is down."""
        (self.directory / "head.json").unlink(missing_ok=True)

    def head(self) -> HeadRecord | None:
        """The record of the head, also of one that died; None where nothing was brought up."""
        try:
            return msgspec.json.decode((self.directory / "head.json").read_bytes(), type=HeadRecord)
        except FileNotFoundError:
            return None

    def require_head(self) -> HeadRecord:
        """The record of the head. Raises UsageError where no cluster is up."""
        record = self.head()
        if record is None:
            raise UsageError(f"no cluster is up in {self.directory}: run `weaverl up CLUSTER.yaml` first")
        return record

    @staticmethod
    def _write(path: Path, data: bytes) -> None:
        draft = path.with_suffix(".new")
        draft.write_bytes(data)
        draft.replace(path)
