"""The ranks that were started on a node, as files that outlive the agent: who claimed them, and how they ended.

A rank's files stay until its attempt is over, so that a command to start it that comes twice starts it once. They
are in a folder for each attempt: ``<role>-<rank>.json`` is written by the agent before it starts the launcher, the
launcher writes ``.claim`` and, at the end, ``.exit``.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from weaverl.control import launcher
from weaverl.control.processes import ProcessId, start
from weaverl.control.rank_process import Meeting
from weaverl.domain.events import RankId


class StartedRank(msgspec.Struct, frozen=True):
    """What the agent writes before it starts a rank; ``meeting`` if the rank serves it."""

    rank: RankId
    log: str
    meeting: Meeting | None = None


class RankEnd(msgspec.Struct, frozen=True):
    """How a rank ended; ``start_error`` if it never ran."""

    started: StartedRank
    exit_code: int | None
    start_error: str = ""


class StartedRanks:
    """Ranks of one node."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._launchers: dict[RankId, subprocess.Popen[bytes]] = {}
        self._known: dict[RankId, StartedRank] = {}
        for path in sorted(directory.glob("*/*.claim")):
            started = msgspec.json.decode(path.with_suffix(".json").read_bytes(), type=StartedRank)
            self._known[started.rank] = started

    def find(self, rank: RankId) -> StartedRank | None:
        """The rank, if it was started, be it by an earlier agent."""
        if self._file(rank, ".claim").exists():
            data = self._file(rank, ".json").read_bytes()
            return self._known.setdefault(rank, msgspec.json.decode(data, type=StartedRank))
        return None

    def launch(
        self,
        started: StartedRank,
        command: list[str],
        *,
        environment: Mapping[str, str],
        directory: Path,
        cpus: tuple[int, ...],
        descriptor: int | None,
    ) -> None:
        """Start a rank's launcher; ``find`` knows the rank a moment later. Raises OSError when it cannot be started."""
        file = self._file(started.rank, ".json")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(msgspec.json.encode(started))
        inherited = "" if descriptor is None else str(descriptor)
        self._launchers[started.rank] = start(
            [sys.executable, "-I", "-S", launcher.__file__, str(file.with_suffix("")), inherited, *command],
            environment=environment,
            directory=directory,
            log=Path(started.log),
            cpus=cpus,
            inherited=() if descriptor is None else (descriptor,),
        )

    def is_starting(self, rank: RankId) -> bool:
        """Whether the launcher that we started still lives."""
        return rank in self._launchers and self._launchers[rank].poll() is None

    def launcher_pids(self) -> set[int]:
        """Children of this process that are not reaped yet."""
        self._launchers = {rank: child for rank, child in self._launchers.items() if child.poll() is None}
        return {child.pid for child in self._launchers.values()}

    def ended(self) -> Iterator[RankEnd]:
        """Ranks that have ended; each again at every call, until it is dropped or forgotten."""
        for rank, started in list(self._known.items()):
            text = self._exit(rank)
            if text is None and not self._launcher_lives(rank):
                # The launcher was killed. It may have written the end between the two looks.
                text = self._exit(rank) or "none"
            if text is not None:
                yield _end(started, text)

    def drop(self, rank: RankId) -> None:
        """Its end was reported: look no more."""
        self._known.pop(rank, None)

    def forget(self, job: str, attempt: int) -> None:
        """Nothing of the attempt is left on this node."""
        for rank in [one for one in self._known if (one.job, one.attempt) == (job, attempt)]:
            self.drop(rank)
        shutil.rmtree(self._folder(job, attempt), ignore_errors=True)

    def _exit(self, rank: RankId) -> str | None:
        try:
            return self._file(rank, ".exit").read_text()
        except FileNotFoundError:
            return None

    def _launcher_lives(self, rank: RankId) -> bool:
        try:
            claim = self._file(rank, ".claim").read_bytes()
        except FileNotFoundError:
            return False
        return msgspec.json.decode(claim, type=ProcessId).is_alive()

    def _file(self, rank: RankId, ending: str) -> Path:
        return self._folder(rank.job, rank.attempt) / f"{rank.role}-{rank.rank}{ending}"

    def _folder(self, job: str, attempt: int) -> Path:
        return self._directory / f"{job}.{attempt}"


def _end(started: StartedRank, text: str) -> RankEnd:
    if text == "none":
        return RankEnd(started, None)
    if text.lstrip("-").isdecimal():
        return RankEnd(started, int(text))
    return RankEnd(started, None, start_error=text)
