"""Real GRPO jobs, each one process, woven on one rollout and one training slot that hold only one of them."""

import signal
from dataclasses import replace
from itertools import pairwise

import grpo_cluster
import msgspec
import pytest
from grpo_cluster import ENGINE_BYTES, SEEDS, TRAINER_BYTES, running, tiny_job

from grpo_config import PRESETS
from weaverl.cli.live_timeline import live_timeline
from weaverl.control.client import Client, connect
from weaverl.control.processes import marked
from weaverl.domain.cluster import Slot
from weaverl.domain.jobs import PhaseKind
from weaverl.domain.timeline import Interval
from weaverl.runtime.device_memory import DeviceMemory

BOTH = grpo_cluster.cluster(400 * 1024, 400 * 1024)


def test_two_local_jobs_woven_on_one_device_a_pool_give_the_bits_of_the_plain_script(tmp_path):
    with running(BOTH) as home:
        record = home.require_head()
        store = connect(record.access)
        client = Client(store)
        for seed in SEEDS:
            client.submit(tiny_job("local-job.yaml", seed, tmp_path))
        expected = grpo_cluster.plain_records()
        grpo_cluster.await_jobs(client)
        _, timeline = live_timeline(store, record.cluster)
        memory = DeviceMemory(home.directory, {})
        peaks = [memory.peak_bytes(Slot(node.name, 0)) for node in record.cluster.nodes]
    assert {seed: grpo_cluster.written_record(tmp_path, seed) for seed in SEEDS} == expected
    assert peaks == [ENGINE_BYTES + TRAINER_BYTES] * 2
    check_turns(timeline.intervals)


def check_turns(intervals: tuple[Interval, ...]) -> None:
    """Each slot had one holder at a time, and both jobs ran every phase there."""
    for pool in (PhaseKind.ROLLOUT, PhaseKind.TRAINING):
        held = [one for one in intervals if Slot(f"{pool}-0", 0) in one.slots]
        assert all(before.released_at <= after.granted_at for before, after in pairwise(held))
        ran = sorted((one.job, one.iteration) for one in held if one.phase is pool)
        assert ran == [(f"tiny-{seed}", iteration) for seed in SEEDS for iteration in range(4)]


@pytest.mark.slow(reason="two cold starts and 60 iterations: 20 s")
def test_a_killed_job_goes_on_from_its_checkpoint_and_ends_with_the_same_bits(tmp_path):
    iterations = 40
    job = msgspec.structs.replace(
        tiny_job("local-job.yaml", 0, tmp_path, "--iterations", str(iterations)),
        iterations=iterations,
        max_retries=1,
        checkpoint_directory=str(tmp_path / "checkpoints"),
    )
    with running(BOTH) as home:
        client = Client(connect(home.require_head().access))
        client.submit(job)
        done = grpo_cluster.await_iterations(client, 3)
        (rank,) = [one for one in marked(home.instance) if "/tiny-0/" in one.mark and not one.is_launcher]
        rank.process.send(signal.SIGKILL)
        expected = grpo_cluster.plain_record(replace(PRESETS["tiny"], iterations=iterations))
        grpo_cluster.await_jobs(client)
        (status,) = client.status().jobs
        logs = sorted((home.directory / "logs").glob("**/*.log"))
        again = [line for line in logs[-1].read_text().splitlines() if line.startswith("iteration")]
    assert grpo_cluster.written_record(tmp_path, 0) == expected
    assert (status.attempt, status.iterations_done) == (2, iterations)
    assert done <= iterations - len(again) < iterations, "it began again from the start"
