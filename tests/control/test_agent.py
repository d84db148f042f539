"""An agent on a store in memory, a turn at a time: commands come at least once, and what they ask happens once."""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from live import await_true, cluster

from weaverl.channel import names
from weaverl.channel.memory import InMemoryStore
from weaverl.channel.sender import Sender
from weaverl.channel.store import START, Append, Put
from weaverl.channel.wire import decode_event, encode_command
from weaverl.control.agent import Agent
from weaverl.control.processes import kill_marked, marked
from weaverl.control.rank_process import Meeting, StoreAccess
from weaverl.domain.commands import AnyCommand, KillJob, StartRank
from weaverl.domain.events import AgentReported, AnyEvent, DeathConfirmed, ProcessExited, RankId
from weaverl.domain.jobs import Role

NODE = cluster().nodes[0]
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('here', flush=True); time.sleep(1000)"
)


class Bench:
    """A store with one node's inbox, and agents of that node one after the other."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.instance = f"test-{os.getpid()}-{time.monotonic_ns()}"
        self.store = InMemoryStore()
        self.controller = Sender(self.store, "controller")
        self.restart()

    def restart(self) -> None:
        self.agent = Agent(self.store, self.instance, NODE, self.directory, StoreAccess("unix:///nowhere"))

    def command(self, *commands: AnyCommand) -> None:
        writes = [Append(names.node_inbox(NODE.name), encode_command(command)) for command in commands]
        self.controller.commit(writes)

    def start(self, program: str, *, role: str = "run", master: str = "run") -> StartRank:
        return StartRank(
            rank=RankId("job", 1, role, 0),
            node=NODE.name,
            role=Role(name=role, command=(sys.executable, "-S", "-c", program)),
            world_size=1,
            slots=(),
            role_sizes=dict.fromkeys((master, role), 1),
            master_node="elsewhere",
            working_directory=str(self.directory),
        )

    def kill(self) -> None:
        self.controller.commit(
            [
                Put(names.revoked("job", 1), b"1"),
                Append(
                    names.node_inbox(NODE.name),
                    encode_command(KillJob(job="job", attempt=1, node=NODE.name, reason="test")),
                ),
            ]
        )

    def events(self, kind: type[AnyEvent]) -> list[AnyEvent]:
        found = [decode_event(entry.data) for entry in self.store.read(names.EVENTS, START, limit=10**6)]
        return [event for event in found if isinstance(event, kind)]

    def turn_until(self, condition: object, seconds: float = 10.0) -> None:
        def turned() -> bool:
            self.agent.turn()
            return bool(condition())

        await_true(turned, seconds)

    def log(self) -> str:
        found = list((self.directory / "logs").rglob("*.log"))
        return found[0].read_text() if found else ""

    def inbox(self) -> int:
        return len(self.store.read(names.node_inbox(NODE.name), START))


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setattr("weaverl.control.agent._BEAT_SECONDS", 0.2)
    made = Bench(tmp_path)
    yield made
    kill_marked(f"{made.instance}/", grace_seconds=0.0)


def test_a_start_that_comes_twice_happens_once_even_after_the_rank_has_ended(bench: Bench):
    start = bench.start("print('here', flush=True)")
    bench.command(start, start)
    bench.turn_until(lambda: bench.events(ProcessExited))
    bench.restart()
    bench.command(start)
    bench.turn_until(lambda: bench.inbox() == 0)
    time.sleep(0.1)
    assert bench.log() == "here\n"
    assert {event.exit_code for event in bench.events(ProcessExited)} == {0}


def test_the_meeting_is_published_by_the_next_agent_if_the_first_could_not(bench: Bench):
    bench.command(bench.start("import os; print(os.environ['MASTER_PORT'], flush=True); import time; time.sleep(1000)"))
    bench.agent._read()
    task = bench.agent._commands[0].task
    assert task is not None
    while not (bench.log() and bench.agent.ranks.find(RankId("job", 1, "run", 0))):
        if not task._is_launched:
            task.step()
        time.sleep(0.01)
    assert bench.store.get(names.rendezvous("job", 1)) is None, "launched, and the agent is killed now"
    bench.restart()
    bench.turn_until(lambda: bench.inbox() == 0)
    published = bench.store.get(names.rendezvous("job", 1))
    assert published is not None
    assert msgspec.json.decode(published, type=Meeting).port == int(bench.log())


def test_a_kill_that_the_agent_did_not_survive_is_confirmed_by_the_next(bench: Bench):
    bench.command(bench.start(STUBBORN))
    bench.turn_until(lambda: bench.log() == "here\n")
    bench.kill()
    for _ in range(3):
        bench.agent.turn()
    assert bench.events(DeathConfirmed) == []
    bench.restart()
    bench.turn_until(lambda: bench.events(DeathConfirmed))
    assert marked(f"{bench.instance}/") == []
    assert bench.inbox() == 0
    assert list((bench.directory / "ranks" / NODE.name).iterdir()) == []


def test_a_rank_that_died_before_its_kill_was_carried_out_is_not_reported_as_stopped(bench: Bench):
    dies = bench.start("import os; os.kill(os.getpid(), 9)", role="training", master="run")
    bench.store.commit([Put(names.rendezvous("job", 1), b'{"host":"127.0.0.1","port":1}')], producer="t", sequence=1)
    bench.command(bench.start(STUBBORN), dies)
    bench.turn_until(lambda: "here" in bench.log() and bench.inbox() == 0)
    files = bench.directory / "ranks" / NODE.name
    bench.restart()
    await_true(lambda: bool(list(files.glob("*/training-0.exit"))) or bool(bench.events(ProcessExited)))
    bench.kill()
    bench.turn_until(lambda: bench.events(DeathConfirmed))
    reported = {(event.rank.role, event.exit_code, event.stopped) for event in bench.events(ProcessExited)}
    assert reported == {("training", -9, False), ("run", -9, True)}


def test_a_start_that_waits_for_its_meeting_delays_no_beat_and_no_other_command(bench: Bench):
    bench.command(bench.start("print('here')", role="training", master="rollout"))
    beats = set()
    begun = time.monotonic()
    while time.monotonic() - begun < 0.7:
        bench.agent.turn()
        beats.add(bench.store.get(names.node_beat(NODE.name)))
    assert len(beats) >= 2
    bench.kill()
    bench.turn_until(lambda: bench.events(DeathConfirmed))
    assert bench.inbox() == 0, "the start was given up: its attempt is revoked"
    assert bench.log() == ""


def test_a_start_after_its_kill_never_happens(bench: Bench):
    bench.kill()
    bench.command(bench.start("print('here', flush=True)"))
    bench.turn_until(lambda: bench.inbox() == 0)
    assert bench.log() == ""
    assert len(bench.events(DeathConfirmed)) == 1


def test_an_unreadable_command_is_passed_over_once(bench: Bench, caplog: pytest.LogCaptureFixture):
    bench.controller.commit([Append(names.node_inbox(NODE.name), b"rubbish")])
    bench.command(bench.start("print('here', flush=True)"))
    bench.turn_until(lambda: bench.log() == "here\n" and bench.inbox() == 0)
    assert sum("is passed over" in record.getMessage() for record in caplog.records) == 1


def test_the_agent_reports_again_when_it_is_called(bench: Bench):
    bench.agent.turn()
    assert bench.events(AgentReported) == [], "no controller has led yet"
    bench.controller.commit([Put(names.EPOCH, b"3")])
    bench.turn_until(lambda: len(bench.events(AgentReported)) == 1)
    bench.controller.commit([Put(names.roll_call(NODE.name), b"3-1")])
    bench.turn_until(lambda: len(bench.events(AgentReported)) == 2)
    assert {event.epoch for event in bench.events(AgentReported)} == {3}
