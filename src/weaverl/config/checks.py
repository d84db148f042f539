"""What can be refused before anything runs: a job that never fits, a cluster that this machine is not."""

import os
import shutil
import subprocess
from collections.abc import Collection, Iterable

from weaverl.config.cluster_file import THIS_HOST
from weaverl.config.cpu_sets import format_cpus
from weaverl.domain.cluster import Cluster, Node, PoolKind, usable_host_bytes
from weaverl.domain.jobs import JobSpec, Placement
from weaverl.domain.units import GIB
from weaverl.errors import SpecError


def check_job_fits(job: JobSpec, cluster: Cluster) -> None:
    """Raise SpecError with the numbers if the job could not run even on the empty cluster."""
    for pool in PoolKind:
        _check_gpus(job, cluster, pool)
        _check_host_memory(job, cluster, pool)
    if job.placement is Placement.LOCAL:
        _check_one_host(job, cluster)


def check_local(cluster: Cluster, available: Collection[int] | None = None, gpus: int | None = None) -> None:
    """Raise SpecError if this machine cannot be the cluster: other hosts, or CPUs, GPUs or memory that it lacks.

    ``available`` are the CPUs to check against, ``gpus`` the number of GPUs; by default this process's own.
    """
    _check_memory(cluster)
    here = os.sched_getaffinity(0) if available is None else available
    for node in cluster.nodes:
        if node.host != THIS_HOST:
            problem = f"is on host {node.host}, and agents are started on this machine only"
            raise SpecError(f"{cluster.name}: node {node.name}: {problem}; leave out the key host, or the node")
        if node.accelerator == "cuda":
            _check_devices(cluster, node, num_gpus() if gpus is None else gpus)
        missing = [cpu for cpu in node.cpus if cpu not in here]
        if missing:
            problem = f"cpu {format_cpus(missing)} is not available on this machine: it has {format_cpus(here)}"
            raise SpecError(f"{cluster.name}: node {node.name}: {problem}; change the node's cpus")


def num_gpus() -> int:
    """CUDA devices of this machine, as its driver lists them."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return 0
    listed = subprocess.run([program, "-L"], capture_output=True, text=True, check=False)
    return sum(line.startswith("GPU ") for line in listed.stdout.splitlines())


def _check_devices(cluster: Cluster, node: Node, present: int) -> None:
    wanted = max(node.device_ids, default=node.num_devices - 1) + 1
    if wanted > present:
        problem = f"uses GPU {wanted - 1}, and this machine has {present} GPUs"
        raise SpecError(f"{cluster.name}: node {node.name}: {problem}; change device_ids, or accelerator to cpu")


def _check_memory(cluster: Cluster) -> None:
    asked = sum(node.host_memory_bytes for node in cluster.nodes)
    present = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if asked > present:
        problem = f"its nodes have {asked / 2**30:.1f} GiB of host memory together, this machine has"
        raise SpecError(f"{cluster.name}: {problem} {present / 2**30:.1f} GiB; lower host_memory")


def _check_gpus(job: JobSpec, cluster: Cluster, pool: PoolKind) -> None:
    available = _num_devices(_nodes_of(cluster, pool))
    asked = _gpus(job, pool)
    if asked > available:
        problem = f"asks for {asked} {pool} GPUs, the {pool} pool of {cluster.name} has {available}"
        raise SpecError(f"job {job.name}: {problem}: ask for fewer, or add nodes")


def _check_host_memory(job: JobSpec, cluster: Cluster, pool: PoolKind) -> None:
    nodes = _nodes_of(cluster, pool)
    asked = _host_bytes(job, pool)
    roomy = _num_devices(node for node in nodes if usable_host_bytes(cluster, node) >= asked)
    if roomy < _gpus(job, pool):
        largest = max(usable_host_bytes(cluster, node) for node in nodes)
        problem = (
            f"keeps {_exactly(asked)} on each {pool} node; {cluster.name} has {roomy} GPUs on nodes with as much "
            f"usable, of {_gpus(job, pool)} asked for, and its largest node has {_exactly(largest)}"
        )
        raise SpecError(f"job {job.name}: {problem}: ask for less host_memory.{pool}, or add larger nodes")


def _check_one_host(job: JobSpec, cluster: Cluster) -> None:
    if any(node.accelerator == "cuda" for node in cluster.nodes):
        problem = (
            f"has placement local, and on the cuda nodes of {cluster.name} state cannot follow a permit between GPUs"
        )
        raise SpecError(f"job {job.name}: {problem}: give it rollout and training roles")
    hosts = dict.fromkeys(node.host for node in cluster.nodes)
    if not any(_host_fits(job, cluster, host) for host in hosts):
        found = ", ".join(_describe_host(cluster, host) for host in hosts)
        problem = (
            f"has placement local and needs {job.rollout_gpus} rollout and {job.training_gpus} training GPUs "
            f"with room on one host, {cluster.name} has {found}"
        )
        raise SpecError(f"job {job.name}: {problem}: give one host nodes of both pools, or ask for less")


def _host_fits(job: JobSpec, cluster: Cluster, host: str) -> bool:
    return all(
        _num_devices(
            node
            for node in _nodes_of(cluster, pool)
            if node.host == host and usable_host_bytes(cluster, node) >= _host_bytes(job, pool)
        )
        >= _gpus(job, pool)
        for pool in PoolKind
    )


def _describe_host(cluster: Cluster, host: str) -> str:
    counts = (_num_devices(node for node in _nodes_of(cluster, pool) if node.host == host) for pool in PoolKind)
    return f"{'+'.join(map(str, counts))} on {host}"


def _nodes_of(cluster: Cluster, pool: PoolKind) -> tuple[Node, ...]:
    return tuple(node for node in cluster.nodes if node.pool is pool)


def _num_devices(nodes: Iterable[Node]) -> int:
    return sum(node.num_devices for node in nodes)


def _gpus(job: JobSpec, pool: PoolKind) -> int:
    return job.rollout_gpus if pool is PoolKind.ROLLOUT else job.training_gpus


def _host_bytes(job: JobSpec, pool: PoolKind) -> int:
    return job.host_memory.rollout_bytes if pool is PoolKind.ROLLOUT else job.host_memory.training_bytes


def _exactly(size: int) -> str:
    return f"{size / GIB:,.2f} GiB ({size:,} bytes)"
