import numpy as np
import pytest

from simulation.small import row
from weaverl.simulation.costs import Costs
from weaverl.simulation.workload import drawn_work, simulated_job


def test_without_chance_every_rollout_takes_its_mean_times_the_growth():
    job = row(iterations=3, rollout=100.0, rollout_growth=2.0, rollout_cv=0.3)
    assert drawn_work(job, Costs(), None).rollout_us == [100_000_000, 150_000_000, 200_000_000]


def test_draws_have_the_trace_s_mean_and_spread():
    job = row(iterations=200_000, rollout_mean_seconds=100.0, rollout_max_seconds=1e6, rollout_cv=0.3)
    rollouts = np.array(drawn_work(job, Costs(), 1).rollout_us) / 1e6
    assert rollouts.mean() == pytest.approx(100.0, rel=0.005)
    assert rollouts.std() / rollouts.mean() == pytest.approx(0.3, rel=0.02)


def test_no_draw_is_longer_than_the_cap_of_its_iteration():
    job = row(iterations=1001, rollout_mean_seconds=90.0, rollout_max_seconds=100.0, rollout_cv=0.5, rollout_growth=3.0)
    rollouts = np.array(drawn_work(job, Costs(), 1).rollout_us) / 1e6
    caps = np.linspace(100.0, 300.0, 1001)
    assert (rollouts <= caps + 1e-6).all()
    assert (rollouts >= caps - 1e-6).sum() > 100


def test_draws_depend_on_seed_and_name_alone():
    draws = [
        drawn_work(row(name, rollout_cv=0.2, rollout_max_seconds=1e3), Costs(), seed).rollout_us
        for name, seed in (("a", 1), ("b", 1), ("a", 2), ("a", 1))
    ]
    assert draws[0] == draws[3]
    assert draws[0] != draws[1] and draws[0] != draws[2]


def test_a_job_s_own_switch_and_cold_start_times_grow_with_its_model():
    job = simulated_job(row(model_billions=70.0), Costs())
    assert (job.rollout_switch_us, job.training_switch_us, job.cold_start_us) == (1_900_000, 5_900_000, 135_800_000)
    assert job.spec.profile.training_switch_seconds == pytest.approx(5.9)


def test_a_tail_is_moved_to_a_quarter_of_the_devices_and_not_at_all_from_a_single_one():
    assert (simulated_job(row(rollout_gpus=16), Costs()).tail_devices, simulated_job(row(), Costs()).tail_from) == (
        4,
        0.5,
    )
    assert simulated_job(row(rollout_gpus=1), Costs()).tail_from == 1.0
    assert simulated_job(row(), Costs(tail_migration=False)).tail_from == 1.0
