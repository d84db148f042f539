"""Moves that pay only together: which of them can be made by now, in what order, and what that saves.

Each is made at its own job's boundary, as any move is, and has to keep every promise there and then. A job whose place
is not to be had yet, as another of them has to leave it or to open its group first, goes on for one more iteration and
looks again. So whatever becomes of the others, nobody is where a promise is foreseen to be broken; what may be lost are
dollars, until the next plan.
"""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from weaverl.domain.groups import Move
from weaverl.scheduling.expected_dollars import nodes_of_pin
from weaverl.scheduling.group_rows import closed_reason
from weaverl.scheduling.index import index_of
from weaverl.scheduling.policies import weave
from weaverl.scheduling.state import ClusterState
from weaverl.scheduling.trial_moves import Option, option_of, placed, without_record


class Made(NamedTuple):
    """The state after moves, the moves in an order in which they can be made, and the dollars.

    ``saving_usd`` are the expected dollars that are saved, ``cost_usd``, that of the moves, taken off.
    """

    state: ClusterState
    moves: tuple[Move, ...]
    saving_usd: float
    cost_usd: float


def all_of(state: ClusterState, move: Move) -> list[Move]:
    """A move, and those that are still to be made of the others that it is made together with."""
    some = (state.moves.get(job) for job in move.together if job != move.job)
    others = [one for one in some if one is not None and one.together == move.together]
    return [move, *(one for one in others if state.jobs[one.job].pin is not None)]


def made(state: ClusterState, moves: Iterable[Move]) -> Made:
    """What comes of moves, each made as soon as it can be; those that cannot be made are left out."""
    trial, left, done, cost = state, list(moves), list[Move](), 0.0
    found = _first_that_can(trial, left)
    while found is not None:
        move, option = found
        trial = placed(trial, trial.jobs[move.job], option)
        trial.moves = {job: one for job, one in trial.moves.items() if job != move.job}
        left.remove(move)
        done.append(move)
        cost += option.cost_usd
        found = _first_that_can(trial, left)
    return Made(trial, tuple(done), _saved_usd(state, trial, done) - cost, cost)


def option_now(state: ClusterState, move: Move) -> tuple[Move, Option] | None:
    """A move with its group by name, and what it is worth by itself; None if it cannot be made now.

    Beside somebody who is yet to leave, with whom nobody has planned it, no promise may be without its whole reserve.
    """
    settled = _with_group(state, move)
    if settled is None:
        return None
    group = state.groups.get(settled.group)
    planned = group is None or not any(job in group.members for job in move.together if job in state.moves)
    record = state.jobs[move.job]
    option = option_of(state, without_record(state, record), record, settled, planned=planned)
    return None if isinstance(option, str) else (settled, option)


def is_closed(state: ClusterState, move: Move) -> bool:
    """Whether nobody may join the group of a move, or leave that of its job, for a while: somebody comes or leaves."""
    names = {move.group, state.jobs[move.job].group}
    return any(closed_reason(state, group) for name, group in state.groups.items() if name in names)


def after(state: ClusterState, moves: Iterable[Move]) -> ClusterState:
    """The state after planned moves, each job at the end of an iteration; those that would be dropped are not made."""
    left = list(moves)
    while left:
        some = [move for move in left if move is left[0] or (move.together and move.together == left[0].together)]
        left = [move for move in left if move not in some]
        joint = made(state, some)
        if joint.saving_usd > 0.0 or any(move.rescues for move in some):
            state = joint.state
    return state


def _first_that_can(state: ClusterState, moves: Iterable[Move]) -> tuple[Move, Option] | None:
    found = ((move, option_now(state, move)) for move in moves)
    return next(((move, now[1]) for move, now in found if now is not None), None)


def _with_group(state: ClusterState, move: Move) -> Move | None:
    """The move with the name of the group that another job opens; None while that job has not gone there."""
    if not move.joins:
        return move
    opener = state.jobs.get(move.joins)
    if opener is None or opener.group is None or move.joins in state.moves:
        return None
    index = index_of(state)
    if opener.group not in {index.group_on(node) for node in nodes_of_pin(move.pin)}:
        return None
    return msgspec.structs.replace(move, group=opener.group, joins="")


def _saved_usd(before: ClusterState, after: ClusterState, moves: Iterable[Move]) -> float:
    """What the groups of some jobs, those that they leave and those that they join, cost less."""
    names = {str(state.jobs[move.job].group) for move in moves for state in (before, after)}
    usd = [
        sum(weave.company_of(state, state.groups[name]).usd for name in sorted(names) if name in state.groups)
        for state in (before, after)
    ]
    return usd[0] - usd[1]
