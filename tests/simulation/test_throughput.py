"""Objective `throughput` in the simulated world: fleets of any kind, audited; promises; and less waiting."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulation.small import row, trace
from simulation.test_any_trace import rows
from weaverl.reports.recorded import audit_recorded
from weaverl.simulation.costs import Costs
from weaverl.simulation.outcome import Outcome
from weaverl.simulation.simulate import Setup, simulate_heard
from weaverl.simulation.timeline import Recorder
from weaverl.simulation.traces.records import Trace

FLEET = Setup(policy="weave", objective="throughput", costs=Costs(max_rollout_nodes=3, max_training_nodes=3))


def audited(jobs: Trace, setup: Setup = FLEET) -> Outcome:
    recorder = Recorder()
    finished = simulate_heard(jobs, setup, (), recorder=recorder)
    assert audit_recorded(jobs, finished.cluster, recorder, finished.outcome).findings == ()
    return finished.outcome


def busy_fleet(number: int = 8) -> Trace:
    """More jobs than three of each pool hold alone, some of which bear no neighbour."""
    return trace(
        *(
            row(
                f"j{n:02}",
                at=1800.0 * n,
                iterations=40 + 7 * (n % 5),
                rollout=400.0 - 30.0 * (n % 4),
                training=200.0 + 40.0 * (n % 3),
                slo=(1.02, 1.6, 1.4, 1.8)[n % 4],
                rollout_max_seconds=600.0,
                rollout_cv=0.2,
                sync_gib=10.0,
            )
            for n in range(number)
        )
    )


@settings(max_examples=25, deadline=None)
@given(
    rows(),
    st.builds(
        Costs,
        max_rollout_nodes=st.sampled_from([2, 3]),
        max_training_nodes=st.sampled_from([2, 4]),
        tail_migration=st.booleans(),
        job_mtbf_hours=st.sampled_from([None, None, 2.0]),
        node_mtbf_hours=st.sampled_from([None, None, 10.0]),
    ),
    st.integers(0, 5),
    st.booleans(),
)
def test_on_any_fleet_every_job_ends_and_the_auditor_finds_nothing(jobs, costs, seed, colocates):
    outcome = audited(jobs, msgspec.structs.replace(FLEET, costs=costs, seed=seed, colocates=colocates))
    assert outcome.unfinished == {}
    assert outcome.jobs_finished + sum(outcome.refused.values()) == len(jobs.jobs)


def test_on_a_busy_fleet_promises_are_kept_and_nobody_is_faster_with_another_policy():
    """For dollars ``weave`` may end the last of eight jobs sooner, by chance, but not the jobs on average."""
    jobs = busy_fleet()
    ours = audited(jobs)
    assert ours.slo_attainment == 1.0
    for policy in ("gavel", "weave-paper", "weave"):
        other = audited(jobs, msgspec.structs.replace(FLEET, policy=policy, objective="dollars"))
        assert policy == "weave" or ours.makespan_hours < other.makespan_hours
        assert ours.mean_completion_hours < other.mean_completion_hours


def test_others_make_room_so_that_less_is_waited():
    """Two jobs for whom it is well to share, and one that bears nobody: it waits for an iteration, not for a job."""
    shared = {"iterations": 60, "rollout": 300.0, "training": 260.0, "slo": 1.8}
    jobs = trace(row("a", **shared), row("b", **shared), row("picky", at=3600.0, **shared | {"slo": 1.01}))
    few = msgspec.structs.replace(FLEET, costs=Costs(max_rollout_nodes=2, max_training_nodes=2))
    still = audited(jobs, msgspec.structs.replace(few, max_moves_per_job=0))
    moved = audited(jobs, few)
    assert (still.moves, moved.moves) == (0, 1)
    assert still.wait_hours.max > 8.0
    assert moved.wait_hours.max < 0.25
    assert moved.mean_completion_hours < still.mean_completion_hours


def test_a_long_sync_is_saved_on_training_gpus_alone():
    """Of 300 + 200 + 185 s the sync is saved; rollouts take 1.1 times as long, and both states are switched."""
    jobs = trace(row("a", iterations=20, rollout=300.0, training=200.0, sync_gib=375.0))
    apart, together = (audited(jobs, msgspec.structs.replace(FLEET, colocates=one)) for one in (False, True))
    assert apart.slowdown.max == 1.0
    assert together.slowdown.max == pytest.approx((330.0 + 200.0 + 0.9 + 4.1) / (500.0 + 185.2), abs=0.003)
    assert (together.peak_gpus.rollout, together.peak_gpus.training) == (0, 8)


def test_equal_runs_are_equal():
    setup = msgspec.structs.replace(FLEET, timings=False)
    assert audited(busy_fleet(5), setup) == audited(busy_fleet(5), setup)
