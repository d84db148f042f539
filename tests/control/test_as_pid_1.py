"""The head as pid 1 of a container: it inherits every orphan."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from live import Live, await_true, weaverl

_UNSHARE = ("unshare", "-pf", "true")
_CAN = os.geteuid() == 0 and subprocess.run(_UNSHARE, capture_output=True, check=False).returncode == 0

pytestmark = [
    pytest.mark.slow,  # a cluster of its own
    pytest.mark.skipif(not _CAN, reason="needs a pid namespace of its own"),
]


def test_orphans_leave_no_zombies_and_term_ends_in_order(own: Live, directory: Path):
    own.home.directory.mkdir()
    own.home.write_cluster(own.cluster)
    log = directory / "head.log"
    with log.open("wb") as output:
        container = subprocess.Popen(
            ["unshare", "-pf", "--mount-proc", *weaverl("head")], env=own.environment, stdout=output, stderr=output
        )
    try:
        await_true(lambda: (own.home.directory / "process-agent-t0.json").exists(), 20.0, log.read_text)
        orphans = "import subprocess; [subprocess.Popen(['sh', '-c', 'sleep 0.01 &']).wait() for _ in range(100)]"
        inside = own.spec("orphans", commands={"run": (sys.executable, "-c", orphans)})
        own.client.submit(inside)
        own.await_finished("orphans")
        (head,) = _children(container.pid)
        agents = [pid for pid in _children(head) if "agent" in Path(f"/proc/{pid}/cmdline").read_text()]
        own.submit("lives", "--iterations", 60)
        own.await_phase("lives", "rollout", 0)
        for pid in agents:
            os.kill(pid, signal.SIGKILL)
        own.await_finished("lives")
        await_true(lambda: not [pid for pid in _children(head) if _state(pid) == "Z"])
        os.kill(head, signal.SIGTERM)
        assert container.wait(20) == 0, log.read_text()
    finally:
        container.kill()


def _children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in found.read_text().split()]


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "gone"
