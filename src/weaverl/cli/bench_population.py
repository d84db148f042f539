"""Jobs for `weaverl bench decision`: groups of two and three that real admissions fill, and arrivals of three kinds.

Every fourth group is a rollout-heavy trio on one training node, every fourth has a job with two rollout nodes, the rest
are complementary pairs. A group's jobs fit into no other's host memory, so the state is the same however the search is
done; what a full group has left holds a small job.
"""

from collections.abc import Iterator
from random import Random

from weaverl.domain.cluster import Cluster, Node, Pool, PoolKind, SwitchCost
from weaverl.domain.jobs import HostMemory, JobSpec, PhaseProfile, Role
from weaverl.domain.units import GIB

_DEVICES = 8
_WIDE, _TRIO = 2, 3
_LARGE, _SMALL = 780, 150
"""GiB of host memory on a rollout node: two large jobs do not fit, a large one, its partner and a small one do."""

_ROLES = (Role(name="run", command=("simulated",)),)


def running_jobs(num_jobs: int) -> Iterator[JobSpec]:
    """Two or more jobs in the order in which they arrive, in whole groups."""
    random = Random(0)
    made = 0
    while made < num_jobs:
        left = num_jobs - made
        kind = random.randrange(4)
        if left < 5:
            kind = _TRIO if left == 3 else 0
        group = _group(made, kind, random)
        yield from group
        made += len(group)


def cluster_for(jobs: list[JobSpec]) -> Cluster:
    """The cluster whose nodes the jobs fill, none left over: a trio opens a rollout node for each of its jobs."""
    numbers = [sum(_opens(spec)[place] for spec in jobs) for place in range(2)]
    nodes = [_node(pool, place) for pool, number in zip(PoolKind, numbers, strict=True) for place in range(number)]
    return Cluster(
        name="bench",
        rollout=Pool(kind=PoolKind.ROLLOUT, gpu="H20", usd_per_gpu_hour=1.85),
        training=Pool(kind=PoolKind.TRAINING, gpu="H800", usd_per_gpu_hour=5.28),
        nodes=tuple(nodes),
        switch=SwitchCost(rollout_seconds=1.0, training_seconds=4.5),
    )


def nodes_for(jobs: list[JobSpec], cluster: Cluster) -> Iterator[list[Node]]:
    """For each job the nodes that it opens."""
    left = [iter([node for node in cluster.nodes if node.pool is pool]) for pool in PoolKind]
    for spec in jobs:
        yield [next(nodes) for nodes, number in zip(left, _opens(spec), strict=True) for _ in range(number)]


def too_large(number: int) -> JobSpec:
    """More host memory than any group has left, though an empty node would hold it."""
    random = Random(number)
    return _job(
        f"too-large-{number}", (random.uniform(50, 90), random.uniform(20, 40)), slo=2.0, host_gib=(_SMALL, 150)
    )


def too_hasty(number: int, least_slo: float = 1.215) -> JobSpec:
    """Fits into every group's host memory and by every bound, but not into its round.

    It has free time of its own, so that no node would be too busy; but the order of turns lets it in too late.
    """
    random = Random(number)
    rollout, training = random.uniform(30, 36), random.uniform(35, 45)
    other = 273 - rollout - training
    slo = random.uniform(least_slo, least_slo + 0.01)
    return _job(f"too-hasty-{number}", (rollout, training), slo=slo, host_gib=(_SMALL, 40), other_seconds=other)


def welcome(number: int) -> JobSpec:
    """Short phases and a slow environment: it fits into every group's bubbles."""
    random = Random(number)
    times = (random.uniform(2, 3), random.uniform(2, 3))
    return _job(f"welcome-{number}", times, slo=2.5, host_gib=(_SMALL, 40), other_seconds=random.uniform(200, 280))


def _opens(spec: JobSpec) -> tuple[int, int]:
    """How many rollout and training nodes a running job needs that are not its group's yet."""
    return 0 if spec.tenant == "joins" else spec.rollout_gpus // _DEVICES, int(spec.tenant == "opens both")


def _group(first: int, kind: int, random: Random) -> list[JobSpec]:
    """The jobs of one group, named by their number."""
    rollout, training = random.uniform(205, 225), random.uniform(90, 100)
    names = [f"job-{first + place}" for place in range(3)]
    if kind == _TRIO:
        sizes = ("opens both", "opens rollout", "opens rollout")
        return [
            _job(
                name,
                (rollout * random.uniform(1.45, 1.5), training * 0.5),
                slo=1.2,
                host_gib=(_LARGE, 430),
                tenant=tenant,
            )
            for name, tenant in zip(names, sizes, strict=True)
        ]
    gpus = (2 * _DEVICES, _DEVICES) if kind == _WIDE else (_DEVICES, _DEVICES)
    first_job = _job(names[0], (rollout, training), slo=1.5, host_gib=(_LARGE, 720), gpus=gpus, tenant="opens both")
    other = (training * random.uniform(0.75, 0.85), rollout * random.uniform(0.75, 0.85))
    return [first_job, _job(names[1], other, slo=1.8, host_gib=(450, 600), tenant="joins")]


def _job(
    name: str,
    times: tuple[float, float],
    *,
    slo: float,
    host_gib: tuple[int, int],
    gpus: tuple[int, int] = (_DEVICES, _DEVICES),
    tenant: str = "default",
    other_seconds: float = 0.0,
) -> JobSpec:
    profile = PhaseProfile(
        rollout_max_seconds=times[0],
        rollout_mean_seconds=times[0] * 0.8,
        training_seconds=times[1],
        sync_seconds=12.0,
        other_seconds=other_seconds,
    )
    return JobSpec(
        name=name,
        roles=_ROLES,
        rollout_gpus=gpus[0],
        training_gpus=gpus[1],
        host_memory=HostMemory(rollout_bytes=host_gib[0] * GIB, training_bytes=host_gib[1] * GIB),
        slo=slo,
        profile=profile,
        tenant=tenant,
        iterations=1000,
    )


def _node(pool: PoolKind, place: int) -> Node:
    name = f"{pool}-{place:06}"
    return Node(
        name=name,
        pool=pool,
        host=name,
        num_devices=_DEVICES,
        device_memory_bytes=96 * GIB,
        host_memory_bytes=1536 * GIB,
    )
