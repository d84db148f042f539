"""Figures of a run, computed from its intervals alone: pure functions, defined as in section 2 of the design.

Times come in as microseconds and leave as seconds.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from weaverl.domain.cluster import Cluster, Pool, PoolKind, Slot
from weaverl.domain.jobs import PhaseKind
from weaverl.domain.timeline import Interval, NodeSpan, Timeline
from weaverl.domain.units import GIB
from weaverl.reports.iterations import (
    SECOND,
    Span,
    iteration_times,
    ratio,
    slowdown,
    solo_seconds,
    union_length,
    worst_window,
)
from weaverl.reports.timeline_file import TimelineFile, jobs_ahead

MIB = 2**20
USEFUL = frozenset({PhaseKind.ROLLOUT, PhaseKind.TRAINING})


class JobFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One job in one run. What needs a solo run to compare with, or an iteration, is None without.

    ``moves``: attempts that were ended at the end of an iteration, so that the job goes on elsewhere, or later.
    """

    name: str
    iterations: int
    wall_seconds: float
    solo_seconds: float
    slowdown: float | None
    worst_window: float | None
    rollout_seconds: float
    training_seconds: float
    sync_seconds: float
    other_seconds: float
    wait_seconds: float
    switch_seconds: float
    interference_rollout: float | None
    interference_training: float | None
    moved_gib: float
    sync_mib: float
    attempts: int = 1
    moves: int = 0


class PoolFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One pool over one run, or over several one after the other.

    ``busy_seconds`` are device-seconds inside phase bodies, overlaps counted once; ``summed_body_seconds`` is the
    plain sum, larger only if a device was shared at one moment. ``bubble`` is None if nothing was provisioned.
    """

    pool: PoolKind
    gpu: str
    num_devices: int
    provisioned_seconds: float
    busy_seconds: float
    summed_body_seconds: float
    bubble: float | None
    usd: float


class RunFigures(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run: ``seconds`` from the first grant to the last end."""

    seconds: float
    usd: float
    handovers: int
    moved_gib: float
    sync_mib: float
    pools: tuple[PoolFigures, ...]
    jobs: tuple[JobFigures, ...]


def run_figures(
    cluster: Cluster,
    timeline: Timeline,
    jobs: Sequence[str] = (),
    solo: Mapping[str, Timeline] | None = None,
    ahead: Collection[str] = (),
    spans: Sequence[NodeSpan] = (),
) -> RunFigures:
    """All figures of a run.

    ``jobs`` gives order; ``solo`` maps a job to its run alone, for interference; ``ahead``: those whose rollouts run
    beside training; ``spans``: when nodes were paid for, if not throughout.
    """
    intervals = timeline.intervals
    names = tuple(dict.fromkeys((*jobs, *(interval.job for interval in intervals))))
    by_job = _by_job(intervals)
    pools = pool_figures(cluster, (timeline,), spans)
    return RunFigures(
        seconds=makespan(timeline),
        usd=sum(pool.usd for pool in pools),
        handovers=handovers(intervals),
        moved_gib=moved_gib(intervals),
        sync_mib=sync_mib(intervals),
        pools=pools,
        jobs=tuple(job_figures(name, by_job[name], (solo or {}).get(name), ahead=name in ahead) for name in names),
    )


def file_figures(file: TimelineFile) -> RunFigures:
    """All figures of the run of a timeline file."""
    header, pins = file.header, {job.name: job.pins for job in file.header.jobs}
    figures = run_figures(header.cluster, file.timeline, tuple(pins), ahead=jobs_ahead(header.jobs), spans=file.spans)
    moves = {name: sum(pin.moved for pin in of_job) for name, of_job in pins.items()}
    jobs = tuple(msgspec.structs.replace(job, moves=moves.get(job.name, 0)) for job in figures.jobs)
    return msgspec.structs.replace(figures, jobs=jobs)


def window(timeline: Timeline) -> Span:
    """First grant after the cold starts and last end, microseconds; ``(0, 0)`` if nothing ran."""
    warm = _warm(timeline.intervals)
    if not warm:
        return (0, 0)
    start = min(min(interval.granted_at, interval.started_at) for interval in warm)
    return (start, max(start, max(interval.ended_at for interval in warm)))


def _warm(intervals: Iterable[Interval]) -> list[Interval]:
    """Intervals other than cold starts."""
    return [interval for interval in intervals if interval.phase is not PhaseKind.LOADING]


def makespan(timeline: Timeline) -> float:
    """Seconds from the first grant of a rollout or training to the last end of a phase body."""
    start, end = window(timeline)
    return (end - start) / SECOND


def throughput_ratio(solo: Iterable[Timeline], woven: Timeline) -> float | None:
    """Seconds of the solo runs one after the other, over those of the woven run; None if it is empty."""
    return ratio(sum(makespan(timeline) for timeline in solo), makespan(woven))


def pool_figures(
    cluster: Cluster, timelines: Sequence[Timeline], spans: Sequence[NodeSpan] = ()
) -> tuple[PoolFigures, ...]:
    """Both pools over runs that came one after the other on the same nodes.

    Every device of the cluster is provisioned throughout, used or not; one that it does not know counts if used. Where
    ``spans`` say when nodes were taken and given back, so long.
    """
    seconds = sum(makespan(timeline) for timeline in timelines)
    bodies = [_bodies(timeline.intervals) for timeline in timelines]
    pools = {node.name: node.pool for node in cluster.nodes}
    used = {slot: pools.get(slot.node, phase_pool) for run in bodies for slot, (phase_pool, _) in run.items()}
    known = {Slot(node.name, device): node.pool for node in cluster.nodes for device in range(node.num_devices)}
    slots = known | used
    in_pool = {kind: [slot for slot in slots if slots[slot] is kind] for kind in PoolKind}
    if spans:
        provisioned = _spanned_seconds(cluster, spans)
    else:
        provisioned = {kind: seconds * len(in_pool[kind]) for kind in PoolKind}
    return tuple(
        _pool(pool, in_pool[pool.kind], provisioned[pool.kind], bodies) for pool in (cluster.rollout, cluster.training)
    )


def _spanned_seconds(cluster: Cluster, spans: Iterable[NodeSpan]) -> dict[PoolKind, float]:
    """Device-seconds of each pool for which nodes were taken."""
    nodes = {node.name: node for node in cluster.nodes}
    found = dict.fromkeys(PoolKind, 0)
    for span in spans:
        if span.node in nodes:
            node = nodes[span.node]
            found[node.pool] += node.num_devices * (span.given_back_at - span.taken_at)
    return {pool: device_us / SECOND for pool, device_us in found.items()}


def interference(woven: Iterable[Interval], solo: Iterable[Interval], phase: PhaseKind) -> float | None:
    """Seconds per unit of work, woven over solo: a token or sample where all report it, else an iteration."""
    shared = [interval for interval in woven if interval.phase is phase]
    alone = [interval for interval in solo if interval.phase is phase]
    if not shared or not alone:
        return None
    unit = _work_unit((*shared, *alone))
    return ratio(_seconds_per_work(shared, unit), _seconds_per_work(alone, unit))


def handovers(intervals: Iterable[Interval]) -> int:
    """How often a slot's next permit went to another job than its last, cold starts left out."""
    last: dict[Slot, str] = {}
    count = 0
    for interval in sorted(_warm(intervals), key=lambda interval: interval.granted_at):
        for slot in interval.slots:
            count += last.get(slot, interval.job) != interval.job
            last[slot] = interval.job
    return count


def moved_gib(intervals: Iterable[Interval]) -> float:
    """State moved off its slots to make room, GiB, cold starts left out.

    A hand-over moves one job's state off and brings another's on; the way off is counted.
    """
    return sum(interval.saved_bytes for interval in _warm(intervals)) / GIB


def sync_mib(intervals: Iterable[Interval]) -> float:
    """Weights moved by syncs, MiB."""
    return sum(interval.moved_bytes for interval in intervals if interval.phase is PhaseKind.SYNC) / MIB


def job_figures(
    name: str, intervals: Sequence[Interval], solo: Timeline | None = None, *, ahead: bool = False
) -> JobFigures:
    """Figures of one job from its own intervals; ``solo`` is its run alone."""
    times = iteration_times(intervals, ahead=ahead)
    alone = [interval for interval in solo.intervals if interval.job == name] if solo else []
    rollout = interference(intervals, alone, PhaseKind.ROLLOUT)
    training = interference(intervals, alone, PhaseKind.TRAINING)
    warm = _warm(intervals)
    # Without a solo run, or without a phase in it, there is nothing to correct for.
    factors = (rollout or 1.0, training or 1.0)
    return JobFigures(
        name=name,
        iterations=len(times),
        wall_seconds=sum(time.wall_seconds for time in times),
        solo_seconds=sum(solo_seconds(time, *factors) for time in times),
        slowdown=slowdown(times, *factors),
        worst_window=worst_window(times, *factors),
        rollout_seconds=sum(time.rollout_seconds for time in times),
        training_seconds=sum(time.training_seconds for time in times),
        sync_seconds=sum(time.sync_seconds for time in times),
        other_seconds=sum(time.other_seconds for time in times),
        wait_seconds=sum(interval.granted_at - interval.requested_at for interval in warm) / SECOND,
        switch_seconds=sum(_switch(interval) for interval in warm) / SECOND,
        interference_rollout=rollout,
        interference_training=training,
        moved_gib=moved_gib(intervals),
        sync_mib=sync_mib(intervals),
        attempts=len({interval.attempt for interval in intervals}),
    )


def _by_job(intervals: Iterable[Interval]) -> dict[str, list[Interval]]:
    found: dict[str, list[Interval]] = defaultdict(list)
    for interval in intervals:
        found[interval.job].append(interval)
    return found


def _switch(interval: Interval) -> int:
    """Microseconds that slots were held outside of the body."""
    if not interval.slots:
        return 0
    return interval.started_at - interval.granted_at + interval.released_at - interval.ended_at


def _bodies(intervals: Iterable[Interval]) -> dict[Slot, tuple[PoolKind, list[Span]]]:
    """Bodies of useful phases on each slot, with the pool that the first of them belongs to."""
    found: dict[Slot, tuple[PoolKind, list[Span]]] = {}
    for interval in intervals:
        if interval.phase not in USEFUL:
            continue
        pool = PoolKind.ROLLOUT if interval.phase is PhaseKind.ROLLOUT else PoolKind.TRAINING
        for slot in interval.slots:
            found.setdefault(slot, (pool, []))[1].append((interval.started_at, interval.ended_at))
    return found


def _pool(
    pool: Pool, slots: list[Slot], provisioned: float, bodies: list[dict[Slot, tuple[PoolKind, list[Span]]]]
) -> PoolFigures:
    spans = [run[slot][1] for run in bodies for slot in slots if slot in run]
    busy = sum(union_length(of_slot) for of_slot in spans) / SECOND
    return PoolFigures(
        pool=pool.kind,
        gpu=pool.gpu,
        num_devices=len(slots),
        provisioned_seconds=provisioned,
        busy_seconds=busy,
        summed_body_seconds=sum(end - start for of_slot in spans for start, end in of_slot) / SECOND,
        bubble=1 - busy / provisioned if provisioned > 0 else None,
        usd=provisioned / 3600 * pool.usd_per_gpu_hour,
    )


def _work_unit(intervals: Sequence[Interval]) -> str:
    for unit in ("tokens", "samples"):
        if all(getattr(interval, unit) > 0 for interval in intervals):
            return unit
    return "iterations"


def _seconds_per_work(intervals: Sequence[Interval], unit: str) -> float:
    seconds = sum(interval.ended_at - interval.started_at for interval in intervals) / SECOND
    if unit == "iterations":
        return seconds / len({(interval.attempt, interval.iteration) for interval in intervals})
    return seconds / float(sum(getattr(interval, unit) for interval in intervals))
