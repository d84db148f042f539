"""The agent of a node: starts the processes of ranks, reports their ends, and stops them for good.

It can be killed at any moment: ranks live on, and the next agent of the node finds them again by their mark. Commands
come from the node's inbox and are carried out at least once; each is safe to carry out again.
"""

import logging
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from weaverl.channel import names
from weaverl.channel.sender import Sender
from weaverl.channel.store import START, Put, Store, Trim
from weaverl.channel.wire import WireError, decode_command
from weaverl.control.log_tail import last_lines
from weaverl.control.processes import ExitWatcher, ProcessId, kill_marked, marked, start
from weaverl.control.rank_process import (
    Meeting,
    StoreAccess,
    environment_of,
    is_master,
    mark_of,
    rank_of_mark,
    resolve_command,
)
from weaverl.domain.cluster import Node
from weaverl.domain.commands import KillJob, StartRank
from weaverl.domain.events import (
    AgentReported,
    AnyEvent,
    DeathConfirmed,
    ProcessExited,
    RankId,
    StartFailed,
)
from weaverl.errors import ClusterError, StoreUnavailableError

logger = logging.getLogger("weaverl.agent")

_Answer = TypeVar("_Answer")

_BEAT_SECONDS = 1.0
_MEETING_PATIENCE_SECONDS = 60.0


class _Started(msgspec.Struct):
    """What the agent remembers on disk of a rank that it started, until its end is reported."""

    rank: RankId
    process: ProcessId
    log: str


class Agent:
    """One node's agent.

    Args:
        store: the cluster's.
        cluster: its name and the place of its state: no other cluster on the host bears the same.
        node: what this agent serves.
        directory: where it keeps records, ledgers and logs.
        access: how the ranks reach the store.
        master_host: address under which ranks on other hosts reach this one.
    """

    def __init__(
        self,
        store: Store,
        cluster: str,
        node: Node,
        directory: Path,
        access: StoreAccess,
        master_host: str = "127.0.0.1",
    ) -> None:
        self._store = store
        self._cluster = cluster
        self._node = node
        self._directory = directory
        self._access = access
        self._master_host = master_host
        self._sender = Sender(store, f"agent/{node.name}")
        self._watcher = ExitWatcher()
        self._records = directory / f"ranks-{node.name}.json"
        self._started: dict[str, _Started] = {}
        self._epoch = 0
        self._beats = 0
        self._beat_due = 0.0
        self._position = START

    def run(self, stop: threading.Event) -> None:
        """Serve until told to stop; ranks are left running."""
        self._directory.mkdir(parents=True, exist_ok=True)
        exits = threading.Thread(target=self._report_exits, args=(stop,), name="exits", daemon=True)
        adopted = self._adopt()
        cursor = _patiently(lambda: self._store.get(names.node_cursor(self._node.name)))
        self._position = START if cursor is None else cursor.decode()
        exits.start()
        for event in adopted:
            self._send(event)
        while not stop.is_set():
            try:
                self._beat()
                self._carry_out()
            except StoreUnavailableError as error:
                logger.warning("%s; trying again", error)

    def stop_ranks(self) -> None:
        """End every process of every job on this node."""
        kill_marked(f"{self._cluster}/{self._node.name}/")

    def _beat(self) -> None:
        now = time.monotonic()
        if now < self._beat_due:
            return
        self._beat_due = now + _BEAT_SECONDS
        self._beats += 1
        self._sender.commit([Put(names.node_beat(self._node.name), f"{time.time_ns()}-{self._beats}".encode())])
        epoch = int(self._store.get(names.EPOCH) or 0)
        if epoch != self._epoch:
            alive = {rank for _, mark in marked(self._prefix) if (rank := rank_of_mark(mark)) is not None}
            record = Put(names.node_record(self._node.name), msgspec.json.encode(self._node))
            self._sender.send(AgentReported(epoch=epoch, node=self._node, alive=tuple(sorted(alive))), record)
            self._epoch = epoch

    def _carry_out(self) -> None:
        inbox = names.node_inbox(self._node.name)
        for entry in self._store.read(inbox, self._position, wait_seconds=0.25):
            try:
                command = decode_command(entry.data)
            except WireError as error:
                logger.error("command %s is passed over: %s", entry.position, error)
                command = None
            match command:
                case StartRank():
                    self._start(command)
                case KillJob():
                    self._kill(command)
            self._position = entry.position
            cursor = Put(names.node_cursor(self._node.name), entry.position.encode())
            self._sender.commit([cursor, Trim(inbox, entry.position)])

    def _start(self, command: StartRank) -> None:
        """Start a rank, unless it was started before or its attempt was revoked meanwhile."""
        rank = command.rank
        if _key(rank) in self._started or self._is_revoked(rank):
            return
        if any(rank_of_mark(mark) == rank for _, mark in marked(self._prefix)):
            return
        log = self._directory / "logs" / rank.job / str(rank.attempt) / f"{rank.role}-{rank.rank}.log"
        listener: socket.socket | None = None
        try:
            meeting, listener = self._meet(command)
            child = self._launch(command, meeting, listener, log)
        except (OSError, ClusterError) as error:
            self._send(StartFailed(rank=rank, node=self._node.name, reason=str(error)))
            return
        finally:
            if listener is not None:
                listener.close()
        process = ProcessId.of(child.pid) or ProcessId(child.pid, 0.0)
        logger.info("started %s as process %d", rank, child.pid)
        self._remember(_Started(rank, process, str(log)))
        self._watcher.watch(_key(rank), process, child)

    def _launch(
        self, command: StartRank, meeting: Meeting, listener: socket.socket | None, log: Path
    ) -> subprocess.Popen[bytes]:
        directory = Path(command.working_directory)
        descriptor = listener.fileno() if listener is not None else None
        environment = environment_of(
            command, self._node, self._cluster, self._access, self._directory, meeting, descriptor
        )
        return start(
            resolve_command(command.role.command, directory),
            environment=environment,
            directory=directory,
            log=log,
            cpus=self._node.cpus,
            inherited=() if descriptor is None else (descriptor,),
        )

    def _meet(self, command: StartRank) -> tuple[Meeting, socket.socket | None]:
        """Bind and publish the attempt's meeting, or wait until the agent of its master has."""
        key = names.rendezvous(command.rank.job, command.rank.attempt)
        if is_master(command):
            meeting, listener = Meeting.bind(self._master_host)
            self._sender.commit([Put(key, msgspec.json.encode(meeting))])
            return meeting, listener
        deadline = time.monotonic() + _MEETING_PATIENCE_SECONDS
        while (published := self._store.get(key)) is None:
            if time.monotonic() > deadline:
                raise ClusterError(f"node {command.master_node} published no meeting place for {command.rank.job}")
            time.sleep(0.05)
        return msgspec.json.decode(published, type=Meeting), None

    def _kill(self, command: KillJob) -> None:
        """End an attempt here and confirm it; in a thread of its own, since a process may take its time to die."""
        logger.info("stops %s attempt %d: %s", command.job, command.attempt, command.reason)

        def kill() -> None:
            mark = mark_of(self._cluster, self._node.name, command.job, command.attempt)
            while not kill_marked(mark):
                logger.error("processes of %s do not die; its slots stay in quarantine", command.job)
            self._send(DeathConfirmed(job=command.job, attempt=command.attempt, node=self._node.name))

        threading.Thread(target=kill, name=f"kill-{command.job}", daemon=True).start()

    def _report_exits(self, stop: threading.Event) -> None:
        while not stop.is_set():
            for key, exit_code in self._watcher.ended(wait_seconds=0.2):
                self._send(self._exit_event(self._started[key], exit_code))
                self._forget(key)

    def _exit_event(self, started: _Started, exit_code: int | None) -> ProcessExited:
        lines = last_lines(Path(started.log))
        return ProcessExited(rank=started.rank, node=self._node.name, exit_code=exit_code, last_lines=lines)

    def _adopt(self) -> list[AnyEvent]:
        """Watch the ranks that an earlier agent of this node started; those that ended meanwhile are reported."""
        if self._records.exists():
            for started in msgspec.json.decode(self._records.read_bytes(), type=list[_Started]):
                self._started[_key(started.rank)] = started
        ended = [s for s in self._started.values() if not self._watcher.watch(_key(s.rank), s.process, None)]
        for process, mark in marked(self._prefix):
            rank = rank_of_mark(mark)
            if rank is not None and _key(rank) not in self._started and self._is_session_leader(process):
                log = self._directory / "logs" / rank.job / str(rank.attempt) / f"{rank.role}-{rank.rank}.log"
                self._started[_key(rank)] = _Started(rank, process, str(log))
                self._watcher.watch(_key(rank), process, None)
        events: list[AnyEvent] = [self._exit_event(one, None) for one in ended]
        for one in ended:
            self._forget(_key(one.rank))
        return events

    @staticmethod
    def _is_session_leader(process: ProcessId) -> bool:
        """The rank itself leads the session that it was started in; what it started itself does not."""
        stat = Path(f"/proc/{process.pid}/stat")
        return stat.exists() and int(stat.read_text().rsplit(")", 1)[1].split()[3]) == process.pid

    def _is_revoked(self, rank: RankId) -> bool:
        revoked = self._store.get(names.revoked(rank.job))
        return revoked is not None and int(revoked) >= rank.attempt

    def _send(self, event: AnyEvent) -> None:
        """Tell the controller, however long the store is away."""
        _patiently(lambda: self._sender.send(event))

    def _remember(self, started: _Started) -> None:
        self._started[_key(started.rank)] = started
        self._write_records()

    def _forget(self, key: str) -> None:
        self._started.pop(key, None)
        self._write_records()

    def _write_records(self) -> None:
        draft = self._records.with_suffix(".new")
        draft.write_bytes(msgspec.json.encode(list(self._started.values())))
        draft.replace(self._records)

    @property
    def _prefix(self) -> str:
        return f"{self._cluster}/{self._node.name}/"


def _key(rank: RankId) -> str:
    return f"{rank}/{rank.attempt}"


def _patiently(call: Callable[[], _Answer]) -> _Answer:
    """Ask the store until it answers."""
    while True:
        try:
            return call()
        except StoreUnavailableError as error:
            logger.warning("%s; trying again", error)
