"""Our policy: the fewest expected dollars for the work that is left, among the placements that keep every promise.

Three things are unlike the published policy. A placement is priced by how long each node will still be needed: one that
slows its members makes them stay longer, and a job that outlives its neighbours keeps their nodes. Nodes of either pool
may be new or a group's own. And groups take turns by slack; what that comes to is played out with everybody's rollouts
as they are spread, and a promise is judged by what it leaves room for after what the job has lost so far.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import NamedTuple, TypeVar

import msgspec

from weaverl.domain.cluster import Node, PoolKind
from weaverl.domain.groups import Group
from weaverl.domain.jobs import JobSpec, Placement
from weaverl.scheduling.admission import (
    CLOSED,
    DEARER,
    Candidate,
    Decision,
    Judgement,
    Told,
    breaks_promise,
    decided,
    first_admitted,
)
from weaverl.scheduling.expected_dollars import (
    Stay,
    nodes_of_pin,
    slowdown_alone,
    slowdowns_of,
    stay_of,
    stay_of_newcomer,
    usd_until,
)
from weaverl.scheduling.forecast import least_slowdowns
from weaverl.scheduling.group_rows import closed_reason
from weaverl.scheduling.index import index_of
from weaverl.scheduling.objectives import HORIZON_US, ahead_of, expected_usd, least_later_usd, usd_of_lives
from weaverl.scheduling.policies import shortlist
from weaverl.scheduling.policies.pinning import colocated, isolated, joined, nodes_of
from weaverl.scheduling.policies.shortlist import CROWDED, NOT_ASKED, Floats
from weaverl.scheduling.stacked_rounds import Ints
from weaverl.scheduling.state import ClusterState

MOST_MEMBERS = 5
"""Of a group, unless nothing else is to be had: it is played out at every arrival, and who fails disturbs them all."""

FEW = 32
"""So many groups are all looked at; of more only those that seem the best (see ``shortlist``)."""

_ANY = 1_000_000

_EXCESS, _ALWAYS = 0.06, 0.015
"""What is kept in hand for what a play of the group cannot foresee: so much of the time lost, and of all."""


Slowdowns = TypeVar("Slowdowns", float, Floats)


class Company(NamedTuple):
    """Who is in a group already, until when its nodes are needed and the dollars (``objectives.Ahead``)."""

    stays: list[Stay]
    until_us: dict[str, float]
    usd: float


class Option(NamedTuple):
    """A candidate, who is there already, the newcomer, and the least dollars that it can add."""

    candidate: Candidate
    company: Company
    newcomer: Stay | None
    least_usd: float


class Screened(NamedTuple):
    """An option, and the least dollars that it adds if all promises are kept."""

    least_usd: float
    option: Option


class Cheapest(NamedTuple):
    """The option that adds the fewest dollars and keeps every promise."""

    usd: float
    candidate: Candidate
    judgement: Judgement


NOBODY = Company([], {}, 0.0)


def choose(state: ClusterState, spec: JobSpec) -> Decision:
    """The placement with the fewest expected dollars among those that keep every promise."""
    if spec.profile is None:
        return first_admitted(state, [isolated(state, spec)], spec)
    told = Told()
    found = _search(state, spec, told)
    if found is None:
        return Decision(chosen=None, verdicts=told.verdicts())
    return decided(found.candidate, found.judgement, told)


def _search(state: ClusterState, spec: JobSpec, told: Told) -> Cheapest | None:
    if len(state.groups) <= FEW:
        return among_few(state, spec, list(state.groups.values()), told)
    left = shortlist.screen(state, spec)
    left.tell(told)
    if len(left.rows) <= FEW:
        return among_few(state, spec, shortlist.groups_of(state, left.rows), told)
    return among_many(state, spec, left.rows, told)


def among_few(state: ClusterState, spec: JobSpec, groups: list[Group], told: Told) -> Cheapest | None:
    """All ways into all of the groups are looked at."""
    options = [*by_itself(state, spec), *into_groups(state, spec, groups)]
    found = cheapest(state, screened(state, options, told), told)
    if found is None:
        options = list(into_groups(state, spec, filter(_full, groups), most_members=_ANY))
        found = cheapest(state, screened(state, options, told), told)
    return found


def among_many(
    state: ClusterState,
    spec: JobSpec,
    rows: Ints,
    told: Told,
    sizes: tuple[shortlist.Size, shortlist.Size] = (shortlist.CHEAPEST, shortlist.ROOMIEST),
) -> Cheapest | None:
    """The most promising groups are looked at, a few at a time until one takes the job; the others are counted."""
    found, options = None, by_itself(state, spec)
    for some, reason in zip(shortlist.split(state, rows, MOST_MEMBERS), (NOT_ASKED, CROWDED), strict=True):
        num_asked = 0
        for groups, most_plays in () if found else shortlist.batches(state, spec, some, sizes):
            options += into_groups(state, spec, groups, most_members=_ANY)
            likely = screened(state, options, told, tails_move=False)
            found = cheapest(state, likely, told, most_plays=most_plays)
            num_asked, options = num_asked + len(groups), []
            if found:
                break
        told.count("pack", NOT_ASKED if num_asked else reason, len(some) - num_asked, 0.0)
    return found


def cheapest(
    state: ClusterState,
    screened: Sequence[Screened],
    told: Told,
    *,
    below_usd: float = inf,
    most_plays: float = inf,
) -> Cheapest | None:
    """The best option, if it adds less than ``below_usd``; what is refused before it is told.

    Groups are played out in the order of the least dollars that they could come to, and only while that is less than
    the best has, and no more than ``most_plays``. A job by itself needs no play.
    """
    best, num_played = None, 0
    for place, (least_usd, option) in enumerate(screened):
        if least_usd >= below_usd:
            for _, dearer in screened[place:]:
                told.count(dearer.candidate.kind, DEARER, 1, dearer.candidate.added_usd_per_hour)
            break
        num_played += bool(option.company.stays)
        if option.company.stays and num_played > most_plays:
            told.count(option.candidate.kind, NOT_ASKED, 1, option.candidate.added_usd_per_hour)
            continue
        judgement, usd = judged(state, option)
        if judgement.refused:
            told.refused(option.candidate, judgement)
        elif usd < below_usd:
            if best is not None:
                _tell_dearer(told, best)
            best, below_usd = Cheapest(usd, option.candidate, judgement), usd
        else:
            _tell_dearer(told, Cheapest(usd, option.candidate, judgement))
    return best


def _tell_dearer(told: Told, one: Cheapest) -> None:
    told.refused(one.candidate, msgspec.structs.replace(one.judgement, refused=DEARER))


def screened(
    state: ClusterState, options: Iterable[Option], told: Told, below_usd: float = inf, *, tails_move: bool = True
) -> list[Screened]:
    """The options that no bound rules out, those first that may add the fewest dollars; the others are told.

    Without ``tails_move`` also some that a play would allow as tails are moved, and most that it would not: where few
    plays are to be spent.
    """
    found = []
    for option in sorted(options, key=lambda one: one.least_usd):
        if option.least_usd >= below_usd:
            break
        if option.newcomer is None:
            told.refused(option.candidate, Judgement(refused=option.candidate.refused))
            continue
        stays = [*option.company.stays, option.newcomer]
        tails = {stay.member.job: stay.profile.rollout_p80 for stay in stays if tails_move}
        slowdowns = least_slowdowns([stay.member for stay in stays], _allowed(stays), tails)
        least_usd = _added_usd(state, option, stays, slowdowns)
        if refused := broken(stays, slowdowns, sharers=stays):
            told.refused(option.candidate, Judgement(refused=refused, slowdowns=slowdowns))
        elif least_usd < below_usd:
            found.append(Screened(least_usd, option))
    return sorted(found, key=lambda one: one.least_usd)


def alone(state: ClusterState, spec: JobSpec, start_us: int = 0) -> Option:
    """A group of its own."""
    return option_of(state, spec, isolated(state, spec), NOBODY, start_us)


def by_itself(state: ClusterState, spec: JobSpec, start_us: int = 0) -> list[Option]:
    """The ways to be in a group of its own; a job whose phases run side by side has them on slots of two pools."""
    options = [alone(state, spec, start_us)]
    if state.parameters.colocates and spec.placement is Placement.DISAGGREGATED and not spec.staleness:
        candidate = colocated(state, spec, PoolKind.TRAINING)
        group = msgspec.structs.replace(candidate.group, by_slack=state.parameters.by_slack)
        options.append(option_of(state, spec, msgspec.structs.replace(candidate, group=group), NOBODY, start_us))
    return options


def into_groups(
    state: ClusterState, spec: JobSpec, groups: Iterable[Group], start_us: int = 0, most_members: int = MOST_MEMBERS
) -> Iterator[Option]:
    """All ways into groups."""
    for group in groups:
        closed = closed_reason(state, group) or _full(group, most_members) or _one_sided(group)
        if closed:
            refused = Candidate(kind="pack", group=group, added_usd_per_hour=0.0, refused=closed, sort=CLOSED)
            yield Option(refused, NOBODY, None, 0.0)
            continue
        company = company_of(state, group)
        for candidate in _into(state, spec, group):
            yield option_of(state, spec, candidate, company, start_us)


def _full(group: Group, most_members: int = MOST_MEMBERS) -> str:
    number = len(group.members)
    return f"has {number} members, and is joined only where nothing else can be had" if number >= most_members else ""


def _one_sided(group: Group) -> str:
    return "" if group.rollout_nodes and group.training_nodes else "has a job with all its phases on one pool's GPUs"


def company_of(state: ClusterState, group: Group) -> Company:
    """A group as it is."""
    stays = [stay_of(state, record) for record in state.members(group)]
    slowdowns = slowdowns_of(stays)
    return Company(stays, *ahead_of(state, stays, slowdowns))


def option_of(state: ClusterState, spec: JobSpec, candidate: Candidate, company: Company, start_us: int) -> Option:
    """What a candidate adds at least: the others as until now, and the job for its solo time."""
    if candidate.pin is None:
        return Option(candidate, company, None, candidate.added_usd_per_hour)
    newcomer = stay_of_newcomer(state, spec, candidate.pin, start_us)
    if state.parameters.for_throughput:
        ends_us = [newcomer.left_us * slowdown_alone(newcomer.member)]
        return Option(candidate, company, newcomer, usd_of_lives([newcomer], ends_us))
    until, end_us = dict(company.until_us), min(newcomer.left_us, HORIZON_US)
    for node in nodes_of_pin(candidate.pin):
        until[node] = max(until.get(node, 0.0), end_us)
    added_usd = usd_until(state, until) - usd_until(state, company.until_us) + least_later_usd(newcomer)
    return Option(candidate, company, newcomer, added_usd)


def judged(state: ClusterState, option: Option, *, planned: bool = False) -> tuple[Judgement, float]:
    """Whether every promise is kept as the group is played, and the expected dollars that are added.

    A place that was ``planned`` is weighed once more: there it is enough that no wait is foreseen.
    """
    if option.newcomer is None:
        return Judgement(refused=option.candidate.refused), inf
    stays = [*option.company.stays, option.newcomer]
    slowdowns = slowdowns_of(stays)
    added_usd = _added_usd(state, option, stays, slowdowns)
    refused = broken(stays, slowdowns, sharers=() if planned else stays)
    return Judgement(refused=refused, slowdowns=slowdowns, added_usd=added_usd), added_usd


def _added_usd(state: ClusterState, option: Option, stays: list[Stay], slowdowns: Mapping[str, float]) -> float:
    return expected_usd(state, stays, slowdowns) - option.company.usd


def _allowed(stays: Iterable[Stay]) -> dict[str, float]:
    return {stay.member.job: max(stay.allowed, 1.0) for stay in stays}


def broken(
    stays: Iterable[Stay], slowdowns: Mapping[str, float], kept: float = 1.0, sharers: Iterable[Stay] = ()
) -> str:
    """The first promise that would be broken, with so much of the usual reserve kept in hand.

    Who shares slots with ``sharers`` might be slowed also if no wait is foreseen. It has room for one wait for the
    longest of their phases besides: that is much of what a job may lose that has few iterations left.
    """
    for stay in stays:
        slowdown, wait_us = slowdowns[stay.member.job], longest_wait_us(stay, sharers)
        if slowdown > 1.0 or wait_us:
            expected = slowdown + stay.error + wait_us / stay.left_us
            if foreseen(expected, kept) > stay.allowed:
                return breaks_promise(stay.member.job, expected, stay.allowed)
    return ""


def shares_slots(stay: Stay, stays: Iterable[Stay]) -> bool:
    """Whether a member has slots that another one uses too."""
    return any(True for _ in sharers_of(stay, stays))


def longest_wait_us(stay: Stay, stays: Iterable[Stay]) -> int:
    """The longest phase of another on a member's slots, with what it takes to bring its state there."""
    own, longest = {*stay.member.pin.rollout, *stay.member.pin.training}, 0
    for other in (one.member for one in stays if one.member.job != stay.member.job):
        if not own.isdisjoint(other.pin.rollout):
            longest = max(longest, other.durations.rollout_us + other.switches.rollout_us)
        if not own.isdisjoint(other.pin.training):
            longest = max(longest, other.durations.training_us + other.switches.training_us)
    return longest


def sharers_of(stay: Stay, stays: Iterable[Stay]) -> Iterator[str]:
    """The others that use slots of a member."""
    own = {*stay.member.pin.rollout, *stay.member.pin.training}
    for other in stays:
        if other.member.job != stay.member.job and not own.isdisjoint(
            other.member.pin.rollout + other.member.pin.training
        ):
            yield other.member.job


def foreseen(slowdown: Slowdowns, kept: float = 1.0) -> Slowdowns:
    """A slowdown, or an array of them, with so much of the usual reserve."""
    return 1.0 + (slowdown - 1.0) * (1.0 + kept * _EXCESS) + kept * _ALWAYS


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
