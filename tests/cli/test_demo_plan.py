from pathlib import Path

import pytest

from weaverl.cli.demo.plan import DemoPlan, cluster_of_this_machine, example_folder
from weaverl.errors import ClusterError


def test_two_gpus_are_one_node_each():
    cluster = cluster_of_this_machine(example_folder(), 4, [0, 1])
    assert [(node.accelerator, node.device_ids, node.cpus) for node in cluster.nodes] == [
        ("cuda", (0,), ()),
        ("cuda", (1,), ()),
    ]


def test_one_gpu_is_presented_as_two_nodes():
    assert [node.device_ids for node in cluster_of_this_machine(example_folder(), 1, [0]).nodes] == [(0,), (0,)]


def test_without_a_gpu_each_node_is_a_core_that_this_process_may_use():
    cluster = cluster_of_this_machine(example_folder(), 0, [3, 5])
    assert [(node.accelerator, node.cpus) for node in cluster.nodes] == [("cpu", (3,)), ("cpu", (5,))]


def test_one_core_is_refused():
    with pytest.raises(ClusterError, match="two CPU cores"):
        cluster_of_this_machine(example_folder(), 0, [0])


def test_no_node_holds_the_state_of_two_jobs_at_once():
    engine_bytes, trainer_bytes = 4_885_056, 14_654_732
    budgets = [node.device_memory_bytes for node in cluster_of_this_machine(example_folder(), 0, [0, 1]).nodes]
    for state, budget in zip((engine_bytes, trainer_bytes), budgets, strict=True):
        assert state <= budget < 2 * state


def test_three_jobs_have_the_small_one_in_the_middle(tmp_path: Path):
    plan = DemoPlan.of(mix=False, num_jobs=3, iterations=12, tiny=False, out=tmp_path)
    assert [job.preset for job in plan.jobs] == ["rollout_heavy", "small", "training_heavy"]
    assert len({job.seed for job in plan.jobs}) == 3
