"""What a group is expected to come to: its members' slowdowns, when each ends, and how long each node will be needed.

A placement that slows its members makes them stay longer, and one that outlives its neighbours keeps their nodes, so
that the least dollars an hour are not the least dollars. Each node is paid for until the last job that uses it is
expected to end.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import exp, floor, inf, log
from typing import NamedTuple

import msgspec

from weaverl.domain.cluster import PoolKind
from weaverl.domain.groups import Pin
from weaverl.domain.jobs import JobSpec, PhaseProfile
from weaverl.domain.units import HOUR_US
from weaverl.scheduling.forecast import forecast
from weaverl.scheduling.prices import price_of_work, usd_alone
from weaverl.scheduling.progress import UNKNOWN_ITERATIONS, allowed, forecast_error, left_us, mean_us
from weaverl.scheduling.round_model import Member
from weaverl.scheduling.spread import spread
from weaverl.scheduling.state import ClusterState, JobRecord, planned_member

_GRAIN = 0.05
"""To which part of what is above 1 a promise is rounded down where a group is played: a play serves for a while."""


class Stay(NamedTuple):
    """A member with its mean times, the solo microseconds that it has left, and the slowdown that it may have there.

    ``usd_per_hour`` is the price of GPUs of its own in both pools, ``error`` by how much forecasts were too low for it,
    ``work_price`` that of work in the cluster, over its price on GPUs of one's own.
    """

    member: Member
    profile: PhaseProfile
    left_us: int
    allowed: float
    usd_per_hour: float = 0.0
    error: float = 0.0
    work_price: float = 1.0


def stay_of(state: ClusterState, record: JobRecord) -> Stay:
    """A pinned job with a profile, where it is."""
    assert record.pin is not None
    return _stay(state, record.spec, record.profile, record.pin, record, record.slo, 0)


def stay_of_newcomer(state: ClusterState, spec: JobSpec, pin: Pin, start_us: int = 0) -> Stay:
    """A job with a profile that would be pinned; what it has had before counts, and ``start_us`` that it would lose."""
    return _stay(state, spec, spec.profile, pin, state.jobs.get(spec.name), spec.slo, start_us)


def slowdowns_of(stays: Sequence[Stay]) -> dict[str, float]:
    """Of each member, as the group would be played."""
    if len(stays) < 2:
        return {stay.member.job: slowdown_alone(stay.member) for stay in stays}
    played = _played(tuple((stay.member, stay.profile, _rounded(stay.allowed)) for stay in stays))
    return dict(zip((stay.member.job for stay in stays), played, strict=True))


def slowdown_alone(member: Member) -> float:
    """Of a job by itself: where all its phases are on one pool's GPUs it pays switches and pace, but no sync."""
    if member.pin.rollout != member.pin.training:
        return 1.0
    own, switches = member.durations, member.switches
    placed_us = own.rollout_us + own.training_us + own.sync_us + own.other_us
    return (placed_us + switches.rollout_us + switches.training_us) / member.solo_us


class Course(NamedTuple):
    """Of each member: when it ends, in microseconds from now, and the solo microseconds that it has left then.

    Who goes on beyond a horizon has that for an end.
    """

    ends_us: list[float]
    left_us: list[float]


def course_of(stays: Sequence[Stay], slowdowns: Mapping[str, float], horizon_us: float = inf) -> Course:
    """How a group goes on, where slowdowns fall as members end.

    Each of the others has the same part in what is lost.
    """
    excess = [slowdowns[stay.member.job] - 1.0 for stay in stays]
    left = [float(stay.left_us) for stay in stays]
    ends, now, share = [horizon_us] * len(stays), 0.0, 1.0
    running = list(range(len(stays)))
    while running:
        paces = {place: 1.0 + excess[place] * share for place in running}
        first = min(running, key=lambda place: left[place] * paces[place])
        lasts = left[first] * paces[first]
        passed = min(lasts, horizon_us - now)
        for place in running:
            left[place] = max(left[place] - passed / paces[place], 0.0)
        if lasts > passed:
            break
        now += passed
        ends[first], left[first] = now, 0.0
        running.remove(first)
        share = (len(running) - 1) / max(len(stays) - 1, 1)
    return Course(ends, left)


def until_us(stays: Sequence[Stay], ends_us: Sequence[float]) -> dict[str, float]:
    """Until when each node is needed, in microseconds from now: as long as the last job that uses it."""
    until: dict[str, float] = {}
    for stay, end in zip(stays, ends_us, strict=True):
        for node in nodes_of_pin(stay.member.pin):
            until[node] = max(until.get(node, 0.0), end)
    return until


def usd_until(state: ClusterState, until: Mapping[str, float]) -> float:
    """Dollars for nodes that are needed so long."""
    return sum(state.usd_per_hour((node,)) * end for node, end in until.items()) / HOUR_US


@lru_cache(maxsize=4096)
def nodes_of_pin(pin: Pin) -> tuple[str, ...]:
    """The nodes of both pools, each once."""
    return tuple(dict.fromkeys(pin.nodes(PoolKind.ROLLOUT) + pin.nodes(PoolKind.TRAINING)))


def _stay(
    state: ClusterState,
    spec: JobSpec,
    profile: PhaseProfile | None,
    pin: Pin,
    record: JobRecord | None,
    slo: float,
    lost_us: int,
) -> Stay:
    assert profile is not None
    mean = msgspec.structs.replace(profile, rollout_max_seconds=profile.rollout_mean_seconds)
    member, usd_per_hour = planned_member(state, spec.name, mean, pin, spec.device_memory), usd_alone(state, spec)
    price = price_of_work(state.spending)
    if record is None:
        solo_us = mean_us(profile) if spec.staleness else member.solo_us
        return Stay(member, profile, (spec.iterations or UNKNOWN_ITERATIONS) * solo_us, slo, usd_per_hour, 0.0, price)
    may = allowed(record, slo, profile, state.now, lost_us)
    return Stay(member, profile, left_us(record, profile), may, usd_per_hour, forecast_error(record), price)


def _rounded(allowed: float) -> float:
    if allowed <= 1.001:
        return 1.0
    return 1.0 + exp(floor(log(allowed - 1.0) / _GRAIN) * _GRAIN)


@lru_cache(maxsize=4096)
def _played(players: tuple[tuple[Member, PhaseProfile, float], ...]) -> tuple[float, ...]:
    """The slowdowns of members with these profiles and promises: the same for the same, so they are kept."""
    slowdowns = forecast(
        [member for member, _, _ in players],
        {member.job: allowed for member, _, allowed in players},
        rollouts={member.job: spread(profile) for member, profile, _ in players},
        tails={member.job: profile.rollout_p80 for member, profile, _ in players},
    )
    return tuple(slowdowns[member.job] for member, _, _ in players)
