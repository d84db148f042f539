"""The best grouping of some jobs, found exhaustively: the bound that every policy is measured against.

It answers for a moment: given the jobs that are active, which groups, nodes and orders of turns cost least an hour
while every promise and every node's host memory is kept? It regroups running jobs freely and at no cost, as no cluster
can, so it is no policy of the scheduler; ask it with the jobs of a snapshot. What it may do is what ``weave`` may:
pack, scale the rollout side, isolate (with ``scale_training`` also open training nodes beside a group's own).

Dynamic programming over subsets of the jobs: one group with the first of them, and the best of the others. Numbers of
nodes are kept as a Pareto front, since a pool may be too small for what is cheapest.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from weaverl.domain.cluster import Cluster, Node, PoolKind, Slot, usable_host_bytes
from weaverl.domain.groups import Group, Pin
from weaverl.domain.jobs import JobSpec
from weaverl.errors import UsageError
from weaverl.scheduling.policies.arrangements import Arrangement, Party, arrange
from weaverl.scheduling.round_model import Member, allowed_us, cycle_us, planned_durations
from weaverl.scheduling.state import switches_of

MOST_JOBS = 10
"""Above that the subsets and orders are too many to look at."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Groups of all the jobs, their slots, what they are slowed to, and the price of the nodes."""

    groups: tuple[Group, ...]
    pins: dict[str, Pin]
    slowdowns: dict[str, float]
    usd_per_hour: float


class _Choice(NamedTuple):
    """A way to run a subset of the jobs: how many nodes of each pool, and the groups on them."""

    num_nodes: tuple[int, int]
    groups: tuple["_Placed", ...]


class _Placed(NamedTuple):
    """One group: its jobs by number, and how they share its nodes."""

    jobs: tuple[int, ...]
    num_nodes: tuple[int, int]
    arrangement: Arrangement


class _Pools(NamedTuple):
    """Nodes of both pools, which are all alike: how many, their devices, usable host memory and price."""

    nodes: tuple[list[Node], list[Node]]
    usable_bytes: tuple[int, int]
    usd_per_node: tuple[float, float]


def optimal_plan(cluster: Cluster, jobs: Sequence[JobSpec], *, scale_training: bool = False) -> Plan:
    """The cheapest grouping of jobs with profiles that ask for whole nodes.

    Raises UsageError if there are more than ``MOST_JOBS``, if a job has no profile or asks for part of a node, if the
    nodes of a pool differ, or if the pools do not hold all the jobs at once.
    """
    if len(jobs) > MOST_JOBS:
        raise UsageError(f"{len(jobs)} jobs: the optimum is searched exhaustively for up to {MOST_JOBS}; give fewer")
    pools = _pools(cluster)
    parties = [_party(cluster, pools, job) for job in jobs]
    choices = _best_of_subsets(parties, pools, scale_training)
    if not choices:
        numbers = " and ".join(f"{len(nodes)} {kind}" for kind, nodes in zip(PoolKind, pools.nodes, strict=True))
        raise UsageError(f"{len(jobs)} jobs do not fit at once into {numbers} nodes: give more nodes, or fewer jobs")
    best = min(choices, key=lambda one: _usd(pools, one.num_nodes))
    return _plan(jobs, parties, pools, best)


def _best_of_subsets(parties: Sequence[Party], pools: _Pools, scale_training: bool) -> list[_Choice]:
    """The front of all the jobs. A subset is a number whose bits are its jobs."""
    fronts = [[_Choice((0, 0), ())]]
    singles: list[list[_Placed]] = [[]]
    for subset in range(1, 1 << len(parties)):
        split = [
            _Choice((one.num_nodes[0] + rest.num_nodes[0], one.num_nodes[1] + rest.num_nodes[1]), (one, *rest.groups))
            for part in _parts_with_first(subset)
            for one in singles[part]
            for rest in fronts[subset ^ part]
        ]
        front = _pareto(choice for choice in split if _holds(pools, choice.num_nodes))
        singles.append(list(_as_one_group(subset, parties, pools, scale_training, front)))
        whole = (_Choice(one.num_nodes, (one,)) for one in singles[subset])
        fronts.append(_pareto([*front, *whole]))
    return fronts[-1]


def _as_one_group(
    subset: int, parties: Sequence[Party], pools: _Pools, scale_training: bool, front: list[_Choice]
) -> Iterator[_Placed]:
    """The subset as one group on each number of nodes that no split of it, and no smaller number, does as well."""
    jobs = tuple(job for job in range(len(parties)) if subset >> job & 1)
    members = [parties[job] for job in jobs]
    least, most = (tuple(of(one.num_nodes[pool] for one in members) for pool in (0, 1)) for of in (max, sum))
    found: list[tuple[int, int]] = []
    for training in range(least[1], (most[1] if scale_training else least[1]) + 1):
        for rollout in range(least[0], most[0] + 1):
            wanted = (rollout, training)
            known = [*found, *(choice.num_nodes for choice in front)]
            if not _holds(pools, wanted) or any(_is_within(one, wanted) for one in known):
                break
            arrangement = arrange(members, wanted, pools.usable_bytes)
            if arrangement is not None:
                found.append(wanted)
                yield _Placed(jobs, wanted, arrangement)
                break


def _parts_with_first(subset: int) -> Iterator[int]:
    """Proper parts of a subset that hold its first job."""
    first = subset & -subset
    others = subset ^ first
    part = (others - 1) & others
    while others:
        yield part | first
        if not part:
            return
        part = (part - 1) & others


def _pareto(choices: Iterable[_Choice]) -> list[_Choice]:
    """Those that no other beats in both pools; the first of equals."""
    front: list[_Choice] = []
    for one in sorted(choices, key=lambda choice: choice.num_nodes):
        if not any(_is_within(other.num_nodes, one.num_nodes) for other in front):
            front.append(one)
    return front


def _is_within(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] <= other[0] and one[1] <= other[1]


def _holds(pools: _Pools, num_nodes: tuple[int, int]) -> bool:
    return _is_within(num_nodes, (len(pools.nodes[0]), len(pools.nodes[1])))


def _usd(pools: _Pools, num_nodes: tuple[int, int]) -> float:
    return sum(number * usd for number, usd in zip(num_nodes, pools.usd_per_node, strict=True))


def _pools(cluster: Cluster) -> _Pools:
    nodes = tuple([node for node in cluster.nodes if node.pool is kind] for kind in PoolKind)
    usable = [{usable_host_bytes(cluster, node) for node in of} for of in nodes]
    for kind, of, sizes in zip(PoolKind, nodes, usable, strict=True):
        if len(sizes) != 1 or len({node.num_devices for node in of}) != 1:
            raise UsageError(f"the {kind} nodes differ or there are none: the optimum is searched over nodes all alike")
    prices = (cluster.rollout.usd_per_gpu_hour, cluster.training.usd_per_gpu_hour)
    return _Pools(
        (nodes[0], nodes[1]),
        (usable[0].pop(), usable[1].pop()),
        (prices[0] * nodes[0][0].num_devices, prices[1] * nodes[1][0].num_devices),
    )


def _party(cluster: Cluster, pools: _Pools, job: JobSpec) -> Party:
    if job.profile is None:
        raise UsageError(f"job {job.name} has no profile: give one, or leave it out of the optimum")
    if job.staleness:
        raise UsageError(f"job {job.name} has staleness {job.staleness}: the optimum is searched for synchronous jobs")
    asked = (job.rollout_gpus, job.training_gpus)
    whole = [divmod(gpus, nodes[0].num_devices) for gpus, nodes in zip(asked, pools.nodes, strict=True)]
    if any(rest for _, rest in whole):
        raise UsageError(f"job {job.name} asks for {asked} GPUs: the optimum is searched for whole nodes only")
    durations = planned_durations(job.profile)
    return Party(
        durations,
        switches_of(cluster, job.profile),
        allowed_us(job.slo, durations.solo_us),
        (whole[0][0], whole[1][0]),
        (job.host_memory.rollout_bytes, job.host_memory.training_bytes),
    )


def _plan(jobs: Sequence[JobSpec], parties: Sequence[Party], pools: _Pools, best: _Choice) -> Plan:
    free = [iter(nodes) for nodes in pools.nodes]
    groups: list[Group] = []
    pins: dict[str, Pin] = {}
    slowdowns: dict[str, float] = {}
    for placed in best.groups:
        owned = [[next(nodes) for _ in range(number)] for nodes, number in zip(free, placed.num_nodes, strict=True)]
        order = [placed.jobs[place] for place in placed.arrangement.order]
        members: list[Member] = []
        for job, *places in zip(order, placed.arrangement.rollout, placed.arrangement.training, strict=True):
            pin = Pin(*(_slots(nodes, chosen) for nodes, chosen in zip(owned, places, strict=True)))
            pins[jobs[job].name] = pin
            members.append(Member(jobs[job].name, pin, parties[job].durations, parties[job].switches))
        slowdowns |= {member.job: float(cycle_us(members) / member.solo_us) for member in members}
        names = [tuple(node.name for node in nodes) for nodes in owned]
        groups.append(Group(f"g{len(groups) + 1}", names[0], names[1], tuple(member.job for member in members)))
    return Plan(groups=tuple(groups), pins=pins, slowdowns=slowdowns, usd_per_hour=_usd(pools, best.num_nodes))


def _slots(nodes: list[Node], places: tuple[int, ...]) -> tuple[Slot, ...]:
    return tuple(Slot(nodes[place].name, device) for place in places for device in range(nodes[place].num_devices))
