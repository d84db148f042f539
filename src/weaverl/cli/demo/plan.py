"""What the demo runs: jobs by preset, on a cluster made of this machine's first two CPUs or GPUs."""

import importlib.resources
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from weaverl.config.checks import num_gpus
from weaverl.config.cluster_file import load_cluster
from weaverl.config.job_file import load_job
from weaverl.domain.cluster import Cluster
from weaverl.domain.jobs import JobSpec, PhaseProfile, Role
from weaverl.errors import ClusterError


class DemoJobPlan(msgspec.Struct, frozen=True):
    """One job: its preset of the GRPO example, its seed, its promise."""

    name: str
    preset: str
    seed: int
    slo: float


class DemoPlan(msgspec.Struct, frozen=True):
    """One demo."""

    jobs: tuple[DemoJobPlan, ...]
    iterations: int
    cluster: Cluster
    examples: Path
    out: Path

    @classmethod
    def of(cls, *, mix: bool, num_jobs: int, iterations: int, tiny: bool, out: Path) -> "DemoPlan":
        """The demo that the command line asks for."""
        presets = ["rollout_heavy", "training_heavy"] if mix or num_jobs == 3 else ["balanced", "balanced"]
        slos = [1.6, 1.6]
        if num_jobs == 3:
            # The small one goes in between: two long ones first would leave no bubble to admit it into.
            presets.insert(1, "small")
            slos.insert(1, 3.0)
        if tiny:
            presets = ["tiny"] * num_jobs
            slos = [9.0] * num_jobs
        jobs = tuple(
            DemoJobPlan(f"grpo-{chr(ord('a') + seed)}", preset, seed, slo)
            for seed, (preset, slo) in enumerate(zip(presets, slos, strict=True))
        )
        examples = example_folder()
        cluster = cluster_of_this_machine(examples, num_gpus(), sorted(os.sched_getaffinity(0)))
        return cls(jobs, iterations, cluster, examples, out)

    def spec(self, job: DemoJobPlan, run: str, profile: PhaseProfile | None) -> JobSpec:
        """The example's job file with this job's arguments."""
        base = load_job(self.examples / "grpo" / "job.yaml")
        return msgspec.structs.replace(
            base,
            name=job.name,
            slo=job.slo,
            profile=profile,
            iterations=self.iterations,
            roles=tuple(self._with_arguments(role, job, run) for role in base.roles),
        )

    def arguments(self, job: DemoJobPlan, run: str) -> tuple[str, ...]:
        """Arguments of the example's scripts for a job in a run."""
        device = "cuda" if self.cluster.nodes[0].accelerator == "cuda" else "cpu"
        return (
            *("--preset", job.preset, "--seed", str(job.seed), "--iterations", str(self.iterations)),
            *("--device", device, "--out", str(self.result_folder(job, run))),
        )

    def result_folder(self, job: DemoJobPlan, run: str) -> Path:
        """Where a job writes its result in a run."""
        return self.out / run / job.name

    def _with_arguments(self, role: Role, job: DemoJobPlan, run: str) -> Role:
        return msgspec.structs.replace(role, command=("python", "woven.py", *self.arguments(job, run)))


def example_folder() -> Path:
    """The examples: beside the package when installed, in the repository otherwise."""
    packaged = Path(str(importlib.resources.files("weaverl"))) / "examples"
    if packaged.is_dir():
        return packaged
    repository = Path(__file__).parents[4] / "examples"
    if repository.is_dir():
        return repository
    raise ClusterError("the examples are not installed: reinstall weaverl, or run the demo from its repository")


def cluster_of_this_machine(examples: Path, num_gpus: int, cpus: Sequence[int]) -> Cluster:
    """The laptop's two nodes on this machine's devices.

    Two GPUs where there are two; one GPU is presented as two nodes, which then disturb each other; else two CPU cores.
    """
    cluster = load_cluster(examples / "clusters" / "laptop.yaml")
    if num_gpus:
        devices = [(0,), (min(1, num_gpus - 1),)]
        nodes = tuple(
            msgspec.structs.replace(node, accelerator="cuda", cpus=(), device_ids=ids)
            for node, ids in zip(cluster.nodes, devices, strict=True)
        )
        return msgspec.structs.replace(cluster, nodes=nodes)
    if len(cpus) < 2:
        raise ClusterError("the demo needs two CPU cores, one for each pool; this process may use one")
    pinned = zip(cluster.nodes, cpus, strict=False)
    nodes = tuple(msgspec.structs.replace(node, cpus=(cpu,)) for node, cpu in pinned)
    return msgspec.structs.replace(cluster, nodes=nodes)
