"""Every parameter of a simulated cluster is a finite number in its range, or is refused by name."""

import math

import msgspec
import pytest

from weaverl.errors import UsageError
from weaverl.simulation.costs import Costs

NUMBERS = {
    name: value
    for name, value in msgspec.structs.asdict(Costs()).items()
    if name.endswith("mtbf_hours")
    or name.startswith("max_")
    or (isinstance(value, float | int | tuple) and not isinstance(value, bool))
}
MAY_BE_ZERO = {
    "rollout_usd_per_gpu_hour",
    "training_usd_per_gpu_hour",
    "sync_overhead",
    "rollout_switch_seconds",
    "training_switch_seconds",
    "cold_start_seconds",
    "moved_start",
    "tail_move_seconds",
    "node_repair_hours",
}
NEVER_ZERO = {
    "gpus_per_node",
    "node_host_gib",
    "usable_host_memory",
    "max_nodes_per_pool",
    "max_rollout_nodes",
    "max_training_nodes",
    "link_gbps",
    "colocated_rollout",
    "gavel_training",
    "interference_rollout",
    "interference_training",
    "tail_devices",
    "tail_stretch",
    "node_mtbf_hours",
    "job_mtbf_hours",
}


def with_value(name: str, number: float) -> Costs:
    value = (NUMBERS[name][0], number) if isinstance(NUMBERS[name], tuple) else number
    return Costs(**{name: value})


@pytest.mark.parametrize("number", [-1, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", NUMBERS)
def test_what_is_no_finite_number_of_at_least_zero_is_refused_by_name(name: str, number: float):
    with pytest.raises(UsageError, match=f"^parameter {name} is {number:g}: give a number from "):
        with_value(name, number)


@pytest.mark.parametrize("name", NEVER_ZERO)
def test_zero_is_refused_where_it_has_no_meaning(name: str):
    with pytest.raises(UsageError, match=f"^parameter {name} is 0: "):
        with_value(name, 0)


@pytest.mark.parametrize("name", MAY_BE_ZERO)
def test_zero_is_taken_where_it_means_for_free_or_at_once(name: str):
    with_value(name, 0)


@pytest.mark.parametrize("name", ["interference_rollout", "interference_training"])
def test_neighbours_make_nobody_faster(name: str):
    assert with_value(name, 1)
    with pytest.raises(UsageError, match=f"^parameter {name} is 0.9: give a number from 1 to 1000$"):
        with_value(name, 0.9)


@pytest.mark.parametrize("name", ["usable_host_memory", "tail_devices"])
def test_a_share_is_at_most_one(name: str):
    assert with_value(name, 1)
    with pytest.raises(UsageError, match=f"^parameter {name} is 1.1: give a number from 0.001 to 1$"):
        with_value(name, 1.1)


@pytest.mark.parametrize("fails", ["node_mtbf_hours", "job_mtbf_hours"])
def test_seldom_saves_are_refused_where_something_fails(fails: str):
    with pytest.raises(UsageError, match=r"^parameter saves_every is 2 where nodes or jobs fail"):
        Costs(saves_every=2, **{fails: 100.0})
