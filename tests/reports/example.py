"""A made-up demo: two jobs alone and woven, greedily, with the durations that a small real run would have."""

import random

from weaverl.domain.cluster import Cluster, Node, Pool, PoolKind, Slot
from weaverl.domain.jobs import HostMemory, PhaseKind
from weaverl.domain.timeline import Interval, Timeline
from weaverl.reports.demo import DemoJob, DemoReport
from weaverl.reports.timeline_file import AttemptPin, TimelineHeader, TimelineJob, in_order

GIB = 2**30
SECOND = 1_000_000
POOL_OF = {PhaseKind.ROLLOUT: PoolKind.ROLLOUT, PhaseKind.TRAINING: PoolKind.TRAINING}


def cluster(num_devices: int = 2) -> Cluster:
    def node(name: str, pool: PoolKind) -> Node:
        return Node(
            name=name,
            pool=pool,
            host="here",
            num_devices=num_devices,
            device_memory_bytes=4 * GIB,
            host_memory_bytes=100 * GIB,
        )

    return Cluster(
        name="example",
        rollout=Pool(kind=PoolKind.ROLLOUT, gpu="H20", usd_per_gpu_hour=1.85),
        training=Pool(kind=PoolKind.TRAINING, gpu="H800", usd_per_gpu_hour=5.28),
        nodes=(node("r0", PoolKind.ROLLOUT), node("t0", PoolKind.TRAINING)),
    )


def slots_of(of: Cluster, pool: PoolKind) -> tuple[Slot, ...]:
    return tuple(Slot(node.name, d) for node in of.nodes if node.pool is pool for d in range(node.num_devices))


def job_header(of: Cluster, name: str, iterations: int, slo: float = 1.3) -> TimelineJob:
    rollout, training = slots_of(of, PoolKind.ROLLOUT), slots_of(of, PoolKind.TRAINING)
    return TimelineJob(
        name=name,
        slo=slo,
        rollout_gpus=len(rollout),
        training_gpus=len(training),
        host_memory=HostMemory(rollout_bytes=20 * GIB, training_bytes=30 * GIB),
        iterations=iterations,
        pins=(AttemptPin(attempt=1, rollout=rollout, training=training),),
    )


def header(of: Cluster, names: tuple[str, ...], iterations: int) -> TimelineHeader:
    return TimelineHeader(cluster=of, jobs=tuple(job_header(of, name, iterations) for name in names))


def draw(
    of: Cluster, jobs: dict[str, tuple[float, float]], iterations: int, stretch: float = 1.0, switch: float = 0.25
) -> Timeline:
    """Run jobs (mean rollout and training seconds) greedily; each pool serves one permit at a time."""
    chance = random.Random(7)
    lengths = {
        (name, number): (rollout * chance.uniform(0.85, 1.15), training * chance.uniform(0.95, 1.05))
        for name, (rollout, training) in sorted(jobs.items())
        for number in range(iterations)
    }
    pools = {pool: [0, ""] for pool in PoolKind}
    ready = {name: place * 1000 for place, name in enumerate(jobs)}
    done = dict.fromkeys(jobs, 0)
    found: list[Interval] = []
    counter = 0

    def run(name: str, phase: PhaseKind, number: int, at: int, seconds: float) -> Interval:
        nonlocal counter
        counter += 1
        free, holder = pools[POOL_OF[phase]]
        granted = max(at, int(free) + 2000)
        restore = round(switch * SECOND) if holder != name else 20_000
        save = round(switch * 0.6 * SECOND) if len(jobs) > 1 else 0
        started = granted + restore
        ended = started + round(seconds * stretch * SECOND)
        pools[POOL_OF[phase]] = [ended + save, name]
        return Interval(
            job=name,
            attempt=1,
            phase=phase,
            iteration=number,
            slots=slots_of(of, POOL_OF[phase]),
            requested_at=at,
            granted_at=granted,
            started_at=started,
            ended_at=ended,
            released_at=ended + save,
            token=f"1.{counter}",
            restored_bytes=GIB if holder not in ("", name) else 0,
            saved_bytes=GIB if save else 0,
            restore_us=restore,
            save_us=save,
            tokens=4096 if phase is PhaseKind.ROLLOUT else 0,
            samples=64,
        )

    while any(done[name] < iterations for name in jobs):
        name = min((name for name in jobs if done[name] < iterations), key=lambda name: ready[name])
        number = done[name]
        rollout_seconds, training_seconds = lengths[name, number]
        rollout = run(name, PhaseKind.ROLLOUT, number, ready[name], rollout_seconds)
        training = run(name, PhaseKind.TRAINING, number, rollout.released_at + 30_000, training_seconds)
        start, end = training.released_at + 5_000, training.released_at + 300_000
        sync = Interval(
            job=name,
            attempt=1,
            phase=PhaseKind.SYNC,
            iteration=number,
            slots=(),
            requested_at=start,
            granted_at=start,
            started_at=start,
            ended_at=end,
            released_at=end,
            moved_bytes=90 * 2**20,
        )
        found += [rollout, training, sync]
        ready[name] = end + 60_000
        done[name] += 1
    return in_order(found)


def example_report(iterations: int = 8, num_devices: int = 2) -> DemoReport:
    of = cluster(num_devices)
    jobs = {"arithmetic <a&b>": (3.9, 2.6), "sorting": (3.1, 3.4)}
    chance = random.Random(3)
    rewards = {
        name: tuple(0.9 - 0.75 * 0.75**i + chance.uniform(-0.04, 0.04) for i in range(iterations)) for name in jobs
    }
    return DemoReport(
        cluster=of,
        jobs=tuple(
            DemoJob(
                name=name,
                slo=1.3,
                solo=draw(of, {name: lengths}, iterations),
                rewards_solo=rewards[name],
                rewards_woven=rewards[name],
            )
            for name, lengths in jobs.items()
        ),
        woven=draw(of, jobs, iterations, stretch=1.04),
        predicted_ratio=1.62,
        schedule_efficiency=0.94,
        bit_equal=True,
        parameters={"model": "tiny-gpt2 (2 layers)", "iterations": iterations, "seed": 7, "group size": 8},
        machine={"host": "laptop", "CPUs": 8, "accelerator": "cpu", "torch": "2.6.0", "Python": "3.11.9"},
    )
