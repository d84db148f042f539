"""Regroupings: moves that pay only together, found by ruin and recreate (Schrimpf et al., 2000).

One move at a time does not find a swap, a job that makes place for another, or three that leave for nodes of their own.
So some jobs of two groups are taken out at once and put back one by one, each where it adds the fewest expected dollars
and keeps every promise: with what is left of the two groups, with others that were put back before it, or by itself.
That is tried again and again, with other pairs of groups, other jobs of them and in other orders, from what single
moves lead to and then from the best so far, never the same from there. What is better by enough is gone on from. A try
costs as much as a few arrivals.
"""

from collections.abc import Collection, Iterable, Sequence
from random import Random
from typing import NamedTuple

import msgspec

from weaverl.domain.groups import Group, Move
from weaverl.scheduling.admission import Told
from weaverl.scheduling.expected_dollars import stay_of
from weaverl.scheduling.index import trial_of
from weaverl.scheduling.joint_moves import Made, made
from weaverl.scheduling.movable import may_leave
from weaverl.scheduling.objectives import least_later_usd
from weaverl.scheduling.policies import weave
from weaverl.scheduling.state import ClusterState, JobRecord
from weaverl.scheduling.trial_moves import on_nodes_free_before, put, remaining_spec, without_records

MOST_TAKEN_OUT = 5
"""Jobs in one try."""

_DRAWS = 20
"""Of a choice, until one is found that has not been tried."""

FEW_JOBS = 10
"""Among more jobs one move at a time finds about as much, in a third of the time."""


class _Choice(NamedTuple):
    """Two groups, and some of their jobs in the order in which they are put back."""

    groups: frozenset[str]
    taken: tuple[str, ...]


class _Found(NamedTuple):
    """Where jobs are after moves, and what comes of the moves as they can be made."""

    state: ClusterState
    joint: Made


def regrouping(
    state: ClusterState, tries: int, moves: Sequence[Move] = (), begun: ClusterState | None = None
) -> tuple[Move, ...]:
    """The moves of the best of some tries, in an order in which they can be made; empty if none pays.

    ``moves`` are those that have been found already, and ``begun`` is where they lead to: tries go on from there, so
    that some of them may be among those returned. The same state gives the same answer.
    """
    best = _Found(begun or state, _worth(state, moves))
    random, pays, tried = Random(f"{state.version} {state.now}"), False, set[_Choice]()
    for _ in range(tries):
        choice = _new_choice(state, best.state, tried, random)
        if choice is None:
            break
        tried.add(choice)
        there = _put_back(state, best.state, choice)
        joint = None if there is None else _joint(state, there)
        if there is not None and joint is not None and _is_better(state, joint, best.joint):
            best, pays, tried = _Found(there, joint), True, set()
    return _each_needed(state, best) if pays else ()


def _new_choice(before: ClusterState, now: ClusterState, tried: Collection[_Choice], random: Random) -> _Choice | None:
    """One that has not been tried, if one is found; ``before``: where the jobs are."""
    groups = [group for group in now.groups.values() if _may_change(before, group)]
    for _ in range(_DRAWS if len(groups) > 1 else 0):
        two = random.sample(groups, 2)
        able = [name for group in two for name in group.members if _may_move(before, before.jobs[name])]
        taken = random.sample(able, min(random.randint(2, MOST_TAKEN_OUT), len(able)))
        choice = _Choice(frozenset(group.name for group in two), tuple(taken))
        if len(taken) > 1 and choice not in tried:
            return choice
    return None


def _is_better(state: ClusterState, joint: Made, best: Made) -> bool:
    """Whether moves save more, and enough for those that they are more than others."""
    parameters, saving_usd = state.parameters, joint.saving_usd - best.saving_usd
    least_usd = max(
        (parameters.saving_over_cost - 1.0) * (joint.cost_usd - best.cost_usd),
        parameters.least_saving_usd * (len(joint.moves) - len(best.moves)),
    )
    return saving_usd > max(least_usd, 0.0)


def are_few(state: ClusterState) -> bool:
    """Whether the jobs that are placed are so few that all are looked at, also for moves that pay only together."""
    return sum(len(group.members) for group in state.groups.values()) <= FEW_JOBS


def _may_change(state: ClusterState, group: Group) -> bool:
    """Whether a group's members are known and stay, and nobody is on the way to or from it."""
    if group.quantum_us or not (group.rollout_nodes and group.training_nodes):
        return False
    if any(one.profile is None or one.ending for one in state.members(group)):
        return False
    return not any(move.group == group.name or job in group.members for job, move in state.moves.items())


def _put_back(before: ClusterState, now: ClusterState, choice: _Choice) -> ClusterState | None:
    """The jobs taken out and put back one by one; None if that is no cheaper, whatever the moves cost.

    ``before``: where the jobs are.
    """
    names, taken = set(choice.groups), choice.taken
    trial = without_records(now, [now.jobs[name] for name in taken])
    left_usd = _usd_of(now, names) - _usd_of(trial, names)
    later = {name: least_later_usd(stay_of(now, now.jobs[name])) for name in taken}
    for place, name in enumerate(taken, 1):
        record, others_usd = before.jobs[name], sum(later[other] for other in taken[place:])
        found = _cheapest(trial, record, names, left_usd - others_usd)
        if found is None:
            return None
        candidate = on_nodes_free_before(before, trial, record, found.candidate)
        trial, left_usd = put(trial, record, candidate), left_usd - found.usd
        names.add(candidate.group.name)
    return trial


def _usd_of(state: ClusterState, names: Collection[str]) -> float:
    return sum(weave.company_of(state, state.groups[name]).usd for name in sorted(names) if name in state.groups)


def _may_move(state: ClusterState, record: JobRecord) -> bool:
    """Whether a job may move and saves, could afford one more cold start after that, and can wait for others.

    One whose next rollout may run beside training cannot: it would run dry at each boundary.
    """
    if record.spec.staleness or not may_leave(state, record):
        return False
    stay = stay_of(state, record)
    return (stay.allowed - 1.0) * stay.left_us >= 2 * record.start_us


def _cheapest(
    trial: ClusterState, record: JobRecord, names: Collection[str], below_usd: float
) -> weave.Cheapest | None:
    spec, told = remaining_spec(record), Told()
    groups = [group for name, group in trial.groups.items() if name in names]
    options = weave.by_itself(trial, spec, record.start_us)
    options += weave.into_groups(trial, spec, groups, record.start_us)
    screened = weave.screened(trial, options, told, below_usd)
    return weave.cheapest(trial, screened, told, below_usd=below_usd)


def _joint(state: ClusterState, there: ClusterState) -> Made | None:
    """The moves that lead there and what they are worth; None if there is no order in which all can be made.

    None also if one that cannot wait for others would have to.
    """
    moves, openers = list[Move](), dict[str, str]()
    for name in _moved(state, there):
        record = there.jobs[name]
        assert record.pin is not None and record.group is not None
        goes_on_from = _goes_on_from(state, there, there.groups[record.group])
        if goes_on_from is None:
            return None
        opener = name if goes_on_from else openers.setdefault(record.group, name)
        joins = "" if opener == name else opener
        moves.append(Move(job=name, attempt=record.attempt, group=goes_on_from, pin=record.pin, joins=joins))
    tied = _tied(state, there, moves)
    if any(move.together and not _may_move(state, state.jobs[move.job]) for move in tied):
        return None
    joint = _worth(state, tied)
    return joint if len(joint.moves) == len(moves) else None


def _tied(state: ClusterState, there: ClusterState, moves: Iterable[Move]) -> list[Move]:
    """The moves, those tied together that leave or join the same groups."""
    sets = list[tuple[set[str], list[Move]]]()
    for move in moves:
        touched, some = {str(state.jobs[move.job].group), str(there.jobs[move.job].group)}, [move]
        for one in [one for one in sets if one[0] & touched]:
            sets.remove(one)
            touched, some = touched | one[0], [*one[1], *some]
        sets.append((touched, some))
    tied = list[Move]()
    for _, some in sets:
        names = tuple(move.job for move in some) if len(some) > 1 else ()
        tied += [msgspec.structs.replace(move, together=names) for move in some]
    return tied


def _each_needed(state: ClusterState, found: _Found) -> tuple[Move, ...]:
    """The moves without those that the others do without, each with what is saved by those that it is tied to."""
    joint = found.joint
    for move in joint.moves:
        rest = _worth(state, _tied(state, found.state, [one for one in joint.moves if one.job != move.job]))
        if len(rest.moves) + 1 == len(joint.moves) and not _is_better(state, joint, rest):
            joint = rest
    return tuple(
        msgspec.structs.replace(move, saving_usd=_worth(state, _tied_to(move, joint.moves)).saving_usd)
        for move in joint.moves
    )


def _tied_to(move: Move, moves: Iterable[Move]) -> list[Move]:
    """The move and those that it is made together with."""
    return [one for one in moves if one is move or (move.together and one.together == move.together)]


def _worth(state: ClusterState, moves: Sequence[Move]) -> Made:
    """What comes of moves where all of them are planned, as at the boundary where the first is made."""
    planned = trial_of(state)
    planned.moves = {**state.moves, **{move.job: move for move in moves}}
    return made(planned, moves)


def _moved(before: ClusterState, there: ClusterState) -> tuple[str, ...]:
    return tuple(name for name, record in before.jobs.items() if there.jobs[name].pin != record.pin)


def _goes_on_from(state: ClusterState, there: ClusterState, group: Group) -> str | None:
    """The present group of those who stay in a group; empty if nobody does, None if they are of several."""
    stay = (name for name in group.members if there.jobs[name].pin == state.jobs[name].pin)
    present = {str(state.jobs[name].group) for name in stay}
    return None if len(present) > 1 else next(iter(present), "")
