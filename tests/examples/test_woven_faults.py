"""Two real GRPO jobs of three processes each, woven; one of them, or the controller, is killed in the middle."""

import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import grpo_cluster
import msgspec
import pytest
from grpo_cluster import ENGINE_BYTES, PATIENCE_SECONDS, SEEDS, TRAINER_BYTES, running, tiny_job

from auditor import audit
from grpo_config import PRESETS
from weaverl.cli.live_timeline import live_timeline
from weaverl.control.client import Client, connect
from weaverl.control.home import Home
from weaverl.control.processes import marked
from weaverl.domain.jobs import ENDED, JobSpec, JobState, PhaseKind
from weaverl.reports.timeline_file import write_timeline

pytestmark = pytest.mark.slow(reason="six cold starts of torch a test: 20 s each")

ITERATIONS = 12
OF = grpo_cluster.cluster(ENGINE_BYTES + 4096, TRAINER_BYTES + 4096)


@pytest.fixture
def home() -> Iterator[Home]:
    with running(OF) as directory:
        yield directory


def long_job(seed: int, out: Path) -> JobSpec:
    job = tiny_job("job.yaml", seed, out, "--iterations", str(ITERATIONS))
    return msgspec.structs.replace(job, iterations=ITERATIONS)


def plain_record(seed: int) -> dict[str, object]:
    return grpo_cluster.plain_record(replace(PRESETS["tiny"], seed=seed, iterations=ITERATIONS))


def await_both_under_way(client: Client) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while [2 <= job.iterations_done < ITERATIONS for job in client.status().jobs] != [True, True]:
        assert time.monotonic() < deadline, client.status()
        time.sleep(0.02)


def findings(home: Home, file: Path) -> list[str]:
    """What the auditor has to say of the run, which it also writes to a file."""
    header, timeline = live_timeline(connect(home.require_head().access), OF)
    write_timeline(file, header, timeline)
    return [str(one) for one in audit(file).findings]


def test_a_killed_training_rank_ends_its_job_alone_and_the_other_ends_with_the_plain_scripts_bits(home, tmp_path):
    client = Client(connect(home.require_head().access))
    for seed in SEEDS:
        client.submit(long_job(seed, tmp_path))
    await_both_under_way(client)
    (rank,) = [one for one in marked(home.instance) if one.mark.endswith("/tiny-0/1/training/0")]
    rank.process.send(signal.SIGKILL)
    expected = plain_record(1)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not all(job.state in ENDED for job in client.status().jobs):
        assert time.monotonic() < deadline, client.status()
        time.sleep(0.05)
    dead, other = client.status().jobs
    assert (dead.state, other.state) == (JobState.FAILED, JobState.FINISHED)
    killed = "tiny-0/training-0 was ended by signal 9 (SIGKILL; killed by somebody, or out of memory)"
    assert dead.reason == killed
    assert dead.last_lines[-1].startswith("(it wrote nothing; `weaverl logs` shows the other ranks)")
    # Two iterations were trained; the second one's line comes after its sync, which the kill may have cut off.
    assert "iteration  0" in next((home.directory / "logs" / "tiny-0").glob("*/driver-0.log")).read_text()
    assert not [one for one in marked(home.instance) if "/tiny-0/" in one.mark]
    assert grpo_cluster.written_record(tmp_path, 1) == expected
    assert not (tmp_path / "0" / "result.json").exists()
    assert [one for one in findings(home, tmp_path / "timeline") if "tiny-0" not in one] == []


def test_a_killed_controller_is_started_again_and_no_iteration_is_lost_or_run_twice(home, tmp_path):
    client = Client(connect(home.require_head().access))
    for seed in SEEDS:
        client.submit(long_job(seed, tmp_path))
    await_both_under_way(client)
    before, epoch = home.process("controller"), client.status().epoch
    assert before is not None
    before.send(signal.SIGKILL)
    expected = {seed: plain_record(seed) for seed in SEEDS}
    grpo_cluster.await_jobs(client)
    assert home.process("controller") not in (None, before)
    assert client.status().epoch > epoch
    assert [job.attempt for job in client.status().jobs] == [1, 1]
    assert {seed: grpo_cluster.written_record(tmp_path, seed) for seed in SEEDS} == expected
    assert findings(home, tmp_path / "timeline") == []
    _, timeline = live_timeline(connect(home.require_head().access), OF)
    ran = [(one.job, one.phase, one.iteration) for one in timeline.intervals if one.phase is not PhaseKind.LOADING]
    assert sorted(ran) == sorted(
        (f"tiny-{seed}", phase, iteration)
        for seed in SEEDS
        for phase in (PhaseKind.ROLLOUT, PhaseKind.TRAINING, PhaseKind.SYNC)
        for iteration in range(ITERATIONS)
    )
