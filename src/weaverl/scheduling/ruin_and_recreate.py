"""Regroupings: moves that pay only together, found by ruin and recreate (Schrimpf et al., 2000).

One move at a time does not find a swap, a job that makes place for another, or three that leave for nodes of their own.
So some jobs of two groups are taken out at once and put back one by one, each where it adds the fewest expected dollars
and keeps every promise: with what is left of the two groups, with others that were put back before it, or by itself.
That is tried with several pairs of groups, several jobs of them and in several orders, and the best is proposed if it
pays for its cold starts. A try costs as much as a few arrivals.
"""

from collections.abc import Collection, Sequence
from random import Random
from typing import NamedTuple

import msgspec

from weaverl.domain.groups import Group, Move
from weaverl.scheduling.admission import Told
from weaverl.scheduling.expected_dollars import stay_of
from weaverl.scheduling.joint_moves import Made, made
from weaverl.scheduling.movable import refusal
from weaverl.scheduling.objectives import least_later_usd
from weaverl.scheduling.policies import weave
from weaverl.scheduling.saving import may_save
from weaverl.scheduling.state import ClusterState, JobRecord
from weaverl.scheduling.trial_moves import put, remaining_spec, without_records

MOST_TAKEN_OUT = 5
"""Jobs in one try."""

FEW_JOBS = 10
"""Among more jobs one move at a time finds about as much, in a third of the time."""


class _Recreated(NamedTuple):
    """The state with all jobs put back, and those of them that are elsewhere there."""

    state: ClusterState
    moved: tuple[str, ...]


def regrouping(state: ClusterState, tries: int, begun: ClusterState | None = None) -> tuple[Move, ...]:
    """The moves to the best of some tries, in an order in which they can be made; empty if none pays.

    ``begun`` is where moves that have been found already lead to: they are among those returned then, as the tries go
    on from there, and each from the best before it. The same state gives the same answer.
    """
    if not are_few(state):
        return ()
    found = _Recreated(begun or state, _moved(state, begun or state))
    random, first = Random(f"{state.version} {state.now}"), _as_moves(state, found)
    best = first
    for _ in range(tries):
        groups = [group for group in found.state.groups.values() if _may_change(state, group)]
        if len(groups) < 2:
            break
        tried = _tried(state, found.state, random.sample(groups, 2), random)
        joint = first if tried is None else _as_moves(state, tried)
        if tried is not None and joint.saving_usd > best.saving_usd:
            found, best = tried, joint
    parameters = state.parameters
    cost_usd, saving_usd = best.cost_usd - first.cost_usd, best.saving_usd - first.saving_usd
    num_moves = max(len(best.moves) - len(first.moves), 1)
    least_usd = max((parameters.saving_over_cost - 1.0) * cost_usd, parameters.least_saving_usd * num_moves)
    if saving_usd <= least_usd:
        return ()
    return tuple(msgspec.structs.replace(move, saving_usd=best.saving_usd) for move in best.moves)


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


def _tried(before: ClusterState, now: ClusterState, groups: Sequence[Group], random: Random) -> _Recreated | None:
    """Some jobs of two groups taken out and put back; None if that is no cheaper.

    ``before``: where the jobs are.
    """
    able = [name for group in groups for name in group.members if _may_move(before, before.jobs[name])]
    if len(able) < 2:
        return None
    taken = random.sample(able, min(random.randint(2, MOST_TAKEN_OUT), len(able)))
    trial = without_records(now, [now.jobs[name] for name in taken])
    names = {group.name for group in groups}
    left_usd = _usd_of(now, names) - _usd_of(trial, names)
    later = {name: least_later_usd(stay_of(now, now.jobs[name])) for name in taken}
    for place, name in enumerate(taken, 1):
        record, others_usd = before.jobs[name], sum(later[other] for other in taken[place:])
        found = _cheapest(trial, record, names, left_usd - others_usd)
        if found is None:
            return None
        trial, left_usd = put(trial, record, found.candidate), left_usd - found.usd
        names.add(found.candidate.group.name)
    return _Recreated(trial, _moved(before, trial))


def _moved(before: ClusterState, now: ClusterState) -> tuple[str, ...]:
    return tuple(name for name, record in before.jobs.items() if now.jobs[name].pin != record.pin)


def _usd_of(state: ClusterState, names: Collection[str]) -> float:
    return sum(weave.company_of(state, state.groups[name]).usd for name in sorted(names) if name in state.groups)


def _may_move(state: ClusterState, record: JobRecord) -> bool:
    """Whether a job may move and saves, could afford one more cold start after that, and can wait for others.

    One whose next rollout may run beside training cannot: it would run dry at each boundary.
    """
    if record.spec.staleness or refusal(state, record.spec.name, record.attempt) or not may_save(record):
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


def _as_moves(state: ClusterState, found: _Recreated) -> Made:
    """The moves that lead there, if there is an order in which all of them can be made."""
    moves, openers = list[Move](), dict[str, str]()
    for name in found.moved:
        record = found.state.jobs[name]
        assert record.pin is not None and record.group is not None
        goes_on_from = _goes_on_from(state, found, found.state.groups[record.group])
        if goes_on_from is None:
            return Made(state, (), 0.0, 0.0)
        opener = name if goes_on_from else openers.setdefault(record.group, name)
        moves.append(
            Move(
                job=name,
                attempt=record.attempt,
                group=goes_on_from,
                pin=record.pin,
                joins="" if opener == name else opener,
                together=found.moved if len(found.moved) > 1 else (),
            )
        )
    joint = made(state, moves)
    return joint if len(joint.moves) == len(moves) else Made(state, (), 0.0, 0.0)


def _goes_on_from(state: ClusterState, found: _Recreated, group: Group) -> str | None:
    """The present group of those who stay in a group; empty if nobody does, None if they are of several."""
    present = {str(state.jobs[name].group) for name in group.members if name not in found.moved}
    return None if len(present) > 1 else next(iter(present), "")
