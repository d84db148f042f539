"""Field cases YM-05 and AD-10: a job that never fits is refused with the numbers."""

import os

import msgspec
import pytest

from weaverl.config.checks import check_job_fits, check_local
from weaverl.domain.cluster import Cluster
from weaverl.errors import SpecError

LOCAL = ("placement: local", "roles: {run: {command: a}}")
REMOTE = (
    "  - {name: r1, pool: rollout, host: far, devices: 4, device_memory: 1Mi, host_memory: 8Gi}",
    "  - {name: t1, pool: training, host: near, devices: 4, device_memory: 1Mi, host_memory: 8Gi}",
)


def test_a_job_that_uses_the_whole_cluster_fits(job_with, cluster_with):
    check_job_fits(job_with("gpus: {rollout: 8, training: 8}"), cluster_with())


def test_a_job_larger_than_a_pool_is_refused_with_the_numbers(job_with, cluster_with):
    with pytest.raises(SpecError) as caught:
        check_job_fits(job_with("gpus: {rollout: 12, training: 8}"), cluster_with())
    assert str(caught.value) == (
        "job math-a: asks for 12 rollout GPUs, the rollout pool of laptop has 8: ask for fewer, or add nodes"
    )


def test_a_pool_of_no_gpus_refuses_without_dividing(job_with, cluster_with):
    cluster = msgspec.structs.replace(cluster_with(), nodes=())
    with pytest.raises(SpecError, match="asks for 1 rollout GPUs, the rollout pool of laptop has 0"):
        check_job_fits(job_with(), cluster)


def test_a_job_that_keeps_more_than_a_node_may_hold_is_refused(job_with, cluster_with):
    check_job_fits(job_with("host_memory: {rollout: 1932735283B, training: 1Mi}"), cluster_with())
    with pytest.raises(SpecError) as caught:
        check_job_fits(job_with("host_memory: {rollout: 1932735284B, training: 1Mi}"), cluster_with())
    assert str(caught.value) == (
        "job math-a: keeps 1.80 GiB (1,932,735,284 bytes) on each rollout node; laptop has 0 GPUs on nodes with as "
        "much usable, of 1 asked for, and its largest node has 1.80 GiB (1,932,735,283 bytes): ask for less "
        "host_memory.rollout, or add larger nodes"
    )


def test_only_gpus_on_nodes_with_room_count(job_with, cluster_with):
    cluster = cluster_with(*REMOTE)
    check_job_fits(job_with("gpus: {rollout: 4, training: 1}", "host_memory: {rollout: 4Gi, training: 1Mi}"), cluster)
    with pytest.raises(SpecError, match="laptop has 4 GPUs on nodes with as much usable, of 5 asked for"):
        check_job_fits(
            job_with("gpus: {rollout: 5, training: 1}", "host_memory: {rollout: 4Gi, training: 1Mi}"), cluster
        )


def test_a_local_job_needs_one_host_with_both_pools(job_with, cluster_with):
    cluster = on_cpus(cluster_with(*REMOTE))
    check_job_fits(job_with(*LOCAL, "gpus: {rollout: 8, training: 8}"), cluster)
    with pytest.raises(SpecError) as caught:
        check_job_fits(job_with(*LOCAL, "gpus: {rollout: 9, training: 1}"), cluster)
    assert str(caught.value) == (
        "job math-a: has placement local and needs 9 rollout and 1 training GPUs with room on one host, laptop has "
        "8+8 on localhost, 4+0 on far, 0+4 on near: give one host nodes of both pools, or ask for less"
    )
    with pytest.raises(SpecError, match="placement local"):
        check_job_fits(job_with(*LOCAL, "host_memory: {rollout: 4Gi, training: 4Gi}"), cluster)
    check_job_fits(job_with("host_memory: {rollout: 4Gi, training: 4Gi}"), cluster)


def on_cpus(cluster: Cluster) -> Cluster:
    nodes = tuple(msgspec.structs.replace(node, accelerator="cpu") for node in cluster.nodes)
    return msgspec.structs.replace(cluster, nodes=nodes)


def test_a_local_job_is_refused_on_cuda_nodes(job_with, cluster_with):
    with pytest.raises(SpecError, match="on the cuda nodes of laptop"):
        check_job_fits(job_with(*LOCAL), cluster_with())


def test_a_node_of_another_host_is_refused_by_the_machine_that_would_start_its_agent(cluster_with):
    with pytest.raises(SpecError, match="node r1: is on host far"):
        check_local(cluster_with(*REMOTE), gpus=64)


def test_gpus_and_memory_that_this_machine_lacks_are_refused(cluster_with):
    with pytest.raises(SpecError, match="uses GPU 7, and this machine has 2 GPUs"):
        check_local(cluster_with(), gpus=2)
    vast = "  - {name: r1, pool: rollout, devices: 1, device_ids: [20], device_memory: 1Mi, host_memory: 900Ti}"
    with pytest.raises(SpecError, match="host memory together, this machine has"):
        check_local(cluster_with(vast), gpus=64)


def test_a_cpu_that_this_machine_lacks_is_named(cluster_with):
    here = "  - {name: r1, pool: rollout, devices: 1, device_ids: [20], device_memory: 1Mi, host_memory: 1Gi"
    cluster = cluster_with(here + ', cpus: "1,7"}')
    check_local(cluster, available={0, 1, 7}, gpus=64)
    with pytest.raises(SpecError) as caught:
        check_local(cluster, available={0, 1}, gpus=64)
    assert str(caught.value) == (
        "laptop: node r1: cpu 7 is not available on this machine: it has 0-1; change the node's cpus"
    )


def test_this_machine_is_asked_for_its_own_cpus(cluster_with):
    own = min(os.sched_getaffinity(0))
    node = f"  - {{name: r1, pool: rollout, host: localhost, devices: 1, device_ids: [20], cpus: [{own}], "
    memory = "device_memory: 1Mi, host_memory: 1Gi}"
    check_local(cluster_with(node + memory), gpus=64)
    with pytest.raises(SpecError, match="cpu 8191 is not available on this machine"):
        check_local(cluster_with(node.replace(f"[{own}]", "[8191]") + memory), gpus=64)
