import pytest

from weaverl.config.cluster_file import load_cluster, parse_cluster
from weaverl.domain.cluster import Node, Pool, PoolKind, SwitchCost
from weaverl.errors import SpecError
from weaverl.scheduling.state import LIVE_POLICIES, Parameters, parameters_of

EXTRA = "  - {name: r1, pool: rollout, devices: 1, device_memory: 1Mi, host_memory: 1Gi"


def test_a_cluster_file_is_read(tmp_path):
    path = tmp_path / "cluster.yaml"
    path.write_text(
        """\
name: laptop
pools:
  rollout: {gpu: H20, usd_per_gpu_hour: 1.85}
  training: {gpu: H800, usd_per_gpu_hour: 5.28}
switch: {rollout: 100ms}
usable_host_memory: 0.8
nodes:
  - {name: r0, pool: rollout, devices: 1, device_memory: 48Mi, host_memory: 2.1Gi, cpus: [1, 0], accelerator: cpu}
  - name: t0
    pool: training
    host: gpu-1.example.com
    devices: 2
    device_ids: [4, 2]
    device_memory: 80G
    host_memory: 1536 GiB
    cpus: 0-3,16-17
"""
    )
    cluster = load_cluster(path)
    assert cluster.rollout == Pool(kind=PoolKind.ROLLOUT, gpu="H20", usd_per_gpu_hour=1.85)
    assert cluster.training == Pool(kind=PoolKind.TRAINING, gpu="H800", usd_per_gpu_hour=5.28)
    assert cluster.switch == SwitchCost(rollout_seconds=0.1, training_seconds=0.0)
    assert cluster.usable_host_memory == 0.8
    assert cluster.nodes == (
        Node(
            name="r0",
            pool=PoolKind.ROLLOUT,
            host="localhost",
            num_devices=1,
            device_memory_bytes=50_331_648,
            host_memory_bytes=2_254_857_830,
            cpus=(0, 1),
            accelerator="cpu",
        ),
        Node(
            name="t0",
            pool=PoolKind.TRAINING,
            host="gpu-1.example.com",
            num_devices=2,
            device_memory_bytes=80_000_000_000,
            host_memory_bytes=1_649_267_441_664,
            cpus=(0, 1, 2, 3, 16, 17),
            accelerator="cuda",
            device_ids=(4, 2),
        ),
    )


def test_the_defaults_are_no_switch_cost_nine_tenths_and_the_first_devices(cluster_with):
    cluster = cluster_with()
    assert cluster.switch == SwitchCost()
    assert cluster.usable_host_memory == 0.9
    assert cluster.policy == "weave-paper" == Parameters().policy
    assert cluster.nodes[0].device_ids == (0, 1, 2, 3, 4, 5, 6, 7)
    assert cluster.nodes[0].accelerator == "cuda"
    assert cluster.nodes[0].cpus == ()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (EXTRA.replace("r1", "r0") + ", device_ids: [20]}", "nodes[2]: r0: the name r0 is already taken by node r0"),
        (EXTRA + "}", "nodes[2]: r1: cuda device 0 of host localhost is already taken by node r0: set device_ids"),
        (EXTRA + ", device_ids: [8]}", "nodes[2]: r1: cuda device 8 of host localhost is already taken by node t0"),
        (EXTRA + ", device_ids: [20, 21]}", "nodes[2].device_ids: [20, 21] for 1 devices: name as many different ids"),
        (EXTRA + ", device_ids: [-1]}", "nodes[2].device_ids[0]: must be at least 0, got '-1': raise it"),
        (
            EXTRA + ", device_ids: [0], accelerator: cpu}",
            "nodes[2].device_ids: only cuda devices have ids, got [0] on a cpu node: leave the key out",
        ),
        (EXTRA + ", accelerator: tpu}", "nodes[2].accelerator: not one of the choices, 'tpu': write cuda or cpu"),
        (EXTRA + ", cpus: 0-7,16-23}", "unknown key '16-23': a comma inside braces begins a new key, so put quotes"),
        (EXTRA + ", cpus: 7-0}", "nodes[2].cpus: not a range of CPUs from 0 to 8191, '7-0': write the lower first"),
        (EXTRA + ", cpus: 0-9999}", "nodes[2].cpus: not a range of CPUs from 0 to 8191, '0-9999'"),
        (EXTRA + ", cpus: [0, 0]}", "nodes[2].cpus: cpu 0 is named twice: name it once"),
        (EXTRA + ', cpus: "0-3,2"}', "nodes[2].cpus: cpu 2 is named twice: name it once"),
        (EXTRA + ", cpus: all}", "nodes[2].cpus: not a set of CPUs, 'all': write [0, 1] or \"0-7,16-23\""),
        (EXTRA + ", cpus: [a]}", "nodes[2].cpus[0]: expected a number, got 'a'"),
        (EXTRA + ", gpus: 8}", "nodes[2].gpus: unknown key 'gpus': did you mean cpus?"),
        (EXTRA + ", host: a b}", "nodes[2].host: not a word, 'a b': use up to 253 characters without spaces"),
        ("  - r1", "nodes[2]: expected the keys name, pool, host"),
        ("  - {name: r1, pool: rollout, devices: 0}", "nodes[2].devices: must be at least 1, got '0': raise it"),
        ("  - {name: r1, pool: rollout}", "nodes[2]: the key 'devices' is missing: add it"),
        ("usable_host_memory: -1", "usable_host_memory: must be above 0, got '-1': raise it"),
        ("usable_host_memory: 0", "usable_host_memory: must be above 0, got '0': raise it"),
        ("usable_host_memory: 1e-999", "usable_host_memory: must be above 0, got '1e-999': raise it"),
        ("usable_host_memory: 1.1", "usable_host_memory: must be at most 1, got '1.1': lower it"),
        ("usable_host_memory: 90%", "usable_host_memory: expected a number, got '90%'"),
        ("switch: {rollout: 0.1}", "switch.rollout: the unit is missing, got '0.1'"),
        ("switch: {rollout: -1s}", "switch.rollout: must be zero or more, got '-1s'"),
        ("pool: {}", "pool: unknown key 'pool': did you mean pools?"),
        ("policy: weve", "policy: not a policy, 'weve': write weave-paper or weave or solo"),
        ("policy: [weave]", "policy: expected text, got"),
        ("policy: colocated", "policy: colocated is for simulations only, it has rollout and training on the"),
        ("policy: gavel", "policy: gavel is for simulations only"),
        ("policy: weave\nobjective: speed", "objective: not an objective, 'speed': write dollars or throughput"),
        (
            "objective: throughput",
            "objective: throughput is an objective of policy weave, the policy is weave-paper: write policy: weave too",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_line(cluster_with, line, message):
    with pytest.raises(SpecError) as caught:
        cluster_with(line)
    assert message in str(caught.value)
    assert str(caught.value).startswith("CLUSTER.yaml:")
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("policy", LIVE_POLICIES)
def test_the_policy_of_the_live_cluster_is_read(cluster_with, policy):
    assert cluster_with(f"policy: {policy}").policy == policy


def test_the_objective_of_policy_weave_is_read(cluster_with):
    assert cluster_with("policy: weave").objective == "dollars" == Parameters().objective
    cluster = cluster_with("policy: weave\nobjective: throughput")
    assert parameters_of(cluster) == Parameters(policy="weave", objective="throughput")
    assert cluster_with("policy: solo\nobjective: dollars").policy == "solo"


def test_nodes_of_one_host_share_no_cpu(cluster_with):
    shared = EXTRA + ", device_ids: [20], cpus: [0, 1]}"
    with pytest.raises(SpecError, match="r2: cpu 1 of host localhost is already taken by node r1: give each node"):
        cluster_with(shared, EXTRA.replace("r1", "r2") + ', device_ids: [21], cpus: "1-2"}')
    other_host = EXTRA.replace("r1", "r2") + ", host: other, cpus: [0, 1]}"
    assert cluster_with(shared, other_host).nodes[3].cpus == (0, 1)


def test_a_pool_without_a_node_is_refused():
    with pytest.raises(SpecError, match=r"^CLUSTER\.yaml:3: nodes: no node is in the training pool, 0 of 1: add one$"):
        parse_cluster(
            "name: a\npools: {rollout: {gpu: a, usd_per_gpu_hour: 1}, training: {gpu: a, usd_per_gpu_hour: 1}}\n"
            "nodes: [{name: a, pool: rollout, devices: 1, device_memory: 1B, host_memory: 1B}]\n"
        )


@pytest.mark.parametrize("price", ["0", "-1", "nan"])
def test_a_price_is_above_zero(price):
    with pytest.raises(SpecError, match=r"pools\.rollout\.usd_per_gpu_hour: "):
        parse_cluster(
            "name: a\nnodes: [{name: a, pool: rollout, devices: 1, device_memory: 1B, host_memory: 1B},"
            " {name: b, pool: training, devices: 1, device_memory: 1B, host_memory: 1B, host: b}]\n"
            f"pools: {{rollout: {{gpu: a, usd_per_gpu_hour: {price}}}, training: {{gpu: a, usd_per_gpu_hour: 1}}}}\n"
        )
