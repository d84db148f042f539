"""Processes known by pid and start, found by mark; the launcher that starts a rank once and tells its end."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from live import await_true

from weaverl.control import launcher
from weaverl.control.processes import LAUNCHER, MARK, Killing, ProcessId, kill_marked, marked, reap_orphans, start
from weaverl.control.rank_process import Meeting, StoreAccess, environment_of, without_weaverl
from weaverl.control.started_ranks import RankEnd, StartedRank, StartedRanks
from weaverl.domain.commands import StartRank
from weaverl.domain.events import RankId
from weaverl.domain.jobs import Role

RANK = RankId("job", 1, "run", 0)


def marked_sleeper(mark: str, *command: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command or ("sleep", "1000"), env={**os.environ, MARK: mark})


@pytest.fixture
def mark() -> str:
    return f"test-{os.getpid()}-{time.monotonic_ns()}/"


def launch(ranks: StartedRanks, directory: Path, mark: str, *command: str) -> None:
    ranks.launch(
        StartedRank(RANK, str(directory / "log")),
        list(command),
        environment={**os.environ, MARK: f"{mark}rank{LAUNCHER}"},
        directory=directory,
        cpus=(),
        descriptor=None,
    )


def await_end(ranks: StartedRanks) -> RankEnd:
    await_true(lambda: ranks.find(RANK) is not None)
    await_true(lambda: bool(list(ranks.ended())))
    (end,) = ranks.ended()
    return end


def test_a_process_is_not_the_later_one_of_its_number():
    me = ProcessId.of_self()
    assert me.is_alive()
    assert not ProcessId(me.pid, me.start_ticks - 1, me.boot).is_alive()
    assert not ProcessId(me.pid, me.start_ticks, "another boot").is_alive()
    ProcessId(me.pid, me.start_ticks - 1, me.boot).send(signal.SIGKILL)


def test_a_zombie_is_dead_and_a_signal_to_the_dead_is_no_error():
    child = subprocess.Popen(["sleep", "0"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert ProcessId.of(child.pid) is None
    child.wait()


def test_term_first_then_kill_for_who_ignores_it(mark: str):
    polite = marked_sleeper(mark)
    stubborn = marked_sleeper(mark, "sh", "-c", "trap '' TERM; while :; do sleep 0.1; done")
    await_true(lambda: len(marked(mark)) >= 3)
    assert kill_marked(mark, grace_seconds=0.3)
    assert (polite.wait(), stubborn.wait()) == (-signal.SIGTERM, -signal.SIGKILL)
    assert marked(mark) == []


def test_a_stopped_process_is_killed_without_waking(mark: str, tmp_path: Path):
    touched = tmp_path / "touched"
    program = f"""
import signal
signal.signal(signal.SIGTERM, lambda *_: open({str(touched)!r}, 'w'))
print('ready', flush=True)
while True:
    signal.pause()
"""
    environment = {**os.environ, MARK: mark}
    child = subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE)
    assert child.stdout is not None and child.stdout.readline() == b"ready\n"
    child.send_signal(signal.SIGSTOP)
    await_true(lambda: marked(mark)[0].is_stopped)
    killing = Killing(mark)
    killing.step()
    assert child.wait(5) == -signal.SIGKILL
    assert not touched.exists()


def test_this_process_is_never_among_those_it_kills(mark: str):
    with subprocess.Popen(
        [sys.executable, "-c", f"from weaverl.control.processes import kill_marked; print(kill_marked({mark!r}))"],
        env={**os.environ, MARK: mark},
        stdout=subprocess.PIPE,
    ) as child:
        assert child.communicate()[0] == b"True\n"


def test_a_wait_status_is_told_as_it_was(tmp_path: Path, mark: str):
    for command, code in (("exit 5", 5), ("kill -ABRT $$", -6), ("true", 0)):
        ranks = StartedRanks(tmp_path / command.replace(" ", ""))
        launch(ranks, tmp_path, mark, "/bin/sh", "-c", command)
        assert await_end(ranks).exit_code == code


def test_a_rank_is_started_once_by_however_many_launchers(tmp_path: Path, mark: str):
    log = tmp_path / "log"
    for _ in range(5):
        launch(StartedRanks(tmp_path / "ranks"), tmp_path, mark, "/bin/sh", "-c", "echo once; sleep 0.2")
    assert await_end(StartedRanks(tmp_path / "ranks")).exit_code == 0
    await_true(lambda: not marked(mark))
    assert log.read_text() == "once\n"


def test_a_rank_that_could_not_be_executed_is_told_with_the_reason(tmp_path: Path, mark: str):
    ranks = StartedRanks(tmp_path / "ranks")
    launch(ranks, tmp_path, mark, "/no/such/program")
    assert await_end(ranks).start_error == "No such file or directory: /no/such/program"


def test_a_new_agent_finds_ranks_and_their_ends_on_disk_until_they_are_forgotten(tmp_path: Path, mark: str):
    launch(StartedRanks(tmp_path / "ranks"), tmp_path, mark, "/bin/sh", "-c", "exit 4")
    await_true(lambda: (tmp_path / "ranks" / "job.1" / "run-0.exit").exists())
    ranks = StartedRanks(tmp_path / "ranks")
    assert [end.exit_code for end in ranks.ended()] == [4]
    ranks.drop(RANK)
    assert list(ranks.ended()) == []
    ranks.forget("job", 1)
    assert list(StartedRanks(tmp_path / "ranks").ended()) == []


def test_a_launcher_outlives_its_rank_until_the_whole_family_is_gone(tmp_path: Path, mark: str):
    ranks = StartedRanks(tmp_path / "ranks")
    launch(ranks, tmp_path, mark, "/bin/sh", "-c", "setsid env -i /bin/sh -c 'sleep 1002 & sleep 1002' &")
    assert await_end(ranks).exit_code == 0
    await_true(lambda: len(marked(mark)) >= 3)
    assert kill_marked(mark)
    assert marked(mark) == []


def test_the_launcher_starts_fast_and_needs_no_package(tmp_path: Path):
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-I", "-S", launcher.__file__, str(tmp_path / "x"), "", "/bin/true"],
        env={MARK: "m/launcher"},
        check=False,
    )
    assert done.returncode == 0
    assert time.monotonic() - begun < 0.5
    assert (tmp_path / "x.exit").read_text() == "0"


def test_orphans_that_fall_to_us_leave_no_zombies_and_own_children_keep_their_status():
    child = subprocess.Popen(["sh", "-c", "exit 3"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    reap_orphans({child.pid})
    assert child.wait() == 3
    stranger = os.posix_spawn("/bin/true", ["true"], {})
    os.waitid(os.P_PID, stranger, os.WEXITED | os.WNOWAIT)
    reap_orphans(set())
    with pytest.raises(ChildProcessError):
        os.waitpid(stranger, 0)


def test_affinity_is_put_back_when_a_start_fails(tmp_path: Path):
    before = os.sched_getaffinity(0)
    with pytest.raises(FileNotFoundError):
        start(["/no/such"], environment={}, directory=tmp_path, log=tmp_path / "log", cpus=(min(before),))
    assert os.sched_getaffinity(0) == before


def test_what_an_outer_job_says_of_weaverl_reaches_no_rank(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    from live import cluster

    monkeypatch.setenv("WEAVERL_MODE", "observe")
    monkeypatch.setenv("WEAVERL_MASTER_FD", "7")
    monkeypatch.setenv("WEAVERL_CHECKPOINT_DIRECTORY", "/outer")
    command = StartRank(
        rank=RANK,
        node="r0",
        role=Role(name="run", command=("true",)),
        world_size=1,
        slots=(),
        role_sizes={"run": 1},
        master_node="r0",
        environment={"PYTHONUNBUFFERED": "0"},
    )
    node = cluster().nodes[0]
    found = environment_of(command, node, "c", StoreAccess("unix:///s"), tmp_path, Meeting("127.0.0.1", 1), None)
    assert not {"WEAVERL_MODE", "WEAVERL_MASTER_FD", "WEAVERL_CHECKPOINT_DIRECTORY"} & set(found)
    assert found["PYTHONUNBUFFERED"] == "0", "the job file has the last word on defaults"
    assert not [name for name in without_weaverl(os.environ) if name.startswith("WEAVERL_")]


def test_a_look_at_a_thousand_processes_takes_a_fraction_of_a_second(mark: str):
    children = [subprocess.Popen(["sleep", "1000"]) for _ in range(300)]
    begun = time.monotonic()
    marked(mark)
    seconds = time.monotonic() - begun
    for child in children:
        child.kill()
        child.wait()
    assert seconds < 0.3
