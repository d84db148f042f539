"""A live cluster's log as a trace in our schema: what was asked, when it came, and how long its phases took."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np

from weaverl.domain.commands import AcceptJob, LearnProfile
from weaverl.domain.events import JobSubmitted, TailReached
from weaverl.domain.facts import Fact
from weaverl.domain.jobs import JobSpec, PhaseKind, PhaseProfile
from weaverl.domain.timeline import Interval, Timeline
from weaverl.simulation.traces.profiles import weights_gib
from weaverl.simulation.traces.records import Trace, TraceJob

NO_ITERATION = "finished no iteration"
_GIB = 2.0**30
_SECOND_US = 1e6
_DECIMALS = 6
# A slope is drift only if it stands this many standard errors from none.
_CERTAIN = 2.0
# Jobs without a weight sync: a size that makes for the shortest cold start and switches of the cost model.
_UNKNOWN_BILLIONS = 1.0
_UNKNOWN_TOKENS = 1


class Rollouts(msgspec.Struct, frozen=True, kw_only=True):
    """Rollout times of a job as the schema has them: mean at the start, spread around the trend, growth to the end."""

    mean_seconds: float
    cv: float
    growth: float


def export_trace(name: str, facts: Sequence[Fact], timeline: Timeline) -> Trace:
    """All jobs that finished an iteration; the others are counted. Second 0 is the first submission.

    Phase times are those of the phase bodies, with whatever interference they had. ``max_tokens`` and ``turns`` are
    not in the log (1), the model's size follows from the bytes of a weight sync, and a rollout whose tail was never
    reported has none (p80 = 1).
    """
    submitted = _submissions(facts)
    profiles = _profiles(facts, submitted)
    tails = _tails(facts, timeline)
    first = min((at for at, _ in submitted.values()), default=0)
    skipped: Counter[str] = Counter()
    jobs = []
    for job, (at, spec) in submitted.items():
        last_attempt = _latest(one for one in timeline.intervals if one.job == job)
        measured = _job(spec, (at - first) / _SECOND_US, last_attempt, profiles.get(job), tails.get(job))
        if measured is None:
            skipped[NO_ITERATION] += 1
        else:
            jobs.append(measured)
    return Trace(name=name, jobs=tuple(jobs), skipped=dict(skipped))


def fit_rollouts(seconds: Sequence[float]) -> Rollouts:
    """Mean, spread and linear growth of rollout times in order; a growth that may be chance is none."""
    times = np.asarray(seconds, dtype=float)
    if len(times) < 3:
        return Rollouts(mean_seconds=float(times.mean()), cv=0.0, growth=1.0)
    place = np.linspace(0.0, 1.0, len(times))
    slope, start = np.polyfit(place, times, 1)
    fitted = start + slope * place
    error = math.sqrt(float(((times - fitted) ** 2).sum()) / (len(times) - 2))
    slope_error = error / math.sqrt(float(((place - place.mean()) ** 2).sum()))
    if abs(slope) <= _CERTAIN * slope_error or fitted.min() <= 0:
        return Rollouts(mean_seconds=float(times.mean()), cv=float(times.std(ddof=1) / times.mean()), growth=1.0)
    spread = float(np.std(times / fitted, ddof=2))
    return Rollouts(mean_seconds=float(start), cv=spread, growth=float((start + slope) / start))


def _submissions(facts: Iterable[Fact]) -> dict[str, tuple[int, JobSpec]]:
    """Accepted jobs in order: when they came, and what they are."""
    return {
        fact.event.spec.name: (fact.event.at, fact.event.spec)
        for fact in facts
        if isinstance(fact.event, JobSubmitted) and any(isinstance(one, AcceptJob) for one in fact.commands)
    }


def _profiles(facts: Iterable[Fact], submitted: Mapping[str, tuple[int, JobSpec]]) -> dict[str, PhaseProfile]:
    profiles = {job: spec.profile for job, (_, spec) in submitted.items() if spec.profile is not None}
    for fact in facts:
        for one in fact.commands:
            if isinstance(one, LearnProfile):  # later ones follow a drift, which the trace has as growth
                profiles.setdefault(one.job, one.profile)
    return profiles


def _tails(facts: Iterable[Fact], timeline: Timeline) -> dict[str, float]:
    """By job, the mean fraction of a rollout at which its tail was reported."""
    rollouts = {one.token: one for one in timeline.intervals if one.phase == PhaseKind.ROLLOUT}
    fractions: dict[str, list[float]] = {}
    for fact in facts:
        if isinstance(fact.event, TailReached) and str(fact.event.token) in rollouts:
            rollout = rollouts[str(fact.event.token)]
            reached = (fact.event.at - rollout.started_at) / max(rollout.ended_at - rollout.started_at, 1)
            fractions.setdefault(rollout.job, []).append(min(max(reached, 10**-_DECIMALS), 1.0))
    return {job: sum(found) / len(found) for job, found in fractions.items()}


def _latest(intervals: Iterable[Interval]) -> dict[PhaseKind, dict[int, Interval]]:
    """Of each phase and iteration the last attempt, an earlier one was lost; of its syncs the rank that moved most."""
    latest: dict[PhaseKind, dict[int, Interval]] = {kind: {} for kind in PhaseKind}
    for one in sorted(intervals, key=lambda one: (one.attempt, one.moved_bytes)):
        latest[one.phase][one.iteration] = one
    return latest


def _job(
    spec: JobSpec,
    arrival_seconds: float,
    phases: Mapping[PhaseKind, Mapping[int, Interval]],
    profile: PhaseProfile | None,
    p80: float | None,
) -> TraceJob | None:
    rollout, training = _seconds(phases[PhaseKind.ROLLOUT]), _seconds(phases[PhaseKind.TRAINING])
    if not rollout or not training:
        return None
    fitted = fit_rollouts(rollout)
    at_cap = profile.rollout_max_seconds if profile is not None else max(rollout)
    sync_gib = max((one.moved_bytes for one in phases[PhaseKind.SYNC].values()), default=0) / _GIB
    return TraceJob(
        job_id=spec.name,
        tenant=spec.tenant,
        arrival_seconds=round(arrival_seconds, _DECIMALS),
        iterations=len(training),
        model_billions=_billions(sync_gib),
        max_tokens=_UNKNOWN_TOKENS,
        turns=1,
        rollout_gpus=spec.rollout_gpus,
        training_gpus=spec.training_gpus,
        rollout_max_seconds=round(max(at_cap, fitted.mean_seconds), _DECIMALS),
        rollout_mean_seconds=round(fitted.mean_seconds, _DECIMALS),
        rollout_cv=round(fitted.cv, _DECIMALS),
        rollout_p80=round(p80 or 1.0, _DECIMALS),
        training_seconds=round(sum(training) / len(training), _DECIMALS),
        sync_gib=round(sync_gib, _DECIMALS),
        rollout_host_gib=round(spec.host_memory.rollout_bytes / _GIB, _DECIMALS),
        training_host_gib=round(spec.host_memory.training_bytes / _GIB, _DECIMALS),
        slo=spec.slo,
        rollout_growth=round(fitted.growth, _DECIMALS),
        priority=spec.priority,
        deadline_seconds=spec.deadline_seconds,
        staleness=spec.staleness,
    )


def _seconds(intervals: Mapping[int, Interval]) -> list[float]:
    """Durations of the phase's bodies, by iteration; the clock's microsecond is the least."""
    return [max(one.ended_at - one.started_at, 1) / _SECOND_US for _, one in sorted(intervals.items())]


def _billions(sync_gib: float) -> float:
    """Parameters of a model whose bf16 weights are so large."""
    return round(max(sync_gib / weights_gib(1.0), 10**-_DECIMALS), _DECIMALS) if sync_gib else _UNKNOWN_BILLIONS
