"""How a job stands against the clock and its promise: solo time of what it has done, and wall time since its start.

The slowdown that is promised is wall time over solo time. Wall time runs from the first rollout's request, so that
the first start is not in it, to the end; between a failure and the next admission it stands still, and the cold start
of a later attempt is in it. The solo time of an iteration is that of its measured phases, and the profile's for the
sync and the rest; an iteration that was finished before an attempt ended counts once. Of a job whose next rollout runs
beside training it is counted in ``pairs``.
"""

from functools import lru_cache

from weaverl.domain.cluster import PoolKind
from weaverl.domain.events import PermitRequested, PhaseEnded
from weaverl.domain.groups import Pin
from weaverl.domain.jobs import PhaseKind, PhaseProfile
from weaverl.domain.units import HOUR_US
from weaverl.scheduling import drift, pairs
from weaverl.scheduling.rotation_state import LOADING, ROLLOUT, TRAINING, Permit
from weaverl.scheduling.round_model import MICROSECONDS, allowed_us
from weaverl.scheduling.spread import spread
from weaverl.scheduling.state import ClusterState, JobRecord, Progress

HORIZON = 20
"""Iterations that are looked ahead: what a job has lost must be made good within so many, or by its end."""

UNKNOWN_ITERATIONS = 300
"""How many iterations a job is taken to have left that does not say."""

HANGS_AFTER = 4
"""Times as long as its iterations usually take, and an hour: a job that has not come to the end of one may hang."""

WEIGHT = 40
"""Of a forecast beside what was measured since a job has had its company, in iterations."""

SHARE = 0.5
"""Of what a job could make good up to the horizon: so much may be lost before its slots are kept free for it."""


def asked(record: JobRecord, event: PermitRequested) -> None:
    """Fold a request: with that for the first rollout the time begins, with any other an iteration is over."""
    if record.progress.since is None and event.phase is not LOADING:
        record.progress.since = event.at
    if event.phase is ROLLOUT:
        progress = record.progress
        progress.lap_us = (progress.elapsed_us(event.at), progress.solo_us)
        if progress.company is None:
            progress.company = (progress.iterations, *progress.lap_us)
            progress.pace = 0.0 if record.profile is None else allowed(record, record.slo, record.profile, event.at)


def admitted(record: JobRecord, now: int) -> None:
    """Fold an admission, before it is folded otherwise: from the second on the cold start counts."""
    if record.admitted_at is not None and record.progress.since is None:
        record.progress.since = now


def stopped(record: JobRecord, now: int) -> None:
    """Fold the end of an attempt: an iteration under way has to be done again."""
    progress = record.progress
    progress.wall_us, progress.since, progress.part_us = progress.elapsed_us(now), None, 0
    if progress.pairs is not None:
        pairs.cut_off(progress.pairs)


def phase_ended(state: ClusterState, record: JobRecord, permit: Permit, event: PhaseEnded) -> None:
    """Fold the end of a phase by its last rank."""
    progress = record.progress
    if event.failed or event.phase is LOADING or event.iteration < progress.iterations:
        return
    solo_us = _solo_us(state, record.pin, event.phase, permit.body_us - permit.lost_us)
    drift.observe(record, event.phase, solo_us)
    if event.phase is TRAINING:
        progress.iterations = event.iteration + 1
    if record.spec.staleness:
        _half_ended(record, event, solo_us)
        return
    progress.part_us += solo_us
    if event.phase is TRAINING:
        progress.solo_us += progress.part_us + _rest_us(record.profile)
        progress.part_us = 0


def _half_ended(record: JobRecord, event: PhaseEnded, solo_us: int) -> None:
    """Fold the end of a phase of a job whose next rollout runs beside training."""
    progress, profile = record.progress, record.profile
    progress.pairs = progress.pairs or pairs.Pairs()
    if event.phase is ROLLOUT:
        progress.solo_us += pairs.rolled(progress.pairs, event.iteration, solo_us)
    else:
        is_last = event.iteration + 1 == record.spec.iterations
        trained_us = solo_us + _rest_us(profile)
        progress.solo_us += pairs.trained(progress.pairs, event.iteration, trained_us, is_last=is_last)
    if profile is not None:
        trained_us = round(profile.training_seconds * MICROSECONDS) + _rest_us(profile)
        rollout_us = round(profile.rollout_mean_seconds * MICROSECONDS)
        progress.part_us = pairs.part_us(progress.pairs, rollout_us, trained_us)


def _rest_us(profile: PhaseProfile | None) -> int:
    """Sync and the rest of an iteration, by the profile."""
    return 0 if profile is None else round((profile.sync_seconds + profile.other_seconds) * MICROSECONDS)


def new_company(record: JobRecord, foreseen: float | None) -> None:
    """Fold that others are in the job's group from now on; how wrong the forecast of the last company was is kept."""
    progress = record.progress
    if progress.foreseen is not None and (found := _measured(progress)) is not None:
        num, slowdown = found
        total = progress.error_iterations + num
        wrong = progress.error * progress.error_iterations + (slowdown - progress.foreseen) * num
        progress.error, progress.error_iterations = wrong / total, total
    progress.company, progress.foreseen = None, foreseen


def forecast_error(record: JobRecord) -> float:
    """By how much forecasts are too low for a job, by its iterations so far; few of them say little."""
    progress = record.progress
    num = progress.error_iterations
    return max(progress.error, 0.0) * num / (num + WEIGHT)


def measured_slowdown(record: JobRecord, foreseen: float) -> float:
    """In the present company: the forecast, corrected by its error so far, counts as ``WEIGHT`` iterations."""
    expected, found = foreseen + forecast_error(record), _measured(record.progress)
    if found is None:
        return expected
    num, slowdown = found
    return (num * slowdown + WEIGHT * expected) / (num + WEIGHT)


def _measured(progress: Progress) -> tuple[int, float] | None:
    """Iterations in the present company, and the slowdown there; None where none is over."""
    if progress.company is None:
        return None
    num_before, wall_before, solo_before = progress.company
    num, wall_us, solo_us = progress.iterations - num_before, *progress.lap_us
    if num <= 0 or solo_us <= solo_before:
        return None
    return num, (wall_us - wall_before) / (solo_us - solo_before)


def slack_us(record: JobRecord, now: int) -> int:
    """What may still be lost before the promise is broken by what is done so far; below 0 it is."""
    return allowed_us(record.slo, record.progress.done_us) - record.progress.elapsed_us(now)


def hangs(record: JobRecord, now: int) -> bool:
    """Whether the iteration under way takes so long, by the profile and by those before it, that the job may hang."""
    progress = record.progress
    wall_us, usual_us = progress.lap_us[0], record.durations.solo_us
    if progress.iterations:
        usual_us = max(usual_us, wall_us // progress.iterations)
    return progress.elapsed_us(now) - wall_us > HANGS_AFTER * usual_us + HOUR_US


def iterations_left(record: JobRecord) -> int | None:
    """How many iterations a job has yet to finish, the one under way included; None where it does not say."""
    total = record.spec.iterations
    return None if total is None else max(total - record.iterations_done, 1)


def left_us(record: JobRecord, profile: PhaseProfile) -> int:
    """Solo time of the iterations that a job has yet to finish, by the profile's means."""
    return (iterations_left(record) or UNKNOWN_ITERATIONS) * mean_us(profile)


def allowed(record: JobRecord, slo: float, profile: PhaseProfile, now: int, lost_us: int = 0) -> float:
    """The slowdown that the promise leaves room for to the end, spread evenly; ``lost_us`` are lost besides."""
    ahead_us = left_us(record, profile)
    return (slo * (record.progress.solo_us + ahead_us) - record.progress.elapsed_us(now) - lost_us) / ahead_us


def allowance(record: JobRecord, now: int, reserve_us: int = 0) -> tuple[float, int]:
    """The pace that a job has to keep, and the slowdown, in thousandths, that it leaves room for up to the horizon.

    A reserve is kept in hand. The pace is that of the promise: a job that has run just as slowly as it may has its SLO
    left, one that has waited longer has less. But what a job had to spare when its company came together, it is to
    spend evenly by its end, as is foreseen of it where it is placed, and not at once: then its pace is a slower one,
    from that moment on. Where it has less room by the one than by the other, that one counts.
    """
    assert record.profile is not None
    progress, ahead_us, elapsed_us = record.progress, _ahead_us(record, record.profile), record.progress.elapsed_us(now)
    by_promise = room(record.slo, progress.solo_us, progress.part_us, ahead_us, elapsed_us, reserve_us)
    if progress.company is None or progress.pace <= record.slo:
        return record.slo, by_promise
    _, wall_us, solo_us = progress.company
    done_us, spent_us = progress.solo_us - solo_us, elapsed_us - wall_us
    by_pace = room(progress.pace, done_us, progress.part_us, ahead_us, spent_us, reserve_us)
    both = (record.slo, by_promise), (progress.pace, by_pace)
    return min(both, key=lambda one: one[1] - late_below(one[0]))


def room(slo: float, solo_us: int, part_us: int, ahead_us: int, elapsed_us: int, reserve_us: int) -> int:
    """The slowdown, in thousandths, that a promise leaves room for.

    Args:
        slo: the promise.
        solo_us: solo time of the finished iterations.
        part_us: of what is finished of the one under way.
        ahead_us: of the iterations up to the horizon, with the one under way.
        elapsed_us: wall time so far.
        reserve_us: wall time to be kept in hand.
    """
    budget_us = allowed_us(slo, solo_us + ahead_us) - reserve_us
    return room_left(budget_us - elapsed_us, max(ahead_us - part_us, 1))


def room_left(left_us: int, undone_us: int) -> int:
    """The slowdown, in thousandths, at which so much solo time can be done in the wall time left."""
    return 1000 * left_us // undone_us


def is_late(pace: float, left: int) -> bool:
    """Whether of what a job could make good up to the horizon, undisturbed, it has lost so much that others wait.

    ``left`` is the slowdown, in thousandths, that the pace leaves room for: its promise's, or a slower one.
    """
    return left < late_below(pace)


def late_below(pace: float) -> float:
    """The slowdown, in thousandths, below which a job is late."""
    return 1000 * (1.0 + (pace - 1.0) * (1.0 - SHARE))


def _ahead_us(record: JobRecord, profile: PhaseProfile) -> int:
    """Solo time, by the profile's means, from the next iteration's start to the horizon or the end."""
    iterations, done = record.spec.iterations, record.progress.iterations
    if record.progress.pairs is not None:
        done = record.progress.pairs.num_closed - 1
    left = HORIZON if iterations is None else min(max(iterations - done, 1), HORIZON)
    return left * mean_us(profile)


def mean_us(profile: PhaseProfile) -> int:
    """Mean solo time of an iteration."""
    if profile.staleness:
        return _mean_of_pairs_us(profile)
    seconds = profile.rollout_mean_seconds + profile.training_seconds + profile.sync_seconds + profile.other_seconds
    return round(seconds * MICROSECONDS)


def fill_us(record: JobRecord) -> int:
    """What an attempt's first rollout takes, which nothing runs beside, where the others run beside training."""
    profile = record.profile
    if profile is None or not profile.staleness:
        return 0
    seconds = profile.rollout_mean_seconds + profile.training_seconds + profile.sync_seconds + profile.other_seconds
    return max(round(seconds * MICROSECONDS) - mean_us(profile), 0)


@lru_cache(maxsize=4096)
def _mean_of_pairs_us(profile: PhaseProfile) -> int:
    """Of a rollout beside a training: more than the longer one of both means, where rollouts are spread."""
    trained_us = round(profile.training_seconds * MICROSECONDS) + _rest_us(profile)
    rollouts = spread(profile)
    return sum(max(rollout_us, trained_us) for rollout_us in rollouts) // len(rollouts)


def _solo_us(state: ClusterState, pin: Pin | None, phase: PhaseKind, placed_us: int) -> int:
    """What a phase would have taken on a GPU of its own pool."""
    assert pin is not None
    slots, own = (pin.rollout, PoolKind.ROLLOUT) if phase is ROLLOUT else (pin.training, PoolKind.TRAINING)
    if state.nodes[slots[0].node].node.pool is own:
        return placed_us
    cluster = state.cluster
    return round(placed_us / (cluster.rollout_on_training if phase is ROLLOUT else cluster.training_on_rollout))
