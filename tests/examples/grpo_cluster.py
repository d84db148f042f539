"""A live cluster for the real GRPO example, and the plain runs that it is compared with."""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import msgspec

import grpo
import plain
from grpo_config import PRESETS, GrpoConfig
from weaverl.cli.cluster import bring_up, take_down
from weaverl.config.job_file import load_job
from weaverl.control.client import Client
from weaverl.control.home import Home
from weaverl.domain.cluster import Cluster, Node, Pool, PoolKind
from weaverl.domain.jobs import ENDED, JobSpec, JobState, PhaseProfile
from weaverl.scheduling.state import Parameters

EXAMPLE = Path(grpo.__file__).parent
ENGINE_BYTES = 76_736
"""Of the tiny preset: a policy of bf16 values in fp32, and its rotary buffers."""
TRAINER_BYTES = 230_176
"""An fp32 policy with its optimizer, from the first step on."""
PATIENCE_SECONDS = 60.0
SEEDS = (0, 1)


def cluster(rollout_bytes: int, training_bytes: int) -> Cluster:
    """Two nodes with these device memories; not pinned to CPUs, so that start-up takes both cores."""
    nodes = tuple(
        Node(
            name=f"{pool}-0",
            pool=pool,
            host="localhost",
            num_devices=1,
            device_memory_bytes=device_bytes,
            host_memory_bytes=1 << 31,
            accelerator="cpu",
        )
        for pool, device_bytes in zip(PoolKind, (rollout_bytes, training_bytes), strict=True)
    )
    return Cluster(
        name="laptop",
        rollout=Pool(kind=PoolKind.ROLLOUT, gpu="H20", usd_per_gpu_hour=1.85),
        training=Pool(kind=PoolKind.TRAINING, gpu="H800", usd_per_gpu_hour=5.28),
        nodes=nodes,
    )


def tiny_job(file: str, seed: int, out: Path, *arguments: str) -> JobSpec:
    """A job file of the example with the tiny preset, and a profile that lets two of them be packed."""
    base = load_job(EXAMPLE / file)
    command = ("python", "woven.py", "--preset", "tiny", "--seed", str(seed), "--out", str(out / str(seed)), *arguments)
    return msgspec.structs.replace(
        base,
        name=f"tiny-{seed}",
        slo=9.0,
        profile=PhaseProfile(rollout_max_seconds=0.1, rollout_mean_seconds=0.1, training_seconds=0.1),
        iterations=PRESETS["tiny"].iterations,
        roles=tuple(msgspec.structs.replace(role, command=command) for role in base.roles),
    )


@contextmanager
def running(of: Cluster, parameters: Parameters = Parameters()) -> Iterator[Home]:
    directory = Path(tempfile.mkdtemp(prefix="weaverl-live-"))
    home = Home(directory)
    try:
        bring_up(home, of, while_alive=os.getpid(), parameters=parameters)
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


def await_iterations(client: Client, number: int) -> int:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (jobs := client.status().jobs) or jobs[0].iterations_done < number:
        assert time.monotonic() < deadline and (not jobs or jobs[0].state not in ENDED), jobs
        time.sleep(0.02)
    return jobs[0].iterations_done - 1


def plain_record(config: GrpoConfig) -> dict[str, object]:
    """What the plain script comes to, in this process."""
    grpo.make_deterministic()
    iterations, model = plain.run(config)
    return comparable(plain.result(config, iterations, plain.weights_sha256(model)))


def plain_records() -> dict[int, dict[str, object]]:
    return {seed: plain_record(replace(PRESETS["tiny"], seed=seed)) for seed in SEEDS}


def written_record(out: Path, seed: int) -> dict[str, object]:
    return comparable(msgspec.json.decode((out / str(seed) / "result.json").read_bytes()))


def comparable(result: dict[str, object]) -> dict[str, object]:
    return {key: result[key] for key in ("rewards", "losses", "weights_sha256")}
