"""A real job of two training ranks, one of which is killed before it has written what the other has."""

from pathlib import Path

import pytest
from live import Live

from weaverl.domain.jobs import HostMemory, JobSpec, JobState, PhaseProfile, Role
from weaverl.runtime.checkpoint_files import find_checkpoints

SCRIPT = Path(__file__).parent / "checkpointing_rank.py"


@pytest.mark.slow(reason="four ranks load torch: 10 s")
def test_the_next_attempt_of_a_job_goes_on_from_the_last_iteration_that_both_ranks_have(live: Live, directory: Path):
    command = ("python", str(SCRIPT), "5")
    spec = JobSpec(
        name="pair",
        roles=(
            Role(name="rollout", command=command),
            Role(name="training", command=command, processes_per_node=2),
        ),
        rollout_gpus=1,
        training_gpus=1,
        host_memory=HostMemory(rollout_bytes=1 << 20, training_bytes=1 << 20),
        slo=50.0,
        profile=PhaseProfile(rollout_max_seconds=0.1, rollout_mean_seconds=0.1, training_seconds=0.1),
        working_directory=str(directory),
        checkpoint_directory=str(directory / "checkpoints"),
        max_retries=1,
    )
    live.client.submit(spec)
    ended = live.await_end("pair", seconds=60.0)["pair"]
    assert (ended.state, ended.attempt) == (JobState.FINISHED, 2), (ended.reason, ended.last_lines)
    logs = {path.stem: path.read_text().split("\n")[0] for path in live.home.job_logs("pair")}
    aside = directory / "checkpoints" / "training-0" / "superseded"
    first_had_two = logs["training-0"] == "iteration 2" and find_checkpoints(aside).whole == (2,)
    assert logs["training-0"] == logs["training-1"] == "iteration 2", "rank 1 had 1 and 0"
    assert first_had_two
    assert [find_checkpoints(directory / "checkpoints" / f"training-{rank}").whole for rank in (0, 1)] == [(4, 3)] * 2
