"""What observe mode wrote: read as a timeline, and summed up as the profile that a job file wants."""

import math
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from statistics import fmean, pstdev
from typing import NamedTuple

import msgspec

from weaverl.config.units import format_seconds
from weaverl.domain.cluster import Cluster, Node, Pool, PoolKind, Slot
from weaverl.domain.jobs import HostMemory, PhaseKind, PhaseProfile
from weaverl.domain.timeline import Interval
from weaverl.errors import UsageError
from weaverl.reports.timeline_file import TimelineFile, TimelineHeader, TimelineJob, in_order, shown, without_torn_tail
from weaverl.runtime.observe import ObservedPhase

_MICROSECOND = 1_000_000


def observed_timeline(directory: Path) -> TimelineFile:
    """Phases of observe mode, each job on one stand-in node a pool, with a device for each rank.

    Nothing was promised and nothing has a price: the SLO is infinite and dollars are 0, and reports leave both out.

    A job that was run several times has as many attempts. Half a line at the end of a file, of a process that died
    while it wrote, is skipped and counted.

    Raises:
        UsageError: there are no phases, or a line is damaged (with its number).
    """
    processes, torn_bytes = _read(directory)
    phases = [phase for process in processes for phase in process]
    if not phases:
        raise UsageError(f"{directory} holds no phases of observe mode: run a job with WEAVERL_MODE=observe first")
    jobs = list(dict.fromkeys(phase.job for phase in phases))
    cluster = Cluster(
        name="observed",
        rollout=Pool(kind=PoolKind.ROLLOUT, gpu="device", usd_per_gpu_hour=0.0),
        training=Pool(kind=PoolKind.TRAINING, gpu="device", usd_per_gpu_hour=0.0),
        nodes=tuple(_stand_in(job, pool, phases) for job in jobs for pool in PoolKind),
    )
    header = TimelineHeader(cluster=cluster, jobs=tuple(_observed_job(job) for job in jobs))
    intervals = [_interval(attempt, ranks) for attempt, ranks in _by_phase(processes)]
    return TimelineFile(header=header, timeline=in_order(intervals), torn_bytes=torn_bytes)


def observed_profiles(file: TimelineFile) -> dict[str, PhaseProfile]:
    """The profile of each job that ran a whole iteration, from its last attempt.

    The first iteration warms up and is left out if there are others, as profiles are of warm nodes.
    """
    profiles = {}
    for job in file.header.jobs:
        own = [interval for interval in file.timeline.intervals if interval.job == job.name]
        last = max(interval.attempt for interval in own)
        iterations = _iterations([interval for interval in own if interval.attempt == last])
        if iterations:
            profiles[job.name] = _profile(iterations[1:] or iterations)
    return profiles


def profile_block(profile: PhaseProfile, note: str = "the longest seen; more if no response met its cap") -> str:
    """A profile as a job file has it; ``note`` says where the rollout at the cap is from."""
    lines = {
        "rollout_max": f"{_seconds(profile.rollout_max_seconds)}  # {note}",
        "rollout_mean": _seconds(profile.rollout_mean_seconds),
        "rollout_cv": f"{profile.rollout_cv:.3f}",
        "training": _seconds(profile.training_seconds),
        "sync": _seconds(profile.sync_seconds),
        "other": _seconds(profile.other_seconds),
    }
    own = {"rollout_switch": profile.rollout_switch_seconds, "training_switch": profile.training_switch_seconds}
    lines |= {key: _seconds(seconds) for key, seconds in own.items() if seconds is not None}
    return "\n".join(["profile:", *(f"  {key}: {value}" for key, value in lines.items())])


class _Iteration(NamedTuple):
    """Microseconds of one iteration; ``other`` is not known of the last."""

    rollout: int
    training: int
    sync: int
    other: int | None


def _read(directory: Path) -> tuple[list[list[ObservedPhase]], int]:
    """The phases of each process, earliest process first, and the bytes of half lines."""
    decoder = msgspec.json.Decoder(ObservedPhase)
    processes, torn = [], 0
    for path in sorted(directory.glob("*.jsonl")):
        whole, torn_bytes = without_torn_tail(path.read_bytes())
        lines = enumerate(whole.removesuffix(b"\n").split(b"\n") if whole else [], start=1)
        processes.append([_phase(path, number, line, decoder) for number, line in lines])
        torn += torn_bytes
    return sorted(filter(None, processes), key=lambda phases: phases[0].started_at), torn


def _phase(path: Path, number: int, line: bytes, decoder: msgspec.json.Decoder[ObservedPhase]) -> ObservedPhase:
    try:
        return decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path}, line {number}: not an observed phase ({error}): {shown(line)}; remove that line"
        ) from None


def _numbered(processes: list[list[ObservedPhase]]) -> Iterator[tuple[ObservedPhase, int]]:
    """Phases with the attempt that they belong to: the n-th process of the same rank is of the n-th attempt."""
    attempts: dict[tuple[str, str, int], int] = {}
    for phases in processes:
        rank = phases[0].job, phases[0].role, phases[0].rank
        attempts[rank] = attempts.get(rank, 0) + 1
        yield from ((phase, attempts[rank]) for phase in phases)


def _by_phase(processes: list[list[ObservedPhase]]) -> Iterable[tuple[int, list[ObservedPhase]]]:
    """The ranks of each phase together, with their attempt; what is loaded is each rank's own."""
    found: dict[tuple[object, ...], tuple[int, list[ObservedPhase]]] = {}
    for phase, attempt in _numbered(processes):
        own = (phase.role, phase.rank, phase.started_at) if phase.phase is PhaseKind.LOADING else ()
        key = (phase.job, attempt, phase.phase, phase.iteration, *own)
        found.setdefault(key, (attempt, []))[1].append(phase)
    return found.values()


def _interval(attempt: int, ranks: list[ObservedPhase]) -> Interval:
    """One interval for all ranks: from the first body's start to the last one's end."""
    first, pool = ranks[0], _pool(ranks[0])
    started_at = min(rank.started_at for rank in ranks)
    ended_at = max(rank.started_at + rank.body_us for rank in ranks)
    return Interval(
        job=first.job,
        attempt=attempt,
        phase=first.phase,
        iteration=first.iteration,
        slots=tuple(Slot(f"{rank.job}-{pool}", rank.rank) for rank in ranks) if pool else (),
        requested_at=started_at,
        granted_at=started_at,
        started_at=started_at,
        ended_at=ended_at,
        released_at=ended_at,
        tokens=sum(rank.tokens for rank in ranks),
        samples=sum(rank.samples for rank in ranks),
        moved_bytes=sum(rank.moved_bytes for rank in ranks),
    )


def _pool(phase: ObservedPhase) -> PoolKind | None:
    """Where a phase runs: a sync holds no pool, and a process loads where its role is."""
    if phase.phase is PhaseKind.SYNC:
        return None
    training = phase.phase is PhaseKind.TRAINING or (phase.phase is PhaseKind.LOADING and phase.role == "training")
    return PoolKind.TRAINING if training else PoolKind.ROLLOUT


def _iterations(intervals: list[Interval]) -> list[_Iteration]:
    """The iterations that have both phases, in order."""
    spent: dict[int, dict[PhaseKind, int]] = {}
    begun: dict[int, int] = {}
    for one in intervals:
        kinds = spent.setdefault(one.iteration, dict.fromkeys(PhaseKind, 0))
        kinds[one.phase] += one.ended_at - one.started_at
        if one.phase is PhaseKind.ROLLOUT:
            begun[one.iteration] = one.started_at
    whole = [number for number in sorted(begun) if spent[number][PhaseKind.TRAINING]]
    other = {
        number: max(begun[following] - begun[number] - _in_phases(spent[number]), 0)
        for number, following in pairwise(whole)
    }
    return [
        _Iteration(
            spent[number][PhaseKind.ROLLOUT],
            spent[number][PhaseKind.TRAINING],
            spent[number][PhaseKind.SYNC],
            other.get(number),
        )
        for number in whole
    ]


def _in_phases(spent: dict[PhaseKind, int]) -> int:
    return spent[PhaseKind.ROLLOUT] + spent[PhaseKind.TRAINING] + spent[PhaseKind.SYNC]


def _profile(iterations: list[_Iteration]) -> PhaseProfile:
    """As the controller learns it: the longest of each, and the spread of rollouts."""
    rollouts = [one.rollout / _MICROSECOND for one in iterations]
    return PhaseProfile(
        rollout_max_seconds=max(rollouts),
        rollout_mean_seconds=fmean(rollouts),
        rollout_cv=pstdev(rollouts) / fmean(rollouts),
        training_seconds=max(one.training for one in iterations) / _MICROSECOND,
        sync_seconds=max(one.sync for one in iterations) / _MICROSECOND,
        other_seconds=max((one.other or 0) for one in iterations) / _MICROSECOND,
    )


def _seconds(seconds: float) -> str:
    return format_seconds(round(seconds, 6))


def _stand_in(job: str, pool: PoolKind, phases: list[ObservedPhase]) -> Node:
    ranks = [phase.rank for phase in phases if phase.job == job and _pool(phase) is pool]
    return Node(
        name=f"{job}-{pool}",
        pool=pool,
        host="observed",
        num_devices=max(ranks, default=0) + 1,
        device_memory_bytes=0,
        host_memory_bytes=0,
    )


def _observed_job(name: str) -> TimelineJob:
    nothing = HostMemory(rollout_bytes=0, training_bytes=0)
    return TimelineJob(name=name, slo=math.inf, rollout_gpus=1, training_gpus=1, host_memory=nothing)
