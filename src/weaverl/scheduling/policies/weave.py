"""Our policy: the fewest expected dollars for the work that is left, among the placements that keep every promise.

Three things are unlike the published policy. A placement is priced by how long each node will still be needed: one that
slows its members makes them stay longer, and a job that outlives its neighbours keeps their nodes. Nodes of either pool
may be new or a group's own. And groups take turns by slack; what that comes to is played out with everybody's rollouts
as they are spread, and a promise is judged by what it leaves room for after what the job has lost so far.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import msgspec

from weaverl.domain.cluster import Node, PoolKind
from weaverl.domain.groups import Group, Pin
from weaverl.domain.jobs import JobSpec, PhaseProfile, Placement
from weaverl.scheduling.admission import (
    CLOSED,
    Candidate,
    Decision,
    Judgement,
    Told,
    breaks_promise,
    decided,
    first_admitted,
)
from weaverl.scheduling.forecast import forecast, least_slowdowns, spread
from weaverl.scheduling.group_rows import closed_reason
from weaverl.scheduling.index import index_of
from weaverl.scheduling.policies.pinning import isolated, joined, nodes_of
from weaverl.scheduling.round_model import Member
from weaverl.scheduling.state import ClusterState, JobRecord, planned_member

UNKNOWN_ITERATIONS = 300
"""How many iterations a job is taken to have left that does not say."""

MARGIN = 0.04
"""The part of a promise that is kept in hand for what a play of the group cannot foresee."""


class Stay(NamedTuple):
    """A member with its mean times, the solo microseconds that it has left, and the slowdown that it may have."""

    member: Member
    profile: PhaseProfile
    left_us: float
    allowed: float


class Option(NamedTuple):
    """A candidate, who would be in the group, and the least dollars that it can add."""

    candidate: Candidate
    before: "Company"
    stays: list[Stay]
    least_usd: float


class Company:
    """A group as it is: until when each of its nodes is expected to be needed, in microseconds from now."""

    def __init__(self, state: ClusterState, group: Group) -> None:
        self.stays = [_stay(state, record) for record in state.members(group)]

    @cached_property
    def until_us(self) -> dict[str, float]:
        """By node."""
        return _until_us(self.stays, _forecast(self.stays))


def choose(state: ClusterState, spec: JobSpec) -> Decision:
    """The placement with the fewest expected dollars among those that keep every promise."""
    alone = _by_slack(isolated(state, spec))
    if spec.profile is None:
        return first_admitted(state, [alone], spec)
    told, best = Told(), None
    for option in sorted(_options(state, spec, alone), key=lambda one: one.least_usd):
        if best is not None and option.least_usd >= best[0]:
            break
        judgement, usd = _judge(state, option)
        if judgement.refused:
            told.refused(option.candidate, judgement)
        elif best is None or usd < best[0]:
            best = (usd, option.candidate, judgement)
    if best is None:
        return Decision(chosen=None, verdicts=told.verdicts())
    return decided(best[1], best[2], told)


def _options(state: ClusterState, spec: JobSpec, alone: Candidate) -> Iterator[Option]:
    company = Company(state, alone.group) if alone.group.name in state.groups else None
    yield _option(state, spec, alone, company or _nobody())
    for group in state.groups.values():
        closed = closed_reason(state, group)
        if closed:
            closed_candidate = Candidate(kind="pack", group=group, added_usd_per_hour=0.0, refused=closed, sort=CLOSED)
            yield Option(closed_candidate, _nobody(), [], 0.0)
            continue
        company = Company(state, group)
        for candidate in _into(state, spec, group):
            yield _option(state, spec, _by_slack(candidate), company)


def _option(state: ClusterState, spec: JobSpec, candidate: Candidate, before: Company) -> Option:
    """What the candidate adds at least: the others' nodes until now, and the job's own for its solo time."""
    if candidate.pin is None or spec.profile is None:
        return Option(candidate, before, [], candidate.added_usd_per_hour)
    new = _newcomer(state, spec, spec.profile, candidate.pin)
    until = dict(before.until_us)
    for node in _nodes(candidate.pin):
        until[node] = max(until.get(node, 0.0), new.left_us)
    return Option(candidate, before, [*before.stays, new], _usd(state, until) - _usd(state, before.until_us))


def _judge(state: ClusterState, option: Option) -> tuple[Judgement, float]:
    """Whether every promise is kept, and the expected dollars that are added."""
    if option.candidate.pin is None:
        return Judgement(refused=option.candidate.refused), float("inf")
    slowdowns = least_slowdowns([stay.member for stay in option.stays], _allowed(option.stays))
    refused = _broken(option.stays, slowdowns)
    if not refused:
        slowdowns = _forecast(option.stays)
        refused = _broken(option.stays, slowdowns)
    usd = _usd(state, _until_us(option.stays, slowdowns)) - _usd(state, option.before.until_us)
    return Judgement(refused=refused, slowdowns=slowdowns), usd


def _broken(stays: list[Stay], slowdowns: dict[str, float]) -> str:
    """The first promise that would be broken."""
    for stay in stays:
        slowdown = slowdowns[stay.member.job]
        if slowdown > 1.0 and slowdown > stay.allowed * (1.0 - MARGIN):
            return breaks_promise(stay.member.job, slowdown, stay.allowed)
    return ""


def _forecast(stays: list[Stay]) -> dict[str, float]:
    if len(stays) == 1:
        return {stays[0].member.job: 1.0}
    members = [stay.member for stay in stays]
    return forecast(
        members,
        _allowed(stays),
        rollouts={stay.member.job: spread(stay.profile) for stay in stays},
        tails={stay.member.job: stay.profile.rollout_p80 for stay in stays},
    )


def _allowed(stays: list[Stay]) -> dict[str, float]:
    return {stay.member.job: max(stay.allowed, 1.0) for stay in stays}


def _until_us(stays: list[Stay], slowdowns: dict[str, float]) -> dict[str, float]:
    """Until when each node is needed: as long as the last job that uses it."""
    until: dict[str, float] = {}
    for stay in stays:
        end = stay.left_us * slowdowns[stay.member.job]
        for node in _nodes(stay.member.pin):
            until[node] = max(until.get(node, 0.0), end)
    return until


def _usd(state: ClusterState, until_us: dict[str, float]) -> float:
    return sum(state.usd_per_hour((node,)) * end for node, end in until_us.items()) / 3600e6


def _stay(state: ClusterState, record: JobRecord) -> Stay:
    assert record.pin is not None and record.profile is not None
    member = _expected(state, record.spec.name, record.profile, record.pin)
    iterations = record.spec.iterations or UNKNOWN_ITERATIONS
    left_us = max(iterations - record.iterations_done, 1) * member.solo_us
    done_us, elapsed_us = record.progress.solo_us, record.progress.elapsed_us(state.now)
    allowed = (record.spec.slo * (done_us + left_us) - elapsed_us) / left_us
    return Stay(member, record.profile, left_us, allowed)


def _newcomer(state: ClusterState, spec: JobSpec, profile: PhaseProfile, pin: Pin) -> Stay:
    member = _expected(state, spec.name, profile, pin)
    return Stay(member, profile, (spec.iterations or UNKNOWN_ITERATIONS) * member.solo_us, spec.slo)


def _expected(state: ClusterState, name: str, profile: PhaseProfile, pin: Pin) -> Member:
    mean = msgspec.structs.replace(profile, rollout_max_seconds=profile.rollout_mean_seconds)
    return planned_member(state, name, mean, pin)


def _nobody() -> Company:
    company = Company.__new__(Company)
    company.stays = []
    return company


def _nodes(pin: Pin) -> tuple[str, ...]:
    return (*pin.nodes(PoolKind.ROLLOUT), *pin.nodes(PoolKind.TRAINING))


def _by_slack(candidate: Candidate) -> Candidate:
    group = msgspec.structs.replace(candidate.group, by_slack=True)
    return msgspec.structs.replace(candidate, group=group)


def _into(state: ClusterState, spec: JobSpec, group: Group) -> Iterator[Candidate]:
    """The ways into a group: in each pool on its own nodes, on new ones, or on some of both, but not all new."""
    own = (nodes_of(state, group.rollout_nodes), nodes_of(state, group.training_nodes))
    if spec.placement is Placement.LOCAL:
        yield joined(state, spec, group, *own, [])
        return
    ways = [
        list(_offers(state, pool, nodes, num_gpus, num_bytes))
        for pool, nodes, num_gpus, num_bytes in (
            (PoolKind.ROLLOUT, own[0], spec.rollout_gpus, spec.host_memory.rollout_bytes),
            (PoolKind.TRAINING, own[1], spec.training_gpus, spec.host_memory.training_bytes),
        )
    ]
    for rollout, opened_rollout in ways[0]:
        for training, opened_training in ways[1]:
            opened = opened_rollout + opened_training
            if len(opened) < len(rollout) + len(training):
                candidate = joined(state, spec, group, rollout, training, opened)
                yield msgspec.structs.replace(candidate, kind=_kind(opened_rollout, opened_training))


def _offers(
    state: ClusterState, pool: PoolKind, own: list[Node], num_gpus: int, num_bytes: int
) -> Iterator[tuple[list[Node], list[Node]]]:
    """Nodes of one pool to be offered, and which of them would be new."""
    size = max((node.num_devices for node in own), default=1)
    needed = -(-num_gpus // size)
    yield from (([node], []) for node in own) if needed == 1 else [(own, [])]
    new = nodes_of(state, list(index_of(state).catalog.free(pool, num_bytes))[:needed])
    for opened in range(1, len(new) + 1):
        yield new[:opened] + (own if opened < needed else []), new[:opened]


def _kind(opened_rollout: list[Node], opened_training: list[Node]) -> str:
    opened = [pool for pool, nodes in (("rollout", opened_rollout), ("training", opened_training)) if nodes]
    return "scale " + " and ".join(opened) if opened else "pack"
