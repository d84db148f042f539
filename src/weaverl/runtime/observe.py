"""`WEAVERL_MODE=observe`: phases are measured and written down, no permit is asked. A first step for production."""

import atexit
import logging
import os
import threading
import time
from pathlib import Path

import msgspec

from weaverl.domain.jobs import PhaseKind

logger = logging.getLogger("weaverl.runtime")


class ObservedPhase(msgspec.Struct, frozen=True, kw_only=True):
    """One phase as it ran. Microseconds of this host's wall clock at the start, monotonic durations."""

    job: str
    role: str
    rank: int
    phase: PhaseKind
    iteration: int
    started_at: int
    body_us: int
    tokens: int = 0
    samples: int = 0
    moved_bytes: int = 0


class Observer:
    """Appends observed phases to a file of its own, a line each; what was written survives a crash."""

    def __init__(self, directory: Path, job: str, role: str, rank: int) -> None:
        self._job, self._role, self._rank = job, role, rank
        directory.mkdir(parents=True, exist_ok=True)
        name = f"{job}-{role}-{rank}-{os.getpid()}.jsonl"
        self.path = directory / name.replace(os.sep, "_")
        self._file = self.path.open("ab", buffering=0)
        self._broken = False
        self._lock = threading.Lock()
        self._base = time.time_ns() // 1000 - time.monotonic_ns() // 1000
        atexit.register(self._file.close)

    def record(
        self,
        phase: PhaseKind,
        iteration: int,
        started_us: int,
        body_us: int,
        *,
        tokens: int = 0,
        samples: int = 0,
        moved_bytes: int = 0,
    ) -> None:
        """Write one phase; ``started_us`` is of the monotonic clock."""
        line = ObservedPhase(
            job=self._job,
            role=self._role,
            rank=self._rank,
            phase=phase,
            iteration=iteration,
            started_at=self._base + started_us,
            body_us=body_us,
            tokens=tokens,
            samples=samples,
            moved_bytes=moved_bytes,
        )
        self._append(msgspec.json.encode(line) + b"\n")

    def _append(self, line: bytes) -> None:
        """A full disk ends the observation, not the job that is observed."""
        with self._lock:
            if self._broken:
                return
            try:
                self._broken = self._file.write(line) != len(line)
            except OSError as error:
                self._broken = True
                logger.warning("%s cannot be written, so phases are no longer observed: %s", self.path, error.strerror)
