import pytest

from weaverl.reports.audited_tasks import audited_task
from weaverl.simulation.reproduction.mechanisms import cold_switches
from weaverl.simulation.reproduction.runner import Runner
from weaverl.simulation.reproduction.sharing import careless, careless_row, equal_cost_ratios, sharing, sharing_rows


@pytest.fixture(scope="module")
def runner():
    with Runner(audited_task, 1, lambda study, done, total: None) as made:
        yield made


def test_each_mix_is_woven_and_beats_every_alternative_at_equal_cost(runner):
    results = sharing(runner, 12)
    ratios = equal_cost_ratios(results)
    assert set(ratios) == {"time multiplexing", "rollout-heavy", "spatial"}
    for mix, by_policy in ratios.items():
        assert set(by_policy) == {"solo", "colocated", "gavel"}
        assert 1.6 < by_policy["solo"] < 2.0, mix
        assert by_policy["colocated"] > 1.1, mix
    rows = sharing_rows(results)
    assert rows[0].values == {mix: by_policy["solo"] for mix, by_policy in ratios.items()}
    # Three mixes of two, three and three jobs.
    assert len(rows[-1].values) == 8


def test_carelessness_slows_both_jobs_and_admission_refuses_it(runner):
    results = careless(runner, 12)
    row = careless_row(results)
    low, high = sorted(row.values.values())
    # A round is both rollouts, 730 s, and switches; alone the jobs take 505 s and 430 s and their syncs.
    assert 1.3 < low < 1.5
    assert 1.5 < high < 1.8
    assert max(results["apart"].slowdowns) < 1.2


def test_cold_starts_at_each_switch_lose_throughput(runner):
    assert 0.2 < cold_switches(runner, 12).values["lost"] < 0.6
