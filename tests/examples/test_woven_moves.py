"""Three real GRPO jobs on two pairs of nodes: one leaves, and one of the others is moved to the nodes of the last."""

import time
from dataclasses import replace
from pathlib import Path

import grpo_cluster
import msgspec
import pytest
from grpo_cluster import running, tiny_job

from auditor import audit
from grpo_config import PRESETS
from weaverl.cli.live_timeline import live_timeline
from weaverl.control.client import Client, connect
from weaverl.control.recovery import read_facts
from weaverl.domain.cluster import Cluster
from weaverl.domain.commands import AdmitJob, PlanMove
from weaverl.domain.events import PlanProposed
from weaverl.domain.jobs import HostMemory, JobSpec, JobState, PhaseKind, PhaseProfile
from weaverl.reports.timeline_file import write_timeline
from weaverl.scheduling.state import Parameters

pytestmark = pytest.mark.slow(reason="sixteen cold starts of torch: 3 minutes")

ITERATIONS = 40
PATIENCE_SECONDS = 240.0
PARAMETERS = Parameters(policy="weave", least_stay_us=0, least_saving_usd=0.0)
SIZES = {0: 400, 1: 1200, 2: 1200}
"""MiB of host memory by seed: a node has 1,843 to give, so that a large job shares one with the small one alone."""


def two_pairs() -> Cluster:
    one = grpo_cluster.cluster(400 * 1024, 400 * 1024)
    nodes = [msgspec.structs.replace(node, name=f"{node.pool}-{number}") for number in range(2) for node in one.nodes]
    return msgspec.structs.replace(one, nodes=tuple(nodes))


def long_job(file: str, seed: int, out: Path) -> JobSpec:
    """A job that says it takes minutes an iteration, so that there is much to save."""
    job = tiny_job(file, seed, out, "--iterations", str(ITERATIONS))
    memory = SIZES[seed] << 20
    return msgspec.structs.replace(
        job,
        iterations=ITERATIONS,
        profile=PhaseProfile(rollout_max_seconds=100.0, rollout_mean_seconds=100.0, training_seconds=100.0),
        host_memory=HostMemory(rollout_bytes=memory, training_bytes=memory),
        checkpoint_directory=str(out / f"checkpoints-{seed}"),
    )


def await_all_under_way(client: Client) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while [job.iterations_done >= 2 for job in client.status().jobs] != [True] * 3:
        assert time.monotonic() < deadline, client.status()
        time.sleep(0.02)


def await_finished(client: Client, *names: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not all(job.state is JobState.FINISHED for job in client.status().jobs if job.name in names):
        jobs = client.status().jobs
        assert time.monotonic() < deadline and not any(job.state is JobState.FAILED for job in jobs), jobs
        time.sleep(0.05)


@pytest.mark.parametrize("file", ["local-job.yaml", "job.yaml"])
def test_a_departure_moves_a_running_job_whose_losses_and_rewards_stay_those_of_the_plain_script(file, tmp_path):
    of = two_pairs()
    with running(of, PARAMETERS) as home:
        store = connect(home.require_head().access)
        client = Client(store)
        for seed in (2, 1, 0):
            client.submit(long_job(file, seed, tmp_path))
        await_all_under_way(client)
        leaving = next(job for job in client.status().jobs if job.name != "tiny-0" and len(group_of(client, job)) == 2)
        staying = {"tiny-0", "tiny-1", "tiny-2"} - {leaving.name}
        client.cancel(leaving.name)
        await_finished(client, *staying)
        facts = list(read_facts(store))
        header, timeline = live_timeline(store, of)
        write_timeline(tmp_path / "timeline", header, timeline)
        status = {job.name: job for job in client.status().jobs}
    (move,) = [c.move for fact in facts for c in fact.commands if isinstance(c, PlanMove)]
    assert any(isinstance(fact.event, PlanProposed) for fact in facts)
    assert {name: status[name].attempt for name in staying} == {name: 1 + (name == move.job) for name in staying}
    admitted = [c for fact in facts for c in fact.commands if isinstance(c, AdmitJob) and c.job == move.job]
    assert (admitted[1].pin, admitted[1].group.name) == (move.pin, move.group)
    assert not {slot.node for slot in admitted[0].pin.rollout} & {slot.node for slot in move.pin.rollout}
    for name in staying:
        seed = int(name[-1])
        expected = grpo_cluster.plain_record(replace(PRESETS["tiny"], seed=seed, iterations=ITERATIONS))
        assert grpo_cluster.written_record(tmp_path, seed) == expected
    ran = [(one.job, one.phase, one.iteration) for one in timeline.intervals if one.phase is PhaseKind.TRAINING]
    assert sorted(one for one in ran if one[0] in staying) == sorted(
        (name, PhaseKind.TRAINING, iteration) for name in staying for iteration in range(ITERATIONS)
    )
    assert [str(one) for one in audit(tmp_path / "timeline").findings if leaving.name not in str(one)] == []


def group_of(client: Client, job: object) -> tuple[str, ...]:
    return next(group.members for group in client.status().groups if group.name == job.group)
