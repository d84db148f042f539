"""The profile of a job that came without one: its first iterations, alone on its nodes; nothing is thrown away."""

from weaverl.domain.events import PermitRequested, PhaseEnded, PhaseMeasured
from weaverl.domain.jobs import PhaseKind, PhaseProfile
from weaverl.scheduling.state import PROFILE_ITERATIONS, IterationRecord, JobRecord


def observe(record: JobRecord, event: PermitRequested | PhaseEnded | PhaseMeasured) -> None:
    """Fold what an event says about the times of one iteration."""
    if not record.profiling or event.phase is PhaseKind.LOADING:
        return
    measured = record.measured.setdefault(event.iteration, IterationRecord())
    if isinstance(event, PermitRequested):
        if event.phase is PhaseKind.ROLLOUT:
            measured.requested_at = event.at
        return
    if isinstance(event, PhaseMeasured) and event.phase is not PhaseKind.SYNC:
        return
    body, report = event.report.body_us, event.report
    match event.phase:
        case PhaseKind.ROLLOUT:
            measured.rollout_us = max(measured.rollout_us, body)
        case PhaseKind.TRAINING:
            measured.training_us = max(measured.training_us, body)
        case PhaseKind.SYNC:
            measured.sync_us = max(measured.sync_us, body)
    waited = report.wait_us + report.restore_us + report.save_us
    measured.waited_us[str(event.phase)] = max(measured.waited_us.get(str(event.phase), 0), waited)


def learned(record: JobRecord, event: PermitRequested) -> PhaseProfile | None:
    """The profile, once the rollout after the profiled iterations is asked for."""
    if not record.profiling or event.phase is not PhaseKind.ROLLOUT:
        return None
    last = event.iteration - record.spec.staleness  # what may run beside this rollout is not over
    window = [record.measured.get(iteration) for iteration in range(last - PROFILE_ITERATIONS, last)]
    whole = [one for one in window if one and one.requested_at and one.rollout_us and one.training_us]
    if len(whole) < PROFILE_ITERATIONS:
        return None
    ends = [one.requested_at for one in whole[1:]] + [event.at]
    rollouts = [one.rollout_us / 1e6 for one in whole]
    mean = sum(rollouts) / len(rollouts)
    deviation = (sum((value - mean) ** 2 for value in rollouts) / len(rollouts)) ** 0.5
    others = [
        end - one.requested_at - one.rollout_us - one.training_us - one.sync_us - sum(one.waited_us.values())
        for one, end in zip(whole, ends, strict=True)
    ]
    return PhaseProfile(
        rollout_max_seconds=max(rollouts),
        rollout_mean_seconds=mean,
        rollout_cv=deviation / mean,
        training_seconds=max(one.training_us for one in whole) / 1e6,
        sync_seconds=max(one.sync_us for one in whole) / 1e6,
        other_seconds=0.0 if record.spec.staleness else max(max(others), 0) / 1e6,
        staleness=record.spec.staleness,
    )
