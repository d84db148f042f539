"""The agent of a node: starts the processes of ranks, reports their ends, and stops them for good.

It can be killed at any moment: ranks live on, and the next agent of the node finds them again by their files and
marks. Commands come from the node's inbox and are carried out at least once, side by side; the inbox is trimmed up to
the first that is not done. One thread does all: no step waits for anything but the store.
"""

import logging
import socket
import threading
import time
from collections import deque
from pathlib import Path
from typing import Protocol

import msgspec

from weaverl.channel import names
from weaverl.channel.sender import Sender
from weaverl.channel.store import START, Entry, Put, Store, Trim
from weaverl.channel.wire import WireError, decode_command
from weaverl.control.log_tail import last_lines
from weaverl.control.processes import LAUNCHER, MARK, Killing, marked, reap_orphans
from weaverl.control.rank_process import (
    Meeting,
    StoreAccess,
    environment_of,
    is_master,
    log_of,
    mark_of,
    rank_of_mark,
    resolve_command,
)
from weaverl.control.started_ranks import RankEnd, StartedRank, StartedRanks
from weaverl.domain.cluster import Node
from weaverl.domain.commands import AnyCommand, KillJob, StartRank
from weaverl.domain.events import AgentReported, AnyEvent, DeathConfirmed, ProcessExited, RankId, StartFailed
from weaverl.errors import ClusterError, StoreUnavailableError

logger = logging.getLogger("weaverl.agent")

_BEAT_SECONDS = 1.0
_IDLE_WAIT_SECONDS = 0.2
_BUSY_WAIT_SECONDS = 0.02
_MEETING_PATIENCE_SECONDS = 60.0
_KILL_PATIENCE_SECONDS = 60.0


class _Task(Protocol):
    """A command on its way."""

    def step(self) -> bool:
        """Go on, without waiting; True once it is carried out."""


class _Commanded(msgspec.Struct):
    """A command of the inbox, until it and all before it are carried out."""

    position: str
    task: _Task | None


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
        self.store = store
        self.cluster = cluster
        self.node = node
        self.directory = directory
        self.access = access
        self.master_host = master_host
        self.ranks = StartedRanks(directory / "ranks" / node.name)
        self._sender = Sender(store, f"agent/{node.name}")
        self._answered: tuple[int, bytes | None] = (0, None)
        self._beats = 0
        self._beat_due = 0.0
        self._position: str | None = None
        self._commands: deque[_Commanded] = deque()

    def run(self, stop: threading.Event) -> None:
        """Serve until told to stop; ranks are left running."""
        while not stop.is_set():
            try:
                self.turn()
            except StoreUnavailableError as error:
                logger.warning("%s; trying again", error)

    def turn(self) -> None:
        """Beat, read, report what ended, go on with every command.

        In this order: what has ended by itself is told before a command to stop it is carried out.
        """
        self._beat()
        self._read()
        for end in self.ranks.ended():
            self.send(_event_of(end, self.node.name, self._stops(end.started.rank)))
            self.ranks.drop(end.started.rank)
        self._work()
        reap_orphans(self.ranks.launcher_pids())

    def send(self, event: AnyEvent) -> None:
        """Tell the controller."""
        self._sender.send(event)

    def publish(self, key: str, value: bytes) -> None:
        """Set a key."""
        self._sender.commit([Put(key, value)])

    def _beat(self) -> None:
        now = time.monotonic()
        if now < self._beat_due:
            return
        self._beat_due = now + _BEAT_SECONDS
        self._beats += 1
        self.publish(names.node_beat(self.node.name), f"{time.time_ns()}-{self._beats}".encode())
        asked = int(self.store.get(names.EPOCH) or 0), self.store.get(names.roll_call(self.node.name))
        if asked != self._answered:
            alive = {rank_of_mark(one.mark) for one in marked(f"{self.cluster}/{self.node.name}/")}
            ranks = tuple(sorted(rank for rank in alive if rank is not None))
            record = Put(names.node_record(self.node.name), msgspec.json.encode(self.node))
            self._sender.send(AgentReported(epoch=asked[0], node=self.node, alive=ranks), record)
            self._answered = asked

    def _read(self) -> None:
        if self._position is None:
            cursor = self.store.get(names.node_cursor(self.node.name))
            self._position = START if cursor is None else cursor.decode()
        wait = _BUSY_WAIT_SECONDS if self._commands else _IDLE_WAIT_SECONDS
        for entry in self.store.read(names.node_inbox(self.node.name), self._position, wait_seconds=wait):
            self._commands.append(_Commanded(entry.position, self._task_of(_readable(entry))))
            self._position = entry.position

    def _task_of(self, command: AnyCommand | None) -> _Task | None:
        match command:
            case StartRank():
                return _Start(self, command)
            case KillJob():
                return _Kill(self, command)
            case _:
                return None

    def _stops(self, rank: RankId) -> bool:
        tasks = (one.task for one in self._commands)
        return any(isinstance(task, _Kill) and task.has_begun(rank.job, rank.attempt) for task in tasks)

    def _work(self) -> None:
        for one in self._commands:
            if one.task is not None and one.task.step():
                one.task = None
        done = None
        while self._commands and self._commands[0].task is None:
            done = self._commands.popleft().position
        if done is not None:
            cursor = Put(names.node_cursor(self.node.name), done.encode())
            self._sender.commit([cursor, Trim(names.node_inbox(self.node.name), done)])


class _Start:
    """A rank's start: once, and not at all if its attempt was revoked meanwhile."""

    def __init__(self, agent: Agent, command: StartRank) -> None:
        self._agent = agent
        self._command = command
        self._deadline = time.monotonic() + _MEETING_PATIENCE_SECONDS
        self._is_launched = False

    def step(self) -> bool:
        """Wait for the meeting, launch, and wait until the launcher has claimed the rank."""
        agent, rank = self._agent, self._command.rank
        started = agent.ranks.find(rank)
        if started is not None:
            if started.meeting is not None and not self._is_revoked():
                agent.publish(names.rendezvous(rank.job, rank.attempt), msgspec.json.encode(started.meeting))
            return True
        if self._is_revoked():
            return True
        if self._is_launched:
            return self._fail("its launcher ended at once") if not agent.ranks.is_starting(rank) else False
        try:
            self._is_launched = self._launch()
        except (OSError, ClusterError) as error:
            return self._fail(str(error))
        return False

    def _launch(self) -> bool:
        """Launch, unless the meeting is not known yet."""
        if not is_master(self._command):
            meeting = self._published()
            if meeting is not None:
                self._start(meeting, None)
            return meeting is not None
        meeting, listener = Meeting.bind(self._agent.master_host)
        with listener:
            self._start(meeting, listener)
        return True

    def _start(self, meeting: Meeting, listener: socket.socket | None) -> None:
        agent, command = self._agent, self._command
        directory = Path(command.working_directory)
        descriptor = listener.fileno() if listener is not None else None
        environment = environment_of(
            command, agent.node, agent.cluster, agent.access, agent.directory, meeting, descriptor
        )
        logger.info("starts %s", command.rank)
        agent.ranks.launch(
            StartedRank(command.rank, str(log_of(agent.directory, command.rank)), meeting if listener else None),
            resolve_command(command.role.command, directory),
            environment={**environment, MARK: environment[MARK] + LAUNCHER},
            directory=directory,
            cpus=agent.node.cpus,
            descriptor=descriptor,
        )

    def _published(self) -> Meeting | None:
        rank = self._command.rank
        published = self._agent.store.get(names.rendezvous(rank.job, rank.attempt))
        if published is None and time.monotonic() > self._deadline:
            raise ClusterError(f"node {self._command.master_node} published no meeting place for {rank.job}")
        return None if published is None else msgspec.json.decode(published, type=Meeting)

    def _is_revoked(self) -> bool:
        rank = self._command.rank
        return self._agent.store.get(names.revoked(rank.job, rank.attempt)) is not None

    def _fail(self, reason: str) -> bool:
        self._agent.send(StartFailed(rank=self._command.rank, node=self._agent.node.name, reason=reason))
        return True


class _Kill:
    """An attempt's end on this node, confirmed once nothing of it is left."""

    def __init__(self, agent: Agent, command: KillJob) -> None:
        self._agent = agent
        self._command = command
        self._killing = Killing(mark_of(agent.cluster, agent.node.name, command.job, command.attempt))
        self._complain_at = time.monotonic() + _KILL_PATIENCE_SECONDS
        self._has_begun = False
        logger.info("stops %s attempt %d: %s", command.job, command.attempt, command.reason)

    def has_begun(self, job: str, attempt: int) -> bool:
        """Whether processes of this attempt were signalled."""
        return self._has_begun and (job, attempt) == (self._command.job, self._command.attempt)

    def step(self) -> bool:
        """Signal what still lives; confirm when nothing does."""
        job, attempt = self._command.job, self._command.attempt
        self._has_begun = True
        if not self._killing.step():
            if time.monotonic() > self._complain_at:
                self._complain_at += _KILL_PATIENCE_SECONDS
                logger.error("processes of %s do not die; its slots stay in quarantine", job)
            return False
        self._agent.send(DeathConfirmed(job=job, attempt=attempt, node=self._agent.node.name))
        self._agent.ranks.forget(job, attempt)
        return True


def _event_of(end: RankEnd, node: str, stopped: bool) -> StartFailed | ProcessExited:
    rank: RankId = end.started.rank
    if end.start_error:
        return StartFailed(rank=rank, node=node, reason=end.start_error)
    words = last_lines(Path(end.started.log)) or ("(it wrote nothing; `weaverl logs` shows the other ranks)",)
    return ProcessExited(rank=rank, node=node, exit_code=end.exit_code, last_lines=words, stopped=stopped)


def _readable(entry: Entry) -> AnyCommand | None:
    try:
        return decode_command(entry.data)
    except WireError as error:
        logger.error("command %s is passed over: %s", entry.position, error)
        return None
