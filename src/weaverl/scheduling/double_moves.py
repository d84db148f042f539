"""Two moves that pay only together: a swap between two groups, one that makes room for another, two that leave or join.

Where no single move pays, jobs of a group that has changed are looked at with one of another group, or with one more of
theirs. What the groups that would come of it cost at least is bounded twice before any is played: by the time that
their nodes must last if nobody is slowed, and, of the most promising, by the load of each place.
"""

from collections.abc import Collection, Iterator, Sequence
from heapq import nlargest
from itertools import combinations
from typing import NamedTuple

import msgspec

from weaverl.domain.groups import Group
from weaverl.scheduling.admission import Candidate, Told
from weaverl.scheduling.expected_dollars import stay_of, until_us
from weaverl.scheduling.guessed_saving import NEW, Guess, Leaver
from weaverl.scheduling.index import trial_of
from weaverl.scheduling.objectives import expected_usd
from weaverl.scheduling.placement import change, fold_group
from weaverl.scheduling.policies import weave
from weaverl.scheduling.state import ClusterState
from weaverl.scheduling.trial_moves import usd_saved, without_record

MOST_BOUNDED = 24
"""Ideas whose places are looked at, the most promising first."""

MOST_PLAYED = 16
"""Pairs of places that are played out."""

_MOST_PLAYED_EACH = 2
"""Of one idea: its places are much alike."""


class Idea(NamedTuple):
    """Two jobs and the groups that each would go to, and the most that is saved if nobody is slowed there."""

    most_usd: float
    jobs: tuple[Leaver, Leaver]
    groups: tuple[str, str]


class Two(NamedTuple):
    """Places of two jobs that keep all promises, in either order, and what they save, both cold starts taken off."""

    saving_usd: float
    jobs: tuple[Leaver, Leaver]
    candidates: tuple[Candidate, Candidate]


class _Bounded(NamedTuple):
    most_usd: float
    idea: Idea
    empty: ClusterState
    first: weave.Option
    second: weave.Option


def best_two(state: ClusterState, leavers: dict[str, list[Leaver]], near: Collection[str]) -> Two | None:
    """The two moves that save the most, if they pay; ``leavers`` by group, of those whose members are to stay there.

    ``near`` are the groups of which one takes part.
    """
    ideas = nlargest(MOST_BOUNDED, _ideas(state, leavers, near), key=_most_usd)
    bounded = [one for idea in ideas for one in nlargest(_MOST_PLAYED_EACH, _bounded(state, idea), key=_most_usd)]
    best: Two | None = None
    for one in nlargest(MOST_PLAYED, bounded, key=_most_usd):
        if best is not None and one.most_usd - _cost_usd(one.idea) <= best.saving_usd:
            continue
        found = _played(state, one)
        if found is not None and (best is None or found.saving_usd > best.saving_usd):
            best = found
    return best


def _most_usd(one: Idea | _Bounded) -> float:
    return one.most_usd


def _least_usd(state: ClusterState, jobs: tuple[Leaver, Leaver]) -> float:
    """What two moves save at least, their cost included: as much as one move of what both cost."""
    cost, parameters = jobs[0].cost_usd + jobs[1].cost_usd, state.parameters
    return max(parameters.saving_over_cost * cost, parameters.least_saving_usd + cost)


def _cost_usd(idea: Idea) -> float:
    return idea.jobs[0].cost_usd + idea.jobs[1].cost_usd


def _ideas(state: ClusterState, leavers: dict[str, list[Leaver]], near: Collection[str]) -> Iterator[Idea]:
    """Those that would pay if nobody were slowed in the groups that come of them."""
    guess = Guess(state)
    for jobs, ways in _pairs(leavers, near):
        least = _least_usd(state, jobs)
        for groups in ways:
            most = guess.most_saved(jobs, groups, least)
            if most > least:
                yield Idea(most, jobs, groups)


def _pairs(
    leavers: dict[str, list[Leaver]], near: Collection[str]
) -> Iterator[tuple[tuple[Leaver, Leaver], list[tuple[str, str]]]]:
    """Two jobs, one of a group that has changed, with all ways in which they could go together."""
    for one in filter(leavers.__contains__, near):
        for other in leavers:
            if other == one:
                ways = _within(one, leavers)
                yield from ((pair, ways) for pair in combinations(leavers[one], 2))
            elif other not in near or one < other:
                ways = _between(one, other)
                yield from (((first, second), ways) for first in leavers[one] for second in leavers[other])


def _between(one: str, other: str) -> list[tuple[str, str]]:
    """Where a job of each of two groups could go: changed, both in one of them, one alone, or both away together."""
    return [(other, one), (other, other), (one, one), (NEW, one), (other, NEW), (NEW, NEW)]


def _within(one: str, leavers: Collection[str]) -> list[tuple[str, str]]:
    """Where two jobs of a group could go: to other nodes of it, one alone, or both away together."""
    return [(one, one), (NEW, one), (one, NEW), (NEW, NEW), *((other, other) for other in leavers if other != one)]


def bare(state: ClusterState, group: Group) -> weave.Company:
    """A group as if nobody were slowed there: a bound, which takes no play."""
    stays = [stay_of(state, record) for record in state.members(group)]
    slowdowns = {stay.member.job: 1.0 for stay in stays}
    return weave.Company(stays, until_us(stays, slowdowns), expected_usd(state, stays, slowdowns))


def _bounded(state: ClusterState, idea: Idea) -> Iterator[_Bounded]:
    """The places for it that no bound rules out."""
    empty = _without(state, idea.jobs)
    own = {str(leaver.record.group) for leaver in idea.jobs}
    touched = own | {group for group in idea.groups if group != NEW}
    before = sum(weave.company_of(state, state.groups[name]).usd for name in touched)
    rest = sum(bare(empty, empty.groups[name]).usd for name in touched if name in empty.groups)
    first, second = idea.jobs
    most = before - rest - _least_usd(state, idea.jobs)
    is_shared = idea.groups[0] == idea.groups[1]
    for one in _places(empty, first, idea.groups[0], most)[: None if is_shared else 1]:
        trial = _placed(empty, first, one.option.candidate)
        goes_to = one.option.candidate.group.name if is_shared else idea.groups[1]
        for other in _places(trial, second, goes_to, most - (0.0 if is_shared else one.least_usd)):
            added = one.least_usd + other.least_usd
            if is_shared:
                base = empty.groups.get(goes_to)
                added = _group_usd(trial, other) - (0.0 if base is None else bare(empty, base).usd)
            if added < most:
                yield _Bounded(before - rest - added, idea, empty, one.option, other.option)


def _group_usd(state: ClusterState, screened: weave.Screened) -> float:
    """Least dollars of the whole group that a job would join."""
    return screened.option.company.usd + screened.least_usd


def _places(state: ClusterState, leaver: Leaver, group: str, below_usd: float) -> list[weave.Screened]:
    """The ways into a group, or to be alone, that no bound rules out."""
    start_us = leaver.record.start_us
    if group == NEW:
        options = weave.by_itself(state, leaver.spec, start_us)
    elif group in state.groups:
        options = list(weave.into_groups(state, leaver.spec, [state.groups[group]], start_us, company=bare))
    else:
        return []
    return weave.screened(state, options, Told(), below_usd)


def _played(state: ClusterState, one: _Bounded) -> Two | None:
    """What it comes to as played, if that pays and keeps all promises."""
    first, second = one.idea.jobs
    trial = _placed(one.empty, first, one.first.candidate)
    end = _placed(trial, second, one.second.candidate)
    if one.first.candidate.group.name != one.second.candidate.group.name:
        judgement, _ = weave.judged(one.empty, one.first)
        if judgement.refused:
            return None
    judgement, _ = weave.judged(trial, one.second)
    if judgement.refused:
        return None
    saving = usd_saved(state, end, [leaver.name for leaver in one.idea.jobs])
    if saving < _least_usd(state, one.idea.jobs):
        return None
    return Two(saving - _cost_usd(one.idea), one.idea.jobs, (one.first.candidate, one.second.candidate))


def _without(state: ClusterState, jobs: Sequence[Leaver]) -> ClusterState:
    for leaver in jobs:
        state = without_record(state, state.jobs[leaver.name])
    return state


def _placed(state: ClusterState, leaver: Leaver, candidate: Candidate) -> ClusterState:
    """The state after a job that had left has started at its new place."""
    trial, progress = trial_of(state), leaver.record.progress
    progress = msgspec.structs.replace(progress, wall_us=progress.wall_us + leaver.record.start_us)
    change(trial, leaver.name, pin=candidate.pin, group=candidate.group.name, progress=progress)
    trial.groups_made += candidate.group.name not in trial.groups
    fold_group(trial, candidate.group)
    return trial
