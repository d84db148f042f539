"""A real running job makes way for one of a higher priority, and goes on when that is done."""

from pathlib import Path

import msgspec
import pytest
from live import Live, await_true, cluster, done, every, overlaps

from weaverl.control.processes import kill_marked
from weaverl.domain.jobs import JobState, PhaseProfile
from weaverl.domain.sharing import Preemption, Sharing

ROLLOUTS = PhaseProfile(rollout_max_seconds=0.3, rollout_mean_seconds=0.3, training_seconds=0.1)
"""Two such jobs slow each other down."""


@pytest.fixture
def shared_live(directory: Path):
    sharing = Sharing(preemption=Preemption(least_stay_seconds=0.0, most_per_job=1))
    mine = Live(directory, msgspec.structs.replace(cluster(), sharing=sharing))
    mine.up()
    yield mine
    mine.down()
    kill_marked(mine.home.instance, grace_seconds=0.0)


def test_a_job_is_paused_at_the_end_of_an_iteration_for_a_higher_priority_and_loses_none(shared_live: Live):
    live = shared_live
    saves = {"checkpoint_directory": str(live.records.parent / "saved")}
    low = live.spec("low", "--saves", "--iterations", 30, iterations=30, tenant="a", **saves)
    high = live.spec("high", "--iterations", 15, iterations=15, priority=1, tenant="b")
    live.client.submit(msgspec.structs.replace(low, profile=ROLLOUTS))
    live.await_phase("low", "training", 3)
    live.client.submit(msgspec.structs.replace(high, profile=ROLLOUTS, slo=1.0))
    live.await_phase("high", "rollout", 0)
    await_true(lambda: live.job("low").state is JobState.QUEUED)
    low = live.job("low")
    assert low.reason.endswith("so that high can start")
    assert low.standing == "number 1 of 1 in the queue, priority 0, paused once"
    assert [(one.name, one.running, one.waiting) for one in live.status().tenants] == [("a", 0, 1), ("b", 1, 0)]
    live.await_finished("low", "high")
    marks = live.marks("low", "high")
    assert overlaps(marks) == []
    assert done(live.marks("low")) == every(("low",), 30)
    assert {mark.attempt for mark in live.marks("low")} == {1, 2}
    ours = live.marks("high")
    between = [mark for mark in live.marks("low") if ours[0].at < mark.at < ours[-1].at]
    assert between == []
