"""`up`, `down`, `submit -f` and `logs -f` as people use them: twice, at once, in the wrong place, and with Ctrl-C."""

import json
import os
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from pathlib import Path

import msgspec
import pytest
from live import ROOT, Live, await_true, cluster, weaverl

from weaverl.channel.sender import Sender
from weaverl.channel.store import Append
from weaverl.cli.cluster import bring_up
from weaverl.control.client import connect
from weaverl.control.home import HeadRecord, Home
from weaverl.control.processes import ProcessId, marked
from weaverl.control.rank_process import StoreAccess
from weaverl.domain.commands import AdmitJob
from weaverl.errors import UsageError

CLUSTER = """\
name: {name}
pools:
  rollout: {{gpu: H20, usd_per_gpu_hour: 1.85}}
  training: {{gpu: H800, usd_per_gpu_hour: 5.28}}
nodes:
  - {{name: r0, pool: rollout, devices: 1, device_memory: 1Gi, host_memory: 4Gi, accelerator: cpu}}
  - {{name: t0, pool: training, devices: 1, device_memory: 1Gi, host_memory: 4Gi, accelerator: cpu}}
"""
JOB = """\
name: {name}
slo: 9
placement: local
gpus: {{rollout: 1, training: 1}}
host_memory: {{rollout: 1Mi, training: 1Mi}}
roles:
  run: {{command: "python {rank} --records {records} --iterations {iterations}"}}
"""


def cluster_file(directory: Path, name: str = "fake") -> Path:
    path = directory / f"{name}.yaml"
    path.write_text(CLUSTER.format(name=name))
    return path


def job_file(live: Live, directory: Path, name: str, iterations: int) -> Path:
    rank = Path(__file__).parent / "fake_rank.py"
    path = directory / f"{name}.yaml"
    path.write_text(JOB.format(name=name, rank=rank, records=live.records, iterations=iterations))
    return path


def in_foreground(live: Live, *arguments: str) -> subprocess.Popen[str]:
    """A command that leads a process group, as a shell starts it."""
    return subprocess.Popen(
        weaverl(*arguments),
        env={**live.environment, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )


def interrupt_at(child: subprocess.Popen[str], word: str) -> tuple[str, int]:
    """Ctrl-C for the whole foreground group once a word is on its output; what it said on stderr, and its code."""
    assert child.stdout is not None
    for line in child.stdout:
        if word in line:
            break
    os.killpg(child.pid, signal.SIGINT)
    _, said = child.communicate(timeout=5.0)
    return said, child.returncode


def test_ctrl_c_stops_the_showing_and_not_the_job(live: Live, directory: Path):
    child = in_foreground(live, "submit", "-f", str(job_file(live, directory, "shown", 3000)))
    said, code = interrupt_at(child, "is here")
    assert (code, said.strip()) == (130, "shown goes on; `weaverl cancel shown` ends it")
    said, code = interrupt_at(in_foreground(live, "logs", "-f", "shown"), "is here")
    assert (code, "goes on" in said) == (130, True)
    begun = len(live.marks("shown"))
    await_true(lambda: len(live.marks("shown")) > begun + 4)
    assert live.run("cancel", "shown").returncode == 0
    live.await_end("shown")


def test_following_a_job_submitted_again_shows_the_new_run_only(live: Live, directory: Path):
    file = job_file(live, directory, "twice", 1)
    for attempt in (1, 2):
        shown = live.run("submit", "-f", str(file))
        assert (shown.returncode, shown.stderr.strip()) == (0, "twice finished")
        assert shown.stdout.count("is here") == 1
        assert len(live.home.job_logs("twice", attempt)) == 1


def test_up_again_changes_nothing_and_another_cluster_is_refused(live: Live, directory: Path):
    processes = live.home.processes()
    live.home.write_cluster(live.cluster)
    assert not live.up()
    assert live.home.processes() == processes
    with pytest.raises(UsageError, match="differs: run `weaverl down` first"):
        bring_up(live.home, msgspec.structs.replace(live.cluster, policy="weave"))
    other = live.run("up", str(cluster_file(directory, "other")))
    assert other.returncode == 2
    assert "is up in" in other.stderr and "`weaverl down`" in other.stderr
    assert len(other.stderr.splitlines()) == 1
    assert live.home.processes() == processes


@pytest.mark.slow  # a cluster of its own, by the command line
def test_the_policy_of_the_cluster_file_is_run_and_outlives_its_controller(own: Live, directory: Path):
    file = cluster_file(directory)
    file.write_text(file.read_text() + "policy: solo\n")
    assert own.run("up", str(file)).returncode == 0
    assert "policy solo," in own.run("status").stdout
    own.submit("alone", "--iterations", 1000)
    own.await_phase("alone", "training", 0)
    asked = job_file(own, directory, "asked", 1)
    asked.write_text(asked.read_text() + "profile: {rollout_max: 100ms, rollout_mean: 100ms, training: 100ms}\n")
    answer = json.loads(own.run("whatif", str(asked), "--json", "-").stdout)
    assert answer["wait"] is not None
    epoch = own.status().epoch
    own.kill("controller")
    own.await_epoch(epoch)
    own.submit("waits", "--iterations", 1)
    own.client.cancel("alone")
    own.await_finished("waits")
    assert own.status().policy == "solo"
    assert {fact.policy for fact in own.facts()} == {"solo"}
    admissions = [one for fact in own.facts() for one in fact.commands if isinstance(one, AdmitJob)]
    assert [one.group.members for one in admissions] == [("alone",), ("waits",)]


@pytest.mark.slow  # a cluster of its own, by the command line
def test_two_ups_at_once_bring_up_one_cluster_and_two_downs_are_harmless(own: Live, directory: Path):
    file = str(cluster_file(directory))
    ups = [in_foreground(own, "up", file) for _ in range(2)]
    said = sorted(child.communicate(timeout=30)[0] for child in ups)
    assert [child.returncode for child in ups] == [0, 0]
    assert said == ["cluster fake is up: 2 nodes. Next: weaverl submit JOB.yaml\n", "cluster fake was up already\n"]
    assert sorted(own.home.processes()) == ["agent-r0", "agent-t0", "controller", "head"]
    heads = subprocess.run(
        ["pgrep", "-f", "weaverl.cli.main head"], capture_output=True, text=True, check=False
    ).stdout.split()
    environments = [Path(f"/proc/{pid}/environ").read_bytes() for pid in heads]
    assert sum(os.fsencode(own.home.directory) in environment for environment in environments) == 1
    downs = [in_foreground(own, "down") for _ in range(2)]
    assert [child.communicate(timeout=60) and child.returncode for child in downs] == [0, 0]
    assert not own.home.processes() and not marked(own.home.instance)


def test_another_head_for_the_same_home_ends_at_once(live: Live):
    head = live.home.process("head")
    twin = live.run("head")
    assert twin.returncode == 1
    assert "another head runs in" in twin.stderr
    assert live.home.process("head") == head


@pytest.mark.parametrize("name", ["controller", "agent-r0"])
def test_a_twin_of_controller_or_agent_ends_at_once(live: Live, name: str):
    twin = live.run(*name.split("-"))
    assert twin.returncode == 1
    assert f"another {name} runs in" in twin.stderr


def test_a_home_too_deep_for_a_socket_is_refused_in_a_line(directory: Path):
    deep = Live(directory / ("d" * 100), cluster())
    done = deep.run("up", str(cluster_file(directory)))
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1 and "choose a shorter directory" in done.stderr
    assert not deep.home.processes()


def test_a_home_that_cannot_be_written_is_refused_in_a_line(directory: Path):
    (directory / "h").write_text("a file")
    done = Live(directory, cluster()).run("up", str(cluster_file(directory)))
    assert done.returncode == 2
    assert done.stderr.startswith(f"weaverl: {directory / 'h'} cannot keep the cluster's state (")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system")
def test_a_full_disk_is_told_in_a_line_and_leaves_nothing(directory: Path):
    full = Live(directory, cluster())
    full.home.directory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", full.home.directory], check=True)
    try:
        (full.home.directory / "filler").write_bytes(b"x" * 60 * 1024)
        done = full.run("up", str(cluster_file(directory)))
        assert done.returncode in (1, 2), done
        assert len(done.stderr.splitlines()) == 1, done.stderr
        assert "No space left" in done.stderr or "store not up" in done.stderr
        assert not full.home.processes() and not marked(full.home.instance)
    finally:
        subprocess.run(["umount", full.home.directory], check=True)


@pytest.mark.slow  # a cluster of its own
def test_a_stale_record_of_a_pid_that_is_another_process_now_is_not_believed(own: Live, directory: Path):
    with subprocess.Popen(["sleep", "1000"]) as sleeper:
        stranger = ProcessId.of(sleeper.pid)
        assert stranger is not None
        stale = msgspec.structs.replace(stranger, start_ticks=stranger.start_ticks - 1)
        own.home.directory.mkdir()
        own.home.write_head(HeadRecord(stale, own.cluster, StoreAccess("unix:///nowhere", None)))
        (own.home.directory / "process-head.json").write_bytes(msgspec.json.encode(stale))
        assert own.up()
        own.down()
        assert sleeper.poll() is None
        sleeper.kill()


def test_state_is_for_our_eyes_only(live: Live):
    for name in ("password", "head.json", "process-controller.json"):
        assert stat.S_IMODE((live.home.directory / name).stat().st_mode) == 0o600
    assert stat.S_IMODE(live.home.directory.stat().st_mode) == 0o700


@pytest.mark.slow  # brings two clusters up and down
def test_another_cluster_in_the_same_home_begins_its_own_history(own: Live):
    own.up()
    own.submit("same", "--iterations", 1)
    own.await_finished("same")
    own.down()
    other = Live(own.records.parent, cluster(name="other"))
    assert other.up()
    other.submit("same", "--iterations", 1)
    other.await_finished("same")
    assert other.job("same").attempt == 1
    assert other.home.job_logs("same")[0].read_text().count("is here") == 1
    (kept,) = own.home.directory.glob("history-*")
    assert {path.name for path in kept.iterdir()} == {"store", "ranks", "logs"}


@pytest.mark.slow  # a cluster of its own, that is spoilt
def test_the_head_ends_with_the_words_of_a_controller_that_cannot_run(own: Live, directory: Path):
    own.up()
    store = connect(own.home.require_head().access)
    newer = msgspec.msgpack.encode({"schema": 99, "code": "9.9", "policy": "p", "event": {}, "commands": []})
    Sender(store, "test").commit([Append("log", newer)])
    head = own.home.process("head")
    assert head is not None
    own.kill("controller")
    await_true(lambda: not head.is_alive(), 10.0, own.control_log)
    done = own.run("up", str(cluster_file(directory)))
    assert done.returncode == 2, done
    assert len(done.stderr.splitlines()) == 1
    assert "upgrade weaverl" in done.stderr


@pytest.mark.slow  # a cluster of its own, that is spoilt
def test_a_cluster_whose_directory_is_gone_still_ends_whole(own: Live):
    own.up()
    own.submit("long", "--iterations", 1000)
    own.await_phase("long", "rollout", 0)
    head = own.home.process("head")
    assert head is not None
    assert any(one.mark == own.home.store_mark for one in marked(own.home.instance))
    shutil.rmtree(own.home.directory)
    head.send(signal.SIGTERM)
    await_true(lambda: not head.is_alive() and not marked(own.home.instance), 20.0)


def test_a_home_alone_is_no_cluster(directory: Path):
    done = Live(directory, cluster()).run("status")
    assert (done.returncode, "weaverl up" in done.stderr) == (2, True)
    assert Home(directory / "h").processes() == {}


def demo(directory: Path, out: Path, *, quick: bool) -> subprocess.Popen[str]:
    return subprocess.Popen(
        weaverl("demo", "--tiny", "--iterations", "4" if quick else "12", "--out", str(out)),
        env={**os.environ, "TMPDIR": str(directory)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )


@pytest.mark.slow  # starts torch several times
@pytest.mark.parametrize(
    ("seen", "signals", "code"),
    [
        ("*/weaverl-demo-*", [signal.SIGINT], 130),
        ("*/weaverl-demo-*/control/head.log", [signal.SIGINT, signal.SIGINT], 130),
        ("*/weaverl-demo-*/head.json", [signal.SIGKILL], -9),
        ("*/weaverl-demo-*/logs/*/1/*.log", [signal.SIGINT], 130),
        ("*/weaverl-demo-*/logs/*/1/*.log", [signal.SIGINT, signal.SIGINT], 130),
        ("*/weaverl-demo-*/logs/*/1/*.log", [signal.SIGTERM], -15),
        ("*/weaverl-demo-*/logs/*/1/*.log", [signal.SIGKILL], -9),
        ("*/out/logs/plain-*.log", [signal.SIGKILL], -9),
    ],
)
def test_a_demo_that_is_ended_in_the_middle_leaves_nothing(seen: str, signals: list[signal.Signals], code: int):
    directory = Path(tempfile.mkdtemp(prefix="wd-", dir=ROOT))
    child = demo(directory, directory / "out", quick="plain" in seen)
    try:
        await_true(lambda: bool(list(directory.parent.glob(seen.replace("*", directory.name, 1)))), 300.0)
        (temporary,) = directory.glob("weaverl-demo-*")
        mark = Home(temporary).instance
        if seen.endswith(".log"):
            time.sleep(0.5)
        for number in signals:
            os.killpg(child.pid, number)
            time.sleep(0.3)
        assert child.wait(30) == code, child.stderr and child.stderr.read()
        await_true(lambda: not marked(mark) and not temporary.exists(), 10.0)
        everything = subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, text=True, check=True).stdout
        assert str(temporary) not in everything
        assert not list(directory.glob("weaverl-demo-*"))
    finally:
        child.kill()
        await_true(lambda: not list(directory.glob("weaverl-demo-*")), 30.0)  # its head clears up
        shutil.rmtree(directory)
