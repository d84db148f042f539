"""The cluster's own processes are killed and frozen in the middle of a run: nothing is lost, nothing is run twice."""

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from live import ROOT, Live, await_true, cluster, done, every, overlaps

from auditor import audit
from weaverl.channel.valkey_server import ValkeyServer
from weaverl.control.processes import marked
from weaverl.domain.events import NodeLost
from weaverl.domain.jobs import JobState


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    """This module's cluster: it is harmed, and must be as good as new after each test."""
    path = Path(tempfile.mkdtemp(prefix="wv-", dir=ROOT))
    harmed = Live(path, cluster())
    harmed.up()
    yield harmed
    harmed.down()
    shutil.rmtree(path, ignore_errors=True)


def start_pair(live: Live, name: str, iterations: int, seconds: float = 0.05) -> tuple[str, str]:
    names = (f"{name}-a", f"{name}-b")
    for job in names:
        live.submit(job, "--iterations", iterations, "--seconds", seconds)
    live.await_phase(names[1], "rollout", 0)
    return names


def assert_all_once(live: Live, names: tuple[str, str], iterations: int, directory: Path) -> None:
    live.await_finished(*names, seconds=40.0)
    marks = live.marks(*names)
    assert done(marks) == every(names, iterations)
    assert overlaps(marks) == []
    live.audit_input(directory / "timeline")
    assert [one for one in audit(directory / "timeline").findings if names[0][:-2] in str(one)] == []


def test_a_killed_controller_is_back_within_seconds_in_a_new_epoch(live: Live, directory: Path):
    names = start_pair(live, "controller", 8)
    epoch = live.status().epoch
    begun = time.monotonic()
    live.kill("controller")
    assert live.await_epoch(epoch) > epoch
    assert time.monotonic() - begun < 5.0
    assert_all_once(live, names, 8, directory)


@pytest.mark.slow  # the head's growing pauses between restarts take 20 s
def test_a_controller_killed_again_and_again_loses_nothing(own: Live, directory: Path):
    own.up()
    names = start_pair(own, "again", 100)
    for _ in range(5):
        epoch = own.status().epoch
        own.kill("controller")
        own.await_epoch(epoch)
    assert_all_once(own, names, 100, directory)


def test_a_killed_agent_comes_back_to_the_same_ranks(live: Live, directory: Path):
    names = start_pair(live, "agent", 60)  # they outlast the agent's way back on a slow machine too
    ranks = {process for name in names for process in live.processes_of(name)}
    live.await_another("agent-r0", live.kill("agent-r0"))
    assert {process for name in names for process in live.processes_of(name)} == ranks
    assert_all_once(live, names, 60, directory)


def test_what_ends_while_no_agent_is_there_is_reported_with_its_exit_code(live: Live):
    live.submit("unseen", "--iterations", 3, "--seconds", 0.1)
    failing = "import time; time.sleep(0.7); raise SystemExit(7)"
    live.await_phase("unseen", "rollout", 0)
    live.submit("unseen-7", commands={"run": ("python", "-c", failing)})
    await_true(lambda: len(live.processes_of("unseen-7")) == 2)
    head = live.kill("head", signal.SIGSTOP)
    agent = live.kill("agent-r0")
    await_true(lambda: not live.processes_of("unseen") and not live.processes_of("unseen-7"), 20.0)
    assert live.home.process("agent-r0") is None
    head.send(signal.SIGCONT)
    live.await_another("agent-r0", agent)
    live.await_finished("unseen")
    assert live.await_end("unseen-7")["unseen-7"].reason == "unseen-7/run-0 exited with code 7"


def test_a_rank_whose_launcher_was_killed_fails_and_does_not_live_on(live: Live):
    live.submit("orphan", "--hang-in", "training", "--at", 0)
    rank = live.await_phase("orphan", "training", 0)
    found = marked(f"{live.home.instance}/r0/orphan/")
    (launcher,) = [one.process for one in found if one.is_launcher]
    assert launcher.pid != rank.pid
    launcher.send(signal.SIGKILL)
    ended = live.await_end("orphan")["orphan"]
    assert (ended.state, ended.reason) == (
        JobState.FAILED,
        "orphan/run-0 lost its launcher; its exit code is not known",
    )
    assert live.processes_of("orphan") == []


def test_a_killed_store_is_back_and_nothing_acknowledged_is_lost(live: Live, directory: Path):
    names = start_pair(live, "store", 12)
    for iteration in (3, 8):
        live.await_phase(names[0], "training", iteration)
        pid = ValkeyServer(live.home.store).pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await_true(lambda dead=pid: ValkeyServer(live.home.store).pid not in (None, dead))
    assert_all_once(live, names, 12, directory)


@pytest.mark.slow  # waits for the patience with a node's beats
def test_a_frozen_agent_is_away_and_ready_again_when_it_wakes(live: Live, directory: Path):
    names = start_pair(live, "freeze", 4)
    agent = live.kill("agent-t0", signal.SIGSTOP)
    await_true(lambda: live.node_state("t0") == "away", 10.0)
    grants = len([mark for mark in live.marks(*names) if mark.phase == "training"])
    time.sleep(0.5)
    assert len([mark for mark in live.marks(*names) if mark.phase == "training"]) == grants, "no grant in quarantine"
    assert any(isinstance(fact.event, NodeLost) and fact.event.node == "t0" for fact in live.facts())
    agent.send(signal.SIGCONT)
    await_true(lambda: live.node_state("t0") == "ready", 10.0)
    assert_all_once(live, names, 4, directory)


def test_everything_lives_on_without_a_head_and_up_takes_it_over(own: Live, directory: Path):
    assert own.up()
    names = start_pair(own, "headless", 14)
    before = own.home.processes()
    own.kill("head")
    own.await_phase(names[0], "rollout", 4)
    assert own.up(), "a new head"
    assert not own.up(), "and only one"
    after = own.home.processes()
    assert after.keys() == before.keys()
    assert {name for name in after if after[name] != before[name]} == {"head"}
    own.await_another("agent-t0", own.kill("agent-t0"))
    assert_all_once(own, names, 14, directory)


def test_down_leaves_nothing_when_the_head_is_dead(own: Live):
    own.up()
    own.submit("left", "--hang-in", "rollout", "--children", 1)
    own.await_phase("left", "rollout", 1)
    own.kill("head")
    assert own.run("down").returncode == 0
    assert not own.home.processes()
    assert not marked(own.home.instance)
    assert ValkeyServer(own.home.store).pid is None
    assert own.run("down").stdout == f"no cluster is up in {own.home.directory}\n"
