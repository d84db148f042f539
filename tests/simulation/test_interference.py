"""Neighbours slow the bodies of phases, by hand."""

import msgspec
import pytest

from simulation.small import FREE, row, trace
from weaverl.reports.recorded import audit_recorded
from weaverl.simulation.costs import Costs
from weaverl.simulation.simulate import Setup, simulate_heard
from weaverl.simulation.timeline import Recorder

DISTURBED = msgspec.structs.replace(FREE, interference_rollout=1.2, interference_training=1.1)


def run(*jobs, costs=DISTURBED, policy="weave-paper"):
    recorder = Recorder()
    setup = Setup(policy=policy, seed=None, costs=costs, timings=False)
    finished = simulate_heard(trace(*jobs), setup, (), recorder=recorder)
    assert audit_recorded(trace(*jobs), finished.cluster, recorder, finished.outcome).findings == ()
    return finished


def pair(**more):
    return [row(name, rollout=100, training=100, **more) for name in "ab"]


def test_a_body_takes_longer_if_there_is_a_neighbour_at_its_grant():
    finished = run(*pair(iterations=1))
    # a rolls out before b is there, b trains after a is gone: 100 s each. Between them b rolls out in 120 s, a trains
    # in 110 s.
    assert finished.outcome.hours * 3600 == pytest.approx(320.0)
    assert list(finished.jobs.slowdown) == pytest.approx([210 / 200, 320 / 200])
    assert finished.outcome.interference.rollout == pytest.approx(1.1)
    assert finished.outcome.interference.training == pytest.approx(1.05)


def test_only_who_is_on_the_nodes_of_the_phase_disturbs_it():
    # Rollouts on the same nodes would not keep the promise: b gets nodes of its own, and shares the training node.
    outcome = run(*(row(name, iterations=20, rollout=100, training=40, slo=1.2) for name in "ab")).outcome
    assert (outcome.peak_gpus.rollout, outcome.peak_gpus.training) == (16, 8)
    assert outcome.interference.rollout == 1.0
    assert outcome.interference.training == pytest.approx(1.1)


@pytest.mark.parametrize("policy", ["solo", "colocated"])
def test_who_has_his_nodes_to_himself_is_not_disturbed(policy):
    calm, disturbed = (
        run(*pair(iterations=5), costs=costs, policy=policy).outcome
        for costs in (Costs(), Costs(interference_rollout=2))
    )
    assert disturbed == msgspec.structs.replace(calm, parameters=disturbed.parameters)
    assert disturbed.interference.rollout == pytest.approx(1.0)


def test_switches_cold_starts_and_syncs_take_what_they_take():
    costs = Costs(interference_rollout=2.0, interference_training=2.0, tail_migration=False)
    recorder = Recorder()
    jobs = trace(*pair(iterations=3, sync_gib=10.0, slo=5.0))
    finished = simulate_heard(jobs, Setup(seed=None, costs=costs), (), recorder=recorder)
    assert audit_recorded(jobs, finished.cluster, recorder, finished.outcome).findings == ()
    intervals = list(recorder.intervals())
    assert {one.started_at - one.granted_at for one in intervals} == {0, 900_000, 4_100_000}
    assert all(one.ended_at - one.started_at == one.solo_us for one in intervals if one.phase == "sync")


def test_interference_is_measured_apart_from_moved_tails_and_missing_devices():
    costs = msgspec.structs.replace(FREE, interference_rollout=1.2, tail_migration=True)
    outcome = run(*pair(iterations=1), costs=costs).outcome
    # b's rollout begins on three quarters of its devices, while a's tail lasts 1.05 times as long on the others.
    assert outcome.interference.rollout == pytest.approx(1.1, abs=1e-7)
    assert outcome.interference.training == pytest.approx(1.0)


def test_the_scheduler_is_not_told_and_promises_break():
    calm, disturbed = (
        run(*pair(iterations=20, slo=1.1), costs=costs).outcome
        for costs in (FREE, msgspec.structs.replace(FREE, interference_rollout=1.3, interference_training=1.3))
    )
    assert calm.peak_gpus == disturbed.peak_gpus
    assert (calm.slo_attainment, disturbed.slo_attainment) == (1.0, 0.0)
    assert disturbed.bound_multiple > calm.bound_multiple
