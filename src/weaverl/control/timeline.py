"""The timeline of a run from its log of facts: who held which slots when, and what ran on them."""

from collections.abc import Iterable

import msgspec

from weaverl.control.restores import Restores
from weaverl.domain.commands import AdmitJob, ChangeJobState, GrantPermit
from weaverl.domain.events import PermitRequested, PhaseEnded, PhaseMeasured, RankId, SlotVacated
from weaverl.domain.facts import Fact
from weaverl.domain.groups import Pin
from weaverl.domain.jobs import JobState, PhaseKind
from weaverl.domain.timeline import Interval, Timeline


class _Open(msgspec.Struct):
    """A granted permit, and the reports of its ranks so far."""

    grant: GrantPermit
    requested_at: int
    granted_at: int
    ended: list[PhaseEnded] = []
    lingering: list[SlotVacated] = []
    released_at: int = 0


def timeline_of(facts: Iterable[Fact]) -> Timeline:
    """All phases that ended, by the time of their grant.

    A permit's slots are released when its last rank ended it. State that lingers after that is cleared before the
    next holder's grant; the bytes of that clearing count with the phase that left them.
    """
    requested: dict[tuple[str, int, str, PhaseKind, int], int] = {}
    permits: dict[str, _Open] = {}
    left_at: dict[RankId, int] = {}
    intervals: list[Interval] = []
    restores = Restores()
    for fact in facts:
        event = fact.event
        restores.hear(fact)
        match event:
            case PermitRequested():
                requested[(event.job, event.attempt, event.role, event.phase, event.iteration)] = event.at
            case PhaseEnded() if str(event.token) in permits:
                permits[str(event.token)].ended.append(event)
                permits[str(event.token)].released_at = event.at
                left_at[event.rank] = event.at - event.report.save_us
            case SlotVacated() if str(event.token) in permits:
                permits[str(event.token)].lingering.append(event)
            case PhaseMeasured():
                intervals.append(_measured(event, left_at.get(event.rank, 0)))
        for command in fact.commands:
            if isinstance(command, GrantPermit):
                key = (command.job, command.attempt, command.role, command.phase, command.iteration)
                asked = requested.get(key, event.at)
                permits[str(command.token)] = _Open(command, asked, event.at)
    intervals += [_interval(permit) for permit in permits.values() if len(permit.ended) == permit.grant.ranks]
    in_order = tuple(sorted(intervals, key=lambda one: (one.granted_at, one.job, one.phase)))
    return Timeline(intervals=in_order, restores=tuple(restores.ended()))


def pins_of(facts: Iterable[Fact]) -> dict[str, dict[int, Pin]]:
    """Where each attempt of each job was pinned."""
    pins: dict[str, dict[int, Pin]] = {}
    for fact in facts:
        for command in fact.commands:
            if isinstance(command, AdmitJob):
                pins.setdefault(command.job, {})[command.attempt] = command.pin
    return pins


def moved_of(facts: Iterable[Fact]) -> dict[str, set[int]]:
    """Which attempts of each job were ended so that it goes on elsewhere, or later."""
    moved: dict[str, set[int]] = {}
    for fact in facts:
        for command in fact.commands:
            if isinstance(command, ChangeJobState) and command.final is JobState.QUEUED:
                moved.setdefault(command.job, set()).add(command.attempt)
    return moved


def _measured(event: PhaseMeasured, not_before: int) -> Interval:
    """It began when its rank had left the phase before, whose end may have been heard of late."""
    started = max(event.at - event.report.body_us, not_before)
    return Interval(
        job=event.rank.job,
        attempt=event.rank.attempt,
        phase=event.phase,
        iteration=event.iteration,
        slots=(),
        requested_at=started,
        granted_at=started,
        started_at=started,
        ended_at=event.at,
        released_at=event.at,
        moved_bytes=event.moved_bytes,
        tokens=event.report.tokens,
        samples=event.report.samples,
    )


def _interval(permit: _Open) -> Interval:
    """One interval for all ranks: from the first body's start to the last one's end."""
    grant, reports = permit.grant, [event.report for event in permit.ended]
    saves = reports + [event.report for event in permit.lingering]
    ends = [event.at - event.report.save_us for event in permit.ended]
    starts = [end - report.body_us for end, report in zip(ends, reports, strict=True)]
    return Interval(
        job=grant.job,
        attempt=grant.attempt,
        phase=grant.phase,
        iteration=grant.iteration,
        slots=grant.slots,
        requested_at=permit.requested_at,
        granted_at=permit.granted_at,
        started_at=max(min(starts), permit.granted_at),
        ended_at=max(ends),
        released_at=permit.released_at,
        token=str(grant.token),
        restore_us=max(report.restore_us for report in reports),
        save_us=max(report.save_us for report in saves),
        restored_bytes=sum(report.restored_bytes for report in reports),
        saved_bytes=sum(report.saved_bytes for report in saves),
        tokens=sum(report.tokens for report in reports),
        samples=sum(report.samples for report in reports),
    )
