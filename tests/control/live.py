"""A cluster of real processes for tests: brought up in a short directory, with fake jobs, and ways to harm it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from weaverl.cli.cluster import bring_up, take_down
from weaverl.control.client import Client, connect
from weaverl.control.home import Home
from weaverl.control.processes import ProcessId, marked
from weaverl.control.recovery import read_facts
from weaverl.control.status import ClusterStatus, JobStatus
from weaverl.domain.cluster import Cluster, Node, Pool, PoolKind
from weaverl.domain.facts import Fact
from weaverl.domain.jobs import ENDED, HostMemory, JobSpec, JobState, PhaseProfile, Placement, Role
from weaverl.scheduling.state import Parameters

ROOT = "/dev/shm" if os.access("/dev/shm", os.W_OK) else "/tmp"
RANK = Path(__file__).parent / "fake_rank.py"
GIB = 2**30
MIB = 2**20
HELD = ("rollout", "training")


def cluster(num_nodes: int = 1, name: str = "fake") -> Cluster:
    """CPU nodes of one device in each pool."""
    nodes = tuple(
        Node(
            name=f"{pool[0]}{number}",
            pool=pool,
            host="localhost",
            num_devices=1,
            device_memory_bytes=GIB,
            host_memory_bytes=4 * GIB,
            accelerator="cpu",
        )
        for pool in PoolKind
        for number in range(num_nodes)
    )
    return Cluster(
        name=name,
        rollout=Pool(kind=PoolKind.ROLLOUT, gpu="H20", usd_per_gpu_hour=1.85),
        training=Pool(kind=PoolKind.TRAINING, gpu="H800", usd_per_gpu_hour=5.28),
        nodes=nodes,
    )


class Mark(NamedTuple):
    """One line of the ranks' own records."""

    job: str
    attempt: int
    phase: str
    iteration: int
    edge: str
    at: int
    pid: int


class Live:
    """One cluster, and everything a test wants to know of it or do to it."""

    def __init__(self, directory: Path, of: Cluster, parameters: Parameters = Parameters()) -> None:
        self.home = Home(directory / "h")
        self.cluster = of
        self.parameters = parameters
        self.records = directory / "records"

    def up(self) -> bool:
        return bring_up(self.home, self.cluster, while_alive=0, parameters=self.parameters)

    def down(self) -> None:
        take_down(self.home, self.home.head(), patience_seconds=5.0)

    @property
    def client(self) -> Client:
        return Client(connect(self.home.require_head().access, patience_seconds=10.0))

    def spec(self, name: str, *arguments: object, roles: tuple[str, ...] = ("run",), **more: object) -> JobSpec:
        """A fake job: one process that does both phases, or one for each role named."""
        words = (str(RANK), "--records", str(self.records), *(str(one) for one in arguments))
        default = {role: ("python", *words) for role in roles}
        commands = {**default, **more.pop("commands", {})}
        return JobSpec(
            name=name,
            roles=tuple(Role(name=role, command=command) for role, command in commands.items()),
            rollout_gpus=1,
            training_gpus=1,
            host_memory=HostMemory(rollout_bytes=MIB, training_bytes=MIB),
            slo=50.0,
            placement=Placement.LOCAL if "run" in commands else Placement.DISAGGREGATED,
            profile=PhaseProfile(rollout_max_seconds=0.1, rollout_mean_seconds=0.1, training_seconds=0.1),
            working_directory=more.pop("working_directory", str(self.records.parent)),
            iterations=more.pop("iterations", None),
            **more,
        )

    def submit(self, name: str, *arguments: object, **more: object) -> None:
        self.client.submit(self.spec(name, *arguments, **more))

    def status(self) -> ClusterStatus:
        found = self.client.status()
        assert found is not None
        return found

    def job(self, name: str) -> JobStatus | None:
        return next((job for job in self.status().jobs if job.name == name), None)

    def node_state(self, name: str) -> str:
        return next(node.state for node in self.status().nodes if node.name == name)

    def await_end(self, *names: str, seconds: float = 30.0) -> dict[str, JobStatus]:
        def ended() -> bool:
            jobs = {job.name: job for job in self.status().jobs}
            return all(name in jobs and jobs[name].state in ENDED for name in names)

        await_true(ended, seconds, lambda: str(self.status().jobs) + self.control_log())
        jobs = {job.name: job for job in self.status().jobs}
        return {name: jobs[name] for name in names}

    def await_finished(self, *names: str, seconds: float = 30.0) -> None:
        for job in self.await_end(*names, seconds=seconds).values():
            assert job.state is JobState.FINISHED, (job.name, job.state, job.reason, job.last_lines)

    def marks(self, *jobs: str) -> list[Mark]:
        """What the ranks of jobs have written down, by time."""
        if not self.records.exists():
            return []
        lines = [line.split() for line in self.records.read_text().splitlines()]
        marks = [Mark(j, int(a), p, int(i), e, int(t), int(pid)) for j, a, p, i, e, t, pid in lines]
        return sorted((mark for mark in marks if mark.job in jobs), key=lambda mark: mark.at)

    def await_phase(self, job: str, phase: str, iteration: int, edge: str = "begin") -> Mark:
        """Wait until a rank is there, and return its line."""
        wanted = (phase, iteration, edge)

        def found() -> list[Mark]:
            return [mark for mark in self.marks(job) if (mark.phase, mark.iteration, mark.edge) == wanted]

        await_true(lambda: bool(found()), 30.0, lambda: str(self.status().jobs) + self.control_log())
        return found()[-1]

    def facts(self) -> list[Fact]:
        return list(read_facts(connect(self.home.require_head().access)))

    def processes_of(self, job: str) -> list[ProcessId]:
        """Everything alive that bears the job's mark."""
        found = marked(f"{self.home.instance}/")
        return [one.process for one in found if one.mark.split("/")[2:3] == [job]]

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> ProcessId:
        """Signal one of the cluster's own processes: head, controller, agent-r0, ..."""
        process = self.home.process(name)
        assert process is not None, f"{name} does not run"
        process.send(number)
        return process

    def await_another(self, name: str, before: ProcessId) -> ProcessId:
        """Wait until another process bears the name."""
        await_true(lambda: self.home.process(name) not in (None, before), 15.0, self.control_log)
        found = self.home.process(name)
        assert found is not None
        return found

    def await_epoch(self, above: int) -> int:
        await_true(lambda: self.status().epoch > above, 15.0, self.control_log)
        return self.status().epoch

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A `weaverl` command to its end."""
        return subprocess.run(
            weaverl(*arguments), env=self.environment, capture_output=True, text=True, timeout=60, check=False
        )

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "WEAVERL_HOME": str(self.home.directory)}

    def audit_input(self, path: Path) -> None:
        path.write_text(self.run("timeline").stdout)

    def control_log(self) -> str:
        """The end of the cluster's own logs, for a failed assertion."""
        return "\n".join(f"== {log.name}\n{log.read_text()[-1500:]}" for log in sorted(self.home.logs.glob("*.log")))


def weaverl(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "weaverl.cli.main", *arguments]


def await_true(
    condition: Callable[[], bool], seconds: float = 10.0, explain: Callable[[], str] = lambda: "it did not come true"
) -> None:
    """Wait for what has no event to wait for."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, explain()
        time.sleep(0.02)


def overlaps(marks: list[Mark]) -> list[tuple[Mark, Mark]]:
    """Pairs of begins without an end between them, in one phase of all jobs: two holders of the one slot."""
    found = []
    for phase in HELD:
        holder: Mark | None = None
        for mark in (mark for mark in marks if mark.phase == phase):
            if mark.edge == "begin":
                if holder is not None:
                    found.append((holder, mark))
                holder = mark
            else:
                holder = None
    return found


def done(marks: list[Mark]) -> list[tuple[str, str, int]]:
    """(job, phase, iteration) of every end, sorted: each exactly once if nothing was lost or run twice."""
    return sorted((mark.job, mark.phase, mark.iteration) for mark in marks if mark.edge == "end")


def every(jobs: tuple[str, ...], iterations: int) -> list[tuple[str, str, int]]:
    return sorted((job, phase, number) for job in jobs for phase in HELD for number in range(iterations))


def as_json(text: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(text)
    return found
