"""``CLUSTER.yaml``: what each key of a cluster file means; ``docs/cluster-file.md`` is the same for users."""

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

from weaverl.channel.url import parse_url
from weaverl.config.cpu_sets import cpu_set
from weaverl.config.document import Node as YamlNode
from weaverl.config.document import Place, file_label, parse_document, read_text, show
from weaverl.config.sharing import sharing
from weaverl.config.units import Rounding
from weaverl.config.values import Section, choice, integer, list_of, memory, name, number, seconds, text
from weaverl.domain.cluster import Cluster, Node, Pool, PoolKind, StoreAddress, SwitchCost
from weaverl.errors import UsageError
from weaverl.scheduling.state import LIVE_POLICIES, OBJECTIVES, POLICIES, Parameters

CLUSTER_KEYS = ("name", "pools", "switch", "usable_host_memory", "policy", "objective", "sharing", "store", "nodes")
STORE_KEYS = ("url", "password_file")
POOL_KEYS = ("gpu", "usd_per_gpu_hour")
NODE_KEYS = (
    "name",
    "pool",
    "host",
    "devices",
    "device_ids",
    "device_memory",
    "host_memory",
    "cpus",
    "accelerator",
)
POOLS = tuple(kind.value for kind in PoolKind)

THIS_HOST = "localhost"
MAX_DEVICES = 1024
MAX_LABEL = 253


class Accelerator(StrEnum):
    """What the devices of a node are."""

    CUDA = "cuda"
    CPU = "cpu"


def load_cluster(path: Path) -> Cluster:
    """Read a cluster file; SpecError says what is wrong."""
    return parse_cluster(read_text(path), file=file_label(path))


def parse_cluster(content: str, *, file: str = "CLUSTER.yaml") -> Cluster:
    """Read the text of a cluster file; ``file`` is for messages."""
    section = Section(parse_document(content, file=file), CLUSTER_KEYS)
    pools = section.subsection("pools", POOLS)
    placed_nodes = section.required("nodes", lambda node: list_of(node, _node))
    _refuse_clashes(placed_nodes)
    nodes = tuple(node for node, _ in placed_nodes)
    for kind in PoolKind:
        if all(node.pool is not kind for node in nodes):
            raise section.place_of("nodes").refuse(f"no node is in the {kind} pool, 0 of {len(nodes)}: add one")
    policy = section.optional("policy", _policy, Parameters().policy)
    objective = section.optional("objective", _objective, Parameters().objective)
    if objective != Parameters().objective and policy != "weave":
        problem = f"{objective} is an objective of policy weave, the policy is {policy}"
        raise section.place_of("objective").refuse(f"{problem}: write policy: weave too, or leave the key out")
    return Cluster(
        name=section.required("name", name),
        rollout=pools.required("rollout", lambda node: _pool(node, PoolKind.ROLLOUT)),
        training=pools.required("training", lambda node: _pool(node, PoolKind.TRAINING)),
        nodes=nodes,
        switch=section.optional("switch", _switch, SwitchCost()),
        usable_host_memory=section.optional("usable_host_memory", number(at_least=0, at_most=1, or_equal=False), 0.9),
        store=section.optional("store", _store, None),
        policy=policy,
        objective=objective,
        sharing=section.optional("sharing", sharing, None),
    )


def _policy(node: YamlNode) -> str:
    given = text(node)
    if given in LIVE_POLICIES:
        return given
    problem = f"not a policy, {show(given)}"
    if given in POLICIES:
        problem = f"{given} is for simulations only, it has rollout and training on the same GPUs, as no live job has"
    raise node.place.refuse(f"{problem}: write {' or '.join(LIVE_POLICIES)}")


def _objective(node: YamlNode) -> str:
    given = text(node)
    if given not in OBJECTIVES:
        raise node.place.refuse(f"not an objective, {show(given)}: write {' or '.join(OBJECTIVES)}")
    return given


def _store(node: YamlNode) -> StoreAddress:
    section = Section(node, STORE_KEYS)
    return StoreAddress(
        url=section.required("url", _store_url), password_file=section.optional("password_file", _file, None)
    )


def _store_url(node: YamlNode) -> str:
    try:
        parse_url(text(node))
    except UsageError as error:
        raise node.place.refuse(str(error)) from error
    return text(node)


def _file(node: YamlNode) -> str:
    path = Path(text(node)).expanduser()
    if not path.is_file():
        raise node.place.refuse(f"no such file, {show(text(node))}: make it, or correct the path")
    return str(path.absolute())


def _pool(node: YamlNode, kind: PoolKind) -> Pool:
    section = Section(node, POOL_KEYS)
    return Pool(
        kind=kind,
        gpu=section.required("gpu", _label),
        usd_per_gpu_hour=section.required("usd_per_gpu_hour", number(at_least=0, or_equal=False)),
    )


def _switch(node: YamlNode) -> SwitchCost:
    section = Section(node, POOLS)
    return SwitchCost(
        rollout_seconds=section.optional("rollout", seconds(above_zero=False), 0.0),
        training_seconds=section.optional("training", seconds(above_zero=False), 0.0),
    )


def _node(node: YamlNode) -> tuple[Node, Place]:
    section = Section(node, NODE_KEYS)
    num_devices = section.required("devices", integer(at_least=1, at_most=MAX_DEVICES))
    accelerator = section.optional("accelerator", choice(Accelerator), Accelerator.CUDA)
    offer = memory(Rounding.DOWN)
    record = Node(
        name=section.required("name", name),
        pool=section.required("pool", choice(PoolKind)),
        host=section.optional("host", _label, THIS_HOST),
        num_devices=num_devices,
        device_memory_bytes=section.required("device_memory", offer),
        host_memory_bytes=section.required("host_memory", offer),
        cpus=section.optional("cpus", cpu_set, ()),
        accelerator=accelerator.value,
        device_ids=_device_ids(section, num_devices, accelerator),
    )
    return record, section.place


def _device_ids(section: Section, num_devices: int, accelerator: Accelerator) -> tuple[int, ...]:
    id_of_device = integer(at_least=0, at_most=MAX_DEVICES - 1)
    given = section.optional("device_ids", lambda node: list_of(node, id_of_device), None)
    if accelerator is Accelerator.CPU:
        if given is not None:
            problem = f"only cuda devices have ids, got {list(given)} on a cpu node: leave the key out"
            raise section.place_of("device_ids").refuse(problem)
        return ()
    if given is None:
        return tuple(range(num_devices))
    if len(set(given)) != num_devices or len(given) != num_devices:
        problem = f"{list(given)} for {num_devices} devices: name as many different ids as devices says"
        raise section.place_of("device_ids").refuse(problem)
    return given


def _label(node: YamlNode) -> str:
    given = text(node)
    if len(given) > MAX_LABEL or not given.isprintable() or " " in given:
        raise node.place.refuse(f"not a word, {show(given)}: use up to {MAX_LABEL} characters without spaces")
    return given


def _refuse_clashes(placed_nodes: tuple[tuple[Node, Place], ...]) -> None:
    owners: dict[str, str] = {}
    for node, place in placed_nodes:
        for claim, remedy in _claims(node):
            if claim in owners:
                raise place.refuse(f"{node.name}: {claim} is already taken by node {owners[claim]}: {remedy}")
            owners[claim] = node.name


def _claims(node: Node) -> Iterator[tuple[str, str]]:
    yield f"the name {node.name}", "give each node its own"
    for device in node.device_ids:
        yield (
            f"cuda device {device} of host {node.host}",
            "set device_ids so that each device is in one node (two nodes would hand it out twice)",
        )
    for cpu in node.cpus:
        yield (
            f"cpu {cpu} of host {node.host}",
            "give each node its own cpus, or leave cpus out (on shared ones neighbours slow each other down)",
        )
