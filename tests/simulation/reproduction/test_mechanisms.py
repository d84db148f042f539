import pytest

from weaverl.simulation.costs import Costs
from weaverl.simulation.reproduction.mechanisms import start_row, two_level_sync


def test_one_copy_crosses_the_slow_link_instead_of_one_a_rank():
    assert two_level_sync(1, Costs(), pipelined=True) == pytest.approx(8.0)
    # 8 copies at 20 Gbps, over one copy at 20 and seven eighths of one at 400.
    assert two_level_sync(1, Costs(), pipelined=False) == pytest.approx((8 / 20) / (1 / 20 + 7 / 8 / 400))
    assert two_level_sync(2, Costs(), pipelined=True) == pytest.approx(16.0)


def test_what_was_not_measured_has_no_figure_of_ours():
    assert start_row().values == {}
