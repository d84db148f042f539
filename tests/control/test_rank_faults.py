"""Ranks that die, freeze, never start or never end, on a real cluster."""

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest
from live import Live, as_json, await_true, done, every, overlaps

from weaverl.control.client import connect
from weaverl.domain.commands import GrantPermit
from weaverl.domain.events import DeathConfirmed
from weaverl.domain.jobs import JobState


def facts_after_death(live: Live, dead: str, other: str) -> list[str]:
    """The order of the dead job's confirmation and of the other's grants after its own last grant, from the log."""
    story: list[str] = []
    for fact in live.facts():
        if isinstance(fact.event, DeathConfirmed) and fact.event.job == dead:
            story.append(f"death {fact.event.node}")
        for command in fact.commands:
            if isinstance(command, GrantPermit) and command.job in (dead, other):
                story.append(f"grant {command.job} {command.phase} {','.join(slot.node for slot in command.slots)}")
    last = max(place for place, what in enumerate(story) if what.startswith(f"grant {dead}"))
    return story[last + 1 :]


def test_a_killed_rank_is_dead_with_its_children_before_its_slot_is_granted(live: Live):
    live.submit("killed", "--iterations", 4, "--hang-in", "rollout", "--children", 2)
    live.submit("other", "--iterations", 8)
    holder = live.await_phase("killed", "rollout", 1)
    assert len(live.processes_of("killed")) == 6, "launcher, rank, four sleepers"
    os.kill(holder.pid, signal.SIGKILL)
    live.await_finished("other")
    killed = live.await_end("killed")["killed"]
    assert killed.state is JobState.FAILED
    assert killed.reason == "killed/run-0 was ended by signal 9 (SIGKILL; killed by somebody, or out of memory)"
    assert killed.last_lines[-1] == "hangs now"
    assert live.processes_of("killed") == []
    assert done(live.marks("other")) == every(("other",), 8)
    assert overlaps([m for m in live.marks("killed", "other") if (m.job, m.iteration) != ("killed", 1)]) == []
    story = facts_after_death(live, "killed", "other")
    rollouts = [place for place, what in enumerate(story) if what == "grant other rollout r0"]
    assert story.index("death r0") < rollouts[0], story


def test_a_failed_job_is_explained_with_signal_and_last_lines(live: Live):
    shown = as_json(live.run("status", "--json").stdout)
    killed = next(job for job in shown["jobs"] if job["name"] == "killed")
    assert "SIGKILL" in killed["reason"] and killed["last_lines"][-1] == "hangs now"
    explained = live.run("explain", "killed").stdout
    assert "SIGKILL" in explained and "| hangs now" in explained


def test_a_frozen_holder_is_killed_and_never_acts_again(live: Live):
    live.submit("frozen", "--iterations", 4, "--seconds", 0.4)
    live.submit("waiting", "--iterations", 3)
    holder = live.await_phase("frozen", "training", 1)
    os.kill(holder.pid, signal.SIGSTOP)
    live.client.cancel("frozen")
    live.await_finished("waiting")
    assert live.await_end("frozen")["frozen"].state is JobState.CANCELLED
    last = live.marks("frozen")[-1]
    assert (last.phase, last.iteration, last.edge) == ("training", 1, "begin")
    assert live.processes_of("frozen") == []


def test_a_rank_that_ignores_term_is_killed_after_the_grace(live: Live):
    live.submit("stubborn", "--hang-in", "rollout", "--ignore-term")
    live.await_phase("stubborn", "rollout", 1)
    begun = time.monotonic()
    live.client.cancel("stubborn")
    assert live.await_end("stubborn")["stubborn"].state is JobState.CANCELLED
    assert 1.5 < time.monotonic() - begun < 6.0
    assert live.processes_of("stubborn") == []


def test_a_rank_that_outlives_the_driver_is_ended_after_the_exit_patience(live: Live):
    live.submit("tail", "--iterations", 2, "--linger-role", "training", roles=("rollout", "training"))
    tail = live.await_end("tail")["tail"]
    assert (tail.state, tail.reason) == (JobState.FINISHED, "training-0 still ran after the others had ended")
    assert live.processes_of("tail") == []


@pytest.mark.parametrize(
    ("name", "command", "state", "reason"),
    [
        (
            "missing",
            ("no-such-program",),
            JobState.FAILED,
            "missing/run-0 did not start: program no-such-program is not",
        ),
        ("plain", ("python", "-c", "print('hello')"), JobState.FINISHED, ""),
        ("three", ("python", "-c", "raise SystemExit(3)"), JobState.FAILED, "three/run-0 exited with code 3"),
        (
            "aborts",
            ("python", "-c", "import os; print('last words', flush=True); os.abort()"),
            JobState.FAILED,
            "aborts/run-0 was ended by signal 6 (SIGABRT; a native library aborted)",
        ),
        ("folder", ("/tmp",), JobState.FAILED, "folder/run-0 did not start: "),
    ],
)
def test_a_command_of_any_kind_ends_as_what_it_is(
    live: Live, name: str, command: tuple[str, ...], state: JobState, reason: str
):
    live.submit(name, commands={"run": command})
    ended = live.await_end(name)[name]
    assert ended.state is state
    assert ended.reason.startswith(reason)


def test_a_program_that_cannot_be_executed_says_so(live: Live, directory: Path):
    script = directory / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    live.submit("script", commands={"run": (str(script),)})
    ended = live.await_end("script")["script"]
    assert (ended.state, ended.reason) == (
        JobState.FAILED,
        f"script/run-0 did not start: No such file or directory: {script}",
    )


def test_a_working_directory_that_vanished_is_named(live: Live, directory: Path):
    gone = directory / "gone"
    live.submit("homeless", working_directory=str(gone))
    ended = live.await_end("homeless")["homeless"]
    assert ended.state is JobState.FAILED
    assert f"working directory {gone} is not there any more" in ended.reason


def test_a_failed_job_with_retries_starts_anew_and_leaves_nothing_in_the_store(live: Live, directory: Path):
    flag = directory / "flag"
    once = f"import os, pathlib; p = pathlib.Path({str(flag)!r}); seen = p.exists(); p.touch(); os._exit(not seen)"
    live.submit("again", commands={"run": ("python", "-c", once)}, max_retries=1)
    ended = live.await_end("again")["again"]
    assert (ended.state, ended.attempt) == (JobState.FINISHED, 2)
    store = connect(live.home.require_head().access)
    left = sorted(key for key in store.get_prefix("") if "again/" in key)
    assert left == ["revoked/again/1", "revoked/again/2"], "only that the attempts are over"


def test_a_rank_inherits_nothing_that_it_was_not_given(live: Live, directory: Path):
    seen = directory / "seen.py"
    seen.write_text(
        "import json, os, signal, sys\n"
        "fds = sorted(os.readlink(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd') if n != '3'"
        " and os.path.exists(f'/proc/self/fd/{n}'))\n"
        "blocked = sorted(signal.pthread_sigmask(signal.SIG_BLOCK, []))\n"
        "ignored = [int(n) for n in range(1, 32) if signal.getsignal(n) is signal.SIG_IGN]\n"
        "import socket; port = socket.socket(fileno=int(os.environ['WEAVERL_MASTER_FD'])).getsockname()[1]\n"
        "print(json.dumps([fds, blocked, ignored, port, dict(os.environ)]), flush=True)\n"
    )
    live.submit("heir", commands={"run": ("python", str(seen))})
    live.await_finished("heir")
    fds, blocked, ignored, port, environment = json.loads(live.home.job_logs("heir")[0].read_text())
    log = str(live.home.job_logs("heir")[0])
    assert [fd for fd in fds if not fd.startswith("socket:")] == ["/dev/null", log, log]
    assert len(fds) == 4, "the meeting's listener, and no more"
    assert port == int(environment["MASTER_PORT"])
    assert blocked == []
    assert set(ignored) <= {signal.SIGPIPE, signal.SIGXFSZ}, "what Python itself ignores"
    assert "WEAVERL_HOME" not in environment and "WEAVERL_PARAMETERS" not in environment
    assert environment["WEAVERL_MARK"].endswith("/heir/1/run/0")


def test_a_process_that_wiped_its_environment_dies_with_its_rank(live: Live, directory: Path):
    script = directory / "wiped.py"
    script.write_text(
        "import subprocess, sys, time\n"
        "subprocess.Popen(['setsid', 'env', '-i', 'sh', '-c', '(sleep 1003 &) ; sleep 1003'])\n"
        "print('ready', flush=True); time.sleep(1000)\n"
    )
    live.submit("wiper", commands={"run": ("python", str(script))})
    await_true(lambda: bool(live.home.job_logs("wiper")) and "ready" in live.home.job_logs("wiper")[0].read_text())
    await_true(lambda: len(live.processes_of("wiper")) == 5)
    family = live.processes_of("wiper")
    live.client.cancel("wiper")
    live.await_end("wiper")
    assert not [process for process in family if process.is_alive()]


def test_agents_leak_no_descriptors_over_many_ranks(live: Live):
    agent = live.home.process("agent-r0")
    assert agent is not None
    descriptors = Path(f"/proc/{agent.pid}/fd")
    before = len(list(descriptors.iterdir()))
    names = [f"short-{number}" for number in range(5)]
    for name in names:
        live.submit(name, commands={"run": (sys.executable, "-S", "-c", "pass")})
    live.await_finished(*names)
    assert len(list(descriptors.iterdir())) <= before
    assert not list((live.home.directory / "ranks" / "r0").iterdir())
