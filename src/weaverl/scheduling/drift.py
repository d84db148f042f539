"""Profiles follow what is measured: a running mean of each phase, and a new profile when it has drifted away.

Only where promises are watched (see ``Parameters.by_slack``): the published policy plans with what it was told.
"""

import msgspec

from weaverl.domain.jobs import PhaseKind, PhaseProfile
from weaverl.scheduling.round_model import MICROSECONDS
from weaverl.scheduling.state import JobRecord, Measured

WINDOW = 24
"""Iterations that a running mean is about: where rollouts are spread by 20 % it strays by some 3 %."""


def observe(record: JobRecord, phase: PhaseKind, solo_us: int) -> None:
    """Fold how long a phase of a job with a profile would have taken alone."""
    if record.profile is None:
        return
    measured = record.measured_us or _of_profile(record.profile)
    if phase is PhaseKind.ROLLOUT:
        measured.rollout_us += (solo_us - measured.rollout_us) // WINDOW
    else:
        measured.training_us += (solo_us - measured.training_us) // WINDOW
    record.measured_us = measured


def followed(record: JobRecord, error: float) -> PhaseProfile | None:
    """The profile as the job runs by now, if a mean is by such a share off; mean and longest rollout drift alike."""
    profile, measured = record.profile, record.measured_us
    if profile is None or measured is None:
        return None
    told = _of_profile(profile)
    rollout, training = measured.rollout_us / told.rollout_us, measured.training_us / told.training_us
    if max(abs(rollout - 1.0), abs(training - 1.0)) < error:
        return None
    return msgspec.structs.replace(
        profile,
        rollout_mean_seconds=profile.rollout_mean_seconds * rollout,
        rollout_max_seconds=profile.rollout_max_seconds * rollout,
        training_seconds=profile.training_seconds * training,
    )


def _of_profile(profile: PhaseProfile) -> Measured:
    rollout, training = profile.rollout_mean_seconds, profile.training_seconds
    return Measured(max(round(rollout * MICROSECONDS), 1), max(round(training * MICROSECONDS), 1))
