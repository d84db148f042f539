"""`weaverl bench permits`: how long a slot stands still between two jobs, on a cluster of its own on this machine."""

import os
import statistics
import time
import timeit
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import psutil
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

import weaverl as weave
from weaverl.cli.bench_cluster import busy_cores
from weaverl.cli.bench_handovers import Handover, handovers, percentile, read_times, turns
from weaverl.cli.machine import machine
from weaverl.cli.own_cluster import own_cluster
from weaverl.control.client import Client, connect
from weaverl.control.home import Home
from weaverl.control.processes import ProcessId
from weaverl.control.recovery import read_facts
from weaverl.control.status import JobStatus
from weaverl.domain.cluster import Cluster, Node, Pool, PoolKind
from weaverl.domain.jobs import ENDED, HostMemory, JobSpec, JobState, PhaseProfile, Placement, Role
from weaverl.errors import ClusterError

BODY_SECONDS = 0.0015
_PLANNED_OTHER_SECONDS = 60.0
"""So long beside the phases that admission packs any number of jobs onto one slot a pool."""

_JOB_HOST_BYTES = 2**20
_WARM_ITERATIONS = 5
_STEP_PATIENCE_SECONDS = 120.0
_POLL_SECONDS = 0.2
_SETTLE_SECONDS = 0.2
_NUM_SYNCS = 100
_SYNC_BYTES = 512
_NUM_PLAIN_CALLS = 20_000
_NUM_PLAIN_REPEATS = 7


class PermitFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured. Idle: nothing else runs; loaded: each core also runs a busy loop.

    ``plain_call_us`` is what a decorated call costs over an undecorated one without a controller. ``sync_p50_ms`` is
    one small append with fdatasync on the disk that the store writes to, without the jobs; a hand-over waits for two.
    ``controller_us`` and ``store_us`` are CPU times a hand-over, idle.
    """

    handover_p50_ms: float
    handover_p99_ms: float
    loaded_p50_ms: float
    loaded_p99_ms: float
    plain_call_us: float
    sync_p50_ms: float
    loaded_sync_p50_ms: float
    controller_us: float
    store_us: float
    jobs: int
    handovers: int
    loaded_handovers: int
    parameters: dict[str, str | int | float]
    machine: dict[str, str | int | float | None]


class _Window(msgspec.Struct, frozen=True):
    """A stretch of the run, and the CPU seconds that controller and store spent in it."""

    begun_ns: int
    ended_ns: int
    controller_seconds: float
    store_seconds: float

    def of(self, passed: list[Handover]) -> list[float]:
        """Milliseconds of the hand-overs within."""
        return [one.milliseconds for one in passed if self.begun_ns <= one.ended_ns and one.begun_ns <= self.ended_ns]


def measure_permits(num_jobs: int, num_handovers: int, console: Console) -> PermitFigures:
    """Run ``num_jobs`` jobs that want the same slot, and time hand-overs without and with other load.

    Leaves no process and no directory behind, also when interrupted. Raises ClusterError if jobs fail.
    """
    with own_cluster(_cluster(num_jobs), "weaverl-bench-") as (home, client), _bars(console) as bars:
        sync_ms = _sync_milliseconds(home.directory)
        with busy_cores(home):
            loaded_sync_ms = _sync_milliseconds(home.directory)
        run = _Run(home, client, bars, num_jobs)
        run.begin()
        idle = run.window("idle", num_handovers)
        with busy_cores(home):
            time.sleep(_SETTLE_SECONDS)
            loaded = run.window("loaded", num_handovers)
        passed = run.end()
    in_idle, in_loaded = idle.of(passed), loaded.of(passed)
    return PermitFigures(
        handover_p50_ms=percentile(in_idle, 0.5),
        handover_p99_ms=percentile(in_idle, 0.99),
        loaded_p50_ms=percentile(in_loaded, 0.5),
        loaded_p99_ms=percentile(in_loaded, 0.99),
        plain_call_us=plain_call_microseconds(),
        sync_p50_ms=percentile(sync_ms, 0.5),
        loaded_sync_p50_ms=percentile(loaded_sync_ms, 0.5),
        controller_us=idle.controller_seconds * 1e6 / len(in_idle),
        store_us=idle.store_seconds * 1e6 / len(in_idle),
        jobs=num_jobs,
        handovers=len(in_idle),
        loaded_handovers=len(in_loaded),
        parameters={"body_ms": BODY_SECONDS * 1e3, "slots": 1, "appendfsync": "always", "policy": "weave-paper"},
        machine=machine(),
    )


def plain_call_microseconds() -> float:
    """What ``@weave.phase`` adds to a call where no controller is: median of several repeats."""

    def undecorated() -> None:
        pass

    decorated = weave.phase("rollout")(undecorated)
    return _microseconds(decorated) - _microseconds(undecorated)


class _Run:
    """The jobs of one measurement, from their submission to what they wrote down."""

    def __init__(self, home: Home, client: Client, bars: Progress, num_jobs: int) -> None:
        self._home = home
        self._client = client
        self._bars = bars
        self._names = tuple(f"job-{number}" for number in range(num_jobs))
        self._end_file = home.directory / "end"
        self._published_at = 0.0

    def begin(self) -> None:
        """Submit the jobs and wait until each has gone around a few times."""
        for name in self._names:
            self._client.submit(self._spec(name))
        task = self._bars.add_task("starts the jobs", total=len(self._names))
        for jobs in self._watch():
            warm = sum(job.iterations_done >= _WARM_ITERATIONS for job in jobs)
            self._bars.update(task, completed=warm)
            if warm == len(self._names):
                return

    def window(self, title: str, num_handovers: int) -> _Window:
        """Let the jobs run until there were enough hand-overs."""
        task = self._bars.add_task(f"hand-overs, {title}", total=num_handovers)
        begun_ns, begun_at, spent = time.monotonic_ns(), time.time(), self._cpu_seconds()
        before: int | None = None
        for jobs in self._watch():
            iterations = sum(job.iterations_done for job in jobs)
            if before is None and self._published_at >= begun_at:
                before = iterations
            done = iterations - before if before is not None else 0
            self._bars.update(task, completed=min(done, num_handovers))
            if done >= num_handovers:
                break
        controller, store = (after - earlier for after, earlier in zip(self._cpu_seconds(), spent, strict=True))
        return _Window(begun_ns, time.monotonic_ns(), controller, store)

    def end(self) -> list[Handover]:
        """Have the jobs end, and read what they wrote."""
        self._end_file.touch()
        task = self._bars.add_task("ends the jobs", total=len(self._names))
        for jobs in self._watch():
            ended = sum(job.state in ENDED for job in jobs)
            self._bars.update(task, completed=ended)
            if ended == len(self._names):
                break
        times = {name: read_times(self._times_file(name)) for name in self._names}
        return handovers(turns(read_facts(connect(self._home.require_head().access)), times))

    def _watch(self) -> Iterator[tuple[JobStatus, ...]]:
        """The jobs, again and again. Raises ClusterError if one fails, or if the caller waits for too long."""
        deadline = time.monotonic() + _STEP_PATIENCE_SECONDS
        while time.monotonic() < deadline:
            jobs = self._jobs()
            for job in jobs:
                if job.state in (JobState.FAILED, JobState.CANCELLED):
                    raise ClusterError("\n  | ".join((f"{job.name} {job.state}: {job.reason}", *job.last_lines)))
            yield jobs
            time.sleep(_POLL_SECONDS)
        raise ClusterError(f"the jobs did not get on in {_STEP_PATIENCE_SECONDS:.0f} s: is this machine overloaded?")

    def _jobs(self) -> tuple[JobStatus, ...]:
        status = self._client.status()
        if status is None:
            return ()
        self._published_at = status.written_at
        return status.jobs

    def _cpu_seconds(self) -> tuple[float, float]:
        """CPU seconds so far of the controller and of the store."""
        record = self._home.directory / "process-controller.json"
        controller = msgspec.json.decode(record.read_bytes(), type=ProcessId)
        store = int((self._home.store / "valkey.lock").read_text().split()[0])
        first, second = (sum(psutil.Process(pid).cpu_times()[:2]) for pid in (controller.pid, store))
        return first, second

    def _spec(self, name: str) -> JobSpec:
        arguments = (str(BODY_SECONDS), str(self._end_file), str(self._times_file(name)))
        role = Role(name="run", command=("python", "-m", "weaverl.cli.bench_rank", *arguments))
        return JobSpec(
            name=name,
            roles=(role,),
            rollout_gpus=1,
            training_gpus=1,
            host_memory=HostMemory(rollout_bytes=_JOB_HOST_BYTES, training_bytes=_JOB_HOST_BYTES),
            slo=2.0,
            placement=Placement.LOCAL,
            profile=PhaseProfile(
                rollout_max_seconds=BODY_SECONDS,
                rollout_mean_seconds=BODY_SECONDS,
                training_seconds=BODY_SECONDS,
                other_seconds=_PLANNED_OTHER_SECONDS,
            ),
            working_directory=str(self._home.directory),
        )

    def _times_file(self, name: str) -> Path:
        return self._home.directory / f"{name}.times"


def _cluster(num_jobs: int) -> Cluster:
    """One device in each pool, with room for the jobs' host memory."""
    nodes = tuple(
        Node(
            name=f"{pool}-0",
            pool=pool,
            host="localhost",
            num_devices=1,
            device_memory_bytes=2**20,
            host_memory_bytes=2 * num_jobs * _JOB_HOST_BYTES,
            accelerator="cpu",
        )
        for pool in PoolKind
    )
    pools = {pool: Pool(kind=pool, gpu="none", usd_per_gpu_hour=1.0) for pool in PoolKind}
    return Cluster(name="bench", rollout=pools[PoolKind.ROLLOUT], training=pools[PoolKind.TRAINING], nodes=nodes)


def _sync_milliseconds(directory: Path) -> list[float]:
    """How long the disk takes to make a small append last, as far apart as the store's are."""
    file = directory / "sync"
    taken = []
    with file.open("ab", buffering=0) as stream:
        for _ in range(_NUM_SYNCS):
            time.sleep(BODY_SECONDS)
            begun_ns = time.monotonic_ns()
            stream.write(bytes(_SYNC_BYTES))
            os.fdatasync(stream.fileno())
            taken.append((time.monotonic_ns() - begun_ns) / 1e6)
    file.unlink()
    return taken


def _microseconds(call: Callable[[], Any]) -> float:
    repeats = timeit.repeat(call, number=_NUM_PLAIN_CALLS, repeat=_NUM_PLAIN_REPEATS)
    return statistics.median(repeats) / _NUM_PLAIN_CALLS * 1e6


@contextmanager
def _bars(console: Console) -> Iterator[Progress]:
    columns = (
        TextColumn("{task.description:20}"),
        BarColumn(24),
        TextColumn("{task.completed:>5.0f} of {task.total:.0f}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as bars:
        yield bars
