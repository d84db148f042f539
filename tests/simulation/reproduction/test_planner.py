from math import isnan

import pytest

from weaverl.simulation.costs import Costs
from weaverl.simulation.reproduction.cases import mixes
from weaverl.simulation.reproduction.ideal import OverIdeal
from weaverl.simulation.reproduction.planner import OptimalPlanner

NODE_PAIR = 8 * (1.85 + 5.28)


def test_two_complementary_jobs_share_a_node_a_pool():
    assert OptimalPlanner(Costs())(mixes(10)[0].jobs) == pytest.approx(NODE_PAIR)


def test_rollout_heavy_jobs_share_the_training_node_alone():
    assert OptimalPlanner(Costs())(mixes(10)[1].jobs) == pytest.approx(8 * (3 * 1.85 + 5.28))


def test_more_jobs_than_can_be_searched_have_no_plan():
    assert OptimalPlanner(Costs(), most_jobs=2)(mixes(10)[1].jobs) is None


def test_without_a_moment_that_could_be_planned_there_is_no_ratio():
    assert isnan(OverIdeal(usd=0.0, ideal_usd=0.0, samples=0, too_large=4, most_jobs=0).ratio)
