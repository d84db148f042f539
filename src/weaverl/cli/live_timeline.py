"""Timelines with their headers: from a cluster's log, and from what observe mode wrote."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from weaverl.channel.store import Store
from weaverl.control.recovery import read_facts
from weaverl.control.timeline import pins_of, timeline_of
from weaverl.domain.cluster import Cluster, Node, Pool, PoolKind, Slot
from weaverl.domain.events import JobSubmitted
from weaverl.domain.facts import Fact
from weaverl.domain.jobs import HostMemory, JobSpec, PhaseKind
from weaverl.domain.timeline import Interval, Timeline
from weaverl.errors import UsageError
from weaverl.reports.timeline_file import TimelineFile, TimelineHeader, TimelineJob, in_order, timeline_job
from weaverl.runtime.observe import ObservedPhase


def live_timeline(store: Store, cluster: Cluster) -> tuple[TimelineHeader, Timeline]:
    """The whole log of a cluster as a timeline."""
    facts = list(read_facts(store))
    return TimelineHeader(cluster=cluster, jobs=header_jobs(facts)), timeline_of(facts)


def header_jobs(facts: Sequence[Fact]) -> tuple[TimelineJob, ...]:
    """The jobs that a log speaks of, with the pins of their attempts."""
    pins = pins_of(facts)
    specs: dict[str, JobSpec] = {}
    for fact in facts:
        if isinstance(fact.event, JobSubmitted) and fact.event.spec.name in pins:
            specs[fact.event.spec.name] = fact.event.spec
    return tuple(timeline_job(spec, [pin for _, pin in sorted(pins[name].items())]) for name, spec in specs.items())


def observed_timeline(directory: Path) -> TimelineFile:
    """Phases of observe mode, each job on one stand-in node a pool."""
    phases: list[ObservedPhase] = []
    for path in sorted(directory.glob("*.jsonl")):
        for line in path.read_bytes().splitlines(keepends=True):
            if line.endswith(b"\n"):
                phases.append(msgspec.json.decode(line, type=ObservedPhase))
    if not phases:
        raise UsageError(f"{directory} holds no phases of observe mode: run a job with WEAVERL_MODE=observe first")
    jobs = list(dict.fromkeys(phase.job for phase in phases))
    nodes = tuple(_stand_in(job, pool) for job in jobs for pool in PoolKind)
    cluster = Cluster(
        name="observed",
        rollout=Pool(kind=PoolKind.ROLLOUT, gpu="rollout", usd_per_gpu_hour=0.0),
        training=Pool(kind=PoolKind.TRAINING, gpu="training", usd_per_gpu_hour=0.0),
        nodes=nodes,
    )
    header = TimelineHeader(cluster=cluster, jobs=tuple(_observed_job(job) for job in jobs))
    return TimelineFile(header=header, timeline=in_order(_interval(phase) for phase in phases))


def _interval(phase: ObservedPhase) -> Interval:
    pool = phase.phase if phase.phase in (PhaseKind.ROLLOUT, PhaseKind.TRAINING) else None
    return Interval(
        job=phase.job,
        attempt=1,
        phase=phase.phase,
        iteration=phase.iteration,
        slots=(Slot(f"{phase.job}-{pool}", 0),) if pool else (),
        requested_at=phase.started_at,
        granted_at=phase.started_at,
        started_at=phase.started_at,
        ended_at=phase.started_at + phase.body_us,
        released_at=phase.started_at + phase.body_us,
        tokens=phase.tokens,
        samples=phase.samples,
        moved_bytes=phase.moved_bytes,
    )


def _stand_in(job: str, pool: PoolKind) -> Node:
    return Node(
        name=f"{job}-{pool}",
        pool=pool,
        host="observed",
        num_devices=1,
        device_memory_bytes=0,
        host_memory_bytes=0,
    )


def _observed_job(name: str) -> TimelineJob:
    return TimelineJob(
        name=name, slo=1.0, rollout_gpus=1, training_gpus=1, host_memory=HostMemory(rollout_bytes=0, training_bytes=0)
    )
