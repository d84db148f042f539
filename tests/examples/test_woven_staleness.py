"""A one-step off-policy GRPO job woven with a synchronous one: both end bit for bit as their plain runs."""

import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import grpo_cluster
import msgspec
import pytest
from grpo_cluster import ENGINE_BYTES, TRAINER_BYTES, running, tiny_job

from auditor import audit, disagreements
from grpo_config import PRESETS
from weaverl.cli.live_timeline import live_timeline
from weaverl.control.client import Client, connect
from weaverl.domain.jobs import JobSpec, PhaseKind
from weaverl.domain.timeline import Interval
from weaverl.reports.metrics import run_figures
from weaverl.reports.timeline_file import jobs_ahead, write_timeline
from weaverl.scheduling.state import Parameters

ROLLOUT, TRAINING, SYNC = PhaseKind.ROLLOUT, PhaseKind.TRAINING, PhaseKind.SYNC
ITERATIONS = 8


def spec(seed: int, staleness: int, out: Path) -> JobSpec:
    arguments = ("--iterations", str(ITERATIONS), "--staleness", str(staleness))
    job = tiny_job("job.yaml", seed, out, *arguments)
    assert job.profile is not None
    profile = msgspec.structs.replace(job.profile, staleness=staleness)
    return msgspec.structs.replace(job, staleness=staleness, profile=profile, iterations=ITERATIONS)


class Woven:
    """What one woven run of some jobs left behind, and their plain runs."""

    def __init__(self, out: Path, staleness: tuple[int, ...], parameters: Parameters) -> None:
        of = grpo_cluster.cluster(ENGINE_BYTES + 4096, TRAINER_BYTES + 4096)
        with running(of, parameters) as home:
            store = connect(home.require_head().access)
            client = Client(store)
            for seed, steps in enumerate(staleness):
                client.submit(spec(seed, steps, out))
            config = replace(PRESETS["tiny"], iterations=ITERATIONS)
            self.expected = {
                seed: grpo_cluster.plain_record(replace(config, seed=seed, staleness=steps))
                for seed, steps in enumerate(staleness)
            }
            grpo_cluster.await_jobs(client)
            header, timeline = live_timeline(store, of)
        self.intervals = timeline.intervals
        self.found = {seed: grpo_cluster.written_record(out, seed) for seed in self.expected}
        self.figures = run_figures(of, timeline, ahead=jobs_ahead(header.jobs))
        self.file = out / "woven.jsonl"
        write_timeline(self.file, header, timeline)

    def phases(self, job: str, kind: PhaseKind) -> dict[int, Interval]:
        return {one.iteration: one for one in self.intervals if (one.job, one.phase) == (job, kind)}


@pytest.fixture(scope="module", params=[((1, 0), "weave-paper"), ((1, 1), "weave")], ids=["mixed", "two ahead"])
def woven(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Woven:
    staleness, policy = request.param
    return Woven(tmp_path_factory.mktemp("woven"), staleness, Parameters(policy=policy))


@pytest.mark.slow
def test_losses_rewards_and_weights_are_bit_for_bit_those_of_the_plain_script(woven: Woven):
    assert woven.found == woven.expected
    assert woven.found[0] != woven.found[1]


@pytest.mark.slow
def test_no_rollout_was_granted_before_the_weights_of_the_iteration_before_the_last_were_there(woven: Woven):
    rollouts, syncs = woven.phases("tiny-0", ROLLOUT), woven.phases("tiny-0", SYNC)
    assert len(rollouts) == len(syncs) == ITERATIONS
    for iteration in range(2, ITERATIONS):
        assert rollouts[iteration].granted_at >= syncs[iteration - 2].ended_at


@pytest.mark.slow
def test_rollouts_ran_beside_trainings_and_no_slot_had_two_holders(woven: Woven):
    rollouts, trainings = woven.phases("tiny-0", ROLLOUT), woven.phases("tiny-0", TRAINING)
    beside = [
        rollouts[iteration + 1].granted_at < trainings[iteration].released_at
        and trainings[iteration].granted_at < rollouts[iteration + 1].released_at
        for iteration in range(ITERATIONS - 1)
    ]
    assert any(beside), "it held a permit in each pool at once"
    for kind in (ROLLOUT, TRAINING):
        held = sorted((one for one in woven.intervals if one.phase is kind), key=lambda one: one.granted_at)
        assert all(before.released_at <= after.granted_at for before, after in pairwise(held))


@pytest.mark.slow
def test_the_auditor_finds_nothing_and_the_same_slowdowns(woven: Woven):
    result = audit(woven.file)
    assert result.findings == ()
    slowdowns = {f"slowdown:{job.name}": job.slowdown for job in woven.figures.jobs}
    assert disagreements(result.figures, slowdowns) == []
    assert sys.float_info.max > max(slowdowns.values()) >= 1.0
