"""What a group's nodes will still cost: each is paid for until the last job that uses it is expected to end.

A placement that slows its members makes them stay longer, and one that outlives its neighbours keeps their nodes, so
that the least dollars an hour are not the least dollars. Times here are means; promises are judged elsewhere.
"""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from weaverl.domain.cluster import PoolKind
from weaverl.domain.groups import Pin
from weaverl.domain.jobs import JobSpec, PhaseProfile
from weaverl.scheduling.admission import Candidate, predicted_slowdowns
from weaverl.scheduling.round_model import Member
from weaverl.scheduling.state import ClusterState, JobRecord, planned_member

UNKNOWN_ITERATIONS = 300
"""How many iterations a job is taken to have left that does not say."""


class Stay(NamedTuple):
    """A member with its mean times, and the solo microseconds that it has left."""

    member: Member
    left_us: int


def usd_left(state: ClusterState, names: Iterable[str]) -> float:
    """Expected dollars from now on for the nodes of pinned jobs with profiles that are a group."""
    return _usd(state, [_stay(state, state.jobs[name]) for name in names])


def usd_left_with(state: ClusterState, candidate: Candidate, spec: JobSpec) -> float:
    """The same for a candidate's group, in which the job has the iterations of ``spec`` left."""
    return _usd(state, _stays_with(state, candidate, spec))


def expected_slowdowns(state: ClusterState, candidate: Candidate, spec: JobSpec) -> dict[str, float]:
    """Of each member of a candidate's group, at mean times."""
    return predicted_slowdowns([stay.member for stay in _stays_with(state, candidate, spec)])


def iterations_left(record: JobRecord) -> int | None:
    """How many iterations a job has yet to finish, the one under way included; None where it does not say."""
    total = record.spec.iterations
    return None if total is None else max(total - record.iterations_done, 1)


def _usd(state: ClusterState, stays: list[Stay]) -> float:
    slowdowns = predicted_slowdowns([stay.member for stay in stays])
    until: dict[str, float] = {}
    for member, left_us in stays:
        end = left_us * slowdowns[member.job]
        for node in (*member.pin.nodes(PoolKind.ROLLOUT), *member.pin.nodes(PoolKind.TRAINING)):
            until[node] = max(until.get(node, 0.0), end)
    return sum(state.usd_per_hour((node,)) * end for node, end in until.items()) / 3600e6


def _stays_with(state: ClusterState, candidate: Candidate, spec: JobSpec) -> list[Stay]:
    assert candidate.pin is not None and spec.profile is not None
    others = [_stay(state, state.jobs[name]) for name in candidate.group.members if name != spec.name]
    newcomer = _member(state, spec.name, spec.profile, candidate.pin)
    return [*others, Stay(newcomer, (spec.iterations or UNKNOWN_ITERATIONS) * newcomer.solo_us)]


def _stay(state: ClusterState, record: JobRecord) -> Stay:
    assert record.pin is not None and record.profile is not None
    member = _member(state, record.spec.name, record.profile, record.pin)
    return Stay(member, (iterations_left(record) or UNKNOWN_ITERATIONS) * member.solo_us)


def _member(state: ClusterState, name: str, profile: PhaseProfile, pin: Pin) -> Member:
    mean = msgspec.structs.replace(profile, rollout_max_seconds=profile.rollout_mean_seconds)
    return planned_member(state, name, mean, pin)
