"""Two real GRPO jobs, each one process, woven on one rollout and one training slot that hold only one of them."""

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import grpo  # noqa: E402
import plain  # noqa: E402
from grpo_config import PRESETS  # noqa: E402
from weaverl.cli.cluster import bring_up, take_down  # noqa: E402
from weaverl.cli.live_timeline import live_timeline  # noqa: E402
from weaverl.config.job_file import load_job  # noqa: E402
from weaverl.control.client import Client, connect  # noqa: E402
from weaverl.control.home import Home  # noqa: E402
from weaverl.control.processes import marked  # noqa: E402
from weaverl.domain.cluster import Cluster, Node, Pool, PoolKind, Slot  # noqa: E402
from weaverl.domain.jobs import ENDED, JobSpec, JobState, PhaseKind, PhaseProfile, Role  # noqa: E402
from weaverl.domain.timeline import Interval  # noqa: E402
from weaverl.runtime.device_memory import DeviceMemory  # noqa: E402

EXAMPLE = Path(grpo.__file__).parent
STATE_BYTES = 38_400 + 230_176
"""Of the tiny preset: a bf16 engine; an fp32 policy with its optimizer, from the first step on."""
DEVICE_BYTES = 400 * 1024
PATIENCE_SECONDS = 60.0
SEEDS = (0, 1)


def cluster() -> Cluster:
    """Not pinned to CPUs, which would have both jobs import torch on that of the rollout node."""
    nodes = tuple(
        Node(
            name=f"{pool}-0",
            pool=pool,
            host="localhost",
            num_devices=1,
            device_memory_bytes=DEVICE_BYTES,
            host_memory_bytes=1 << 31,
            accelerator="cpu",
        )
        for pool in PoolKind
    )
    return Cluster(
        name="laptop",
        rollout=Pool(kind=PoolKind.ROLLOUT, gpu="H20", usd_per_gpu_hour=1.85),
        training=Pool(kind=PoolKind.TRAINING, gpu="H800", usd_per_gpu_hour=5.28),
        nodes=nodes,
    )


def spec(seed: int, out: Path) -> JobSpec:
    command = ("python", "woven.py", "--preset", "tiny", "--seed", str(seed), "--out", str(out / str(seed)))
    profile = PhaseProfile(rollout_max_seconds=0.1, rollout_mean_seconds=0.1, training_seconds=0.1)
    return msgspec.structs.replace(
        load_job(EXAMPLE / "local-job.yaml"),
        name=f"local-{seed}",
        slo=9.0,
        profile=profile,
        iterations=PRESETS["tiny"].iterations,
        roles=(Role(name="run", command=command),),
    )


@contextmanager
def running_cluster() -> Iterator[Home]:
    directory = Path(tempfile.mkdtemp(prefix="weaverl-local-"))
    home = Home(directory)
    try:
        bring_up(home, cluster(), while_alive=os.getpid())
        yield home
    finally:
        if (record := home.head()) is not None:
            take_down(home, record, patience_seconds=5.0)
        shutil.rmtree(directory, ignore_errors=True)


def await_jobs(client: Client) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (status := client.status()) is None or not all(job.state in ENDED for job in status.jobs):
        assert time.monotonic() < deadline, status
        time.sleep(0.05)
    for job in status.jobs:
        assert job.state is JobState.FINISHED, (job.reason, job.last_lines)


def plain_result(seed: int) -> dict[str, object]:
    config = replace(PRESETS["tiny"], seed=seed)
    return comparable(plain.result(config, *_with_digest(*plain.run(config))))


def _with_digest(iterations: list, model: torch.nn.Module) -> tuple[list, str]:
    return iterations, plain.weights_sha256(model)


def comparable(result: dict[str, object]) -> dict[str, object]:
    return {key: result[key] for key in ("rewards", "losses", "weights_sha256")}


def test_two_local_jobs_woven_on_one_device_a_pool_give_the_bits_of_the_plain_script(tmp_path):
    with running_cluster() as home:
        record = home.require_head()
        store = connect(record.access)
        client = Client(store)
        for seed in SEEDS:
            client.submit(spec(seed, tmp_path))
        grpo.make_deterministic()
        expected = {seed: plain_result(seed) for seed in SEEDS}
        await_jobs(client)
        found = {seed: msgspec.json.decode((tmp_path / str(seed) / "result.json").read_bytes()) for seed in SEEDS}
        _, timeline = live_timeline(store, record.cluster)
        memory = DeviceMemory(home.directory, {})
        peaks = [memory.peak_bytes(Slot(node.name, 0)) for node in record.cluster.nodes]
    assert {seed: comparable(result) for seed, result in found.items()} == expected
    assert peaks == [STATE_BYTES, STATE_BYTES]
    check_turns(timeline.intervals)


def check_turns(intervals: tuple[Interval, ...]) -> None:
    """Each slot had one holder at a time, and both jobs ran every phase there."""
    for pool in (PhaseKind.ROLLOUT, PhaseKind.TRAINING):
        held = [one for one in intervals if Slot(f"{pool}-0", 0) in one.slots]
        assert all(before.released_at <= after.granted_at for before, after in pairwise(held))
        ran = sorted((one.job, one.iteration) for one in held if one.phase is pool)
        assert ran == [(f"local-{seed}", iteration) for seed in SEEDS for iteration in range(4)]


def test_a_killed_job_goes_on_from_its_checkpoint_and_ends_with_the_same_bits(tmp_path):
    iterations = 40
    config = replace(PRESETS["tiny"], iterations=iterations)
    job = msgspec.structs.replace(
        with_arguments(spec(0, tmp_path), "--iterations", str(iterations)),
        iterations=iterations,
        max_retries=1,
        checkpoint_directory=str(tmp_path / "checkpoints"),
    )
    with running_cluster() as home:
        client = Client(connect(home.require_head().access))
        client.submit(job)
        grpo.make_deterministic()
        done = await_iterations(client, 3)
        (rank,) = [one for one in marked(home.instance) if "/local-0/" in one.mark and not one.is_launcher]
        rank.process.send(signal.SIGKILL)
        expected = comparable(plain.result(config, *_with_digest(*plain.run(config))))
        await_jobs(client)
        (status,) = client.status().jobs
        logs = sorted((home.directory / "logs").glob("**/*.log"))
        again = [line for line in logs[-1].read_text().splitlines() if line.startswith("iteration")]
    assert comparable(msgspec.json.decode((tmp_path / "0" / "result.json").read_bytes())) == expected
    assert (status.attempt, status.iterations_done) == (2, iterations)
    assert done <= iterations - len(again) < iterations, "it began again from the start"


def with_arguments(job: JobSpec, *arguments: str) -> JobSpec:
    roles = tuple(msgspec.structs.replace(role, command=(*role.command, *arguments)) for role in job.roles)
    return msgspec.structs.replace(job, roles=roles)


def await_iterations(client: Client, number: int) -> int:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (jobs := client.status().jobs) or jobs[0].iterations_done < number:
        assert time.monotonic() < deadline and (not jobs or jobs[0].state not in ENDED), jobs
        time.sleep(0.02)
    return jobs[0].iterations_done - 1
