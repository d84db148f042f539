"""Plans of moves on a fixed fleet: room for jobs that wait, by having others share.

A job that bears no neighbour waits for nodes of its own, for hours where everybody has some. So one that runs alone
moves in with others, at the cost of its cold start and of what they slow each other down, where that is less than what
is lost while the other waits. While anybody waits nobody moves onto free nodes: they are what is waited for.
"""

from collections.abc import Collection, Iterator

from weaverl.domain.events import PlanProposed
from weaverl.domain.groups import Move
from weaverl.domain.units import HOUR_US
from weaverl.scheduling import replanning
from weaverl.scheduling.admission import Told
from weaverl.scheduling.backfilling import expected_wait_us
from weaverl.scheduling.movable import may_leave
from weaverl.scheduling.placement import asked_spec, choose
from weaverl.scheduling.policies import weave
from weaverl.scheduling.prices import usd_alone
from weaverl.scheduling.progress import hangs
from weaverl.scheduling.sharing.order import in_turn
from weaverl.scheduling.state import ClusterState, JobRecord
from weaverl.scheduling.trial_moves import Option, cost_of, placed, remaining_spec, usd_freed, without_record

MOST_LOOKED_AT = 2
"""Of the jobs that wait, the first."""

MOST_MOVED = 2
"""Moves that make room for one job."""


def propose(
    state: ClusterState, near: Collection[str] | None = None, reviewed_at: int | None = None
) -> PlanProposed | None:
    """As `replanning.propose`; on a fixed fleet where jobs wait, moves that make room instead of those that pay."""
    waiting = list(in_turn(state)) if state.parameters.for_throughput else []
    plan = replanning.propose(state, near, reviewed_at=reviewed_at, only_rescues=bool(waiting))
    if plan is not None or not waiting:
        return plan
    for name in waiting[:MOST_LOOKED_AT]:
        if state.jobs[name].profile is not None and not _is_awaited(state, name):
            moves = _room_for(state, state.jobs[name])
            if moves:
                return PlanProposed(base_version=state.version, moves=moves)
    return None


def _is_awaited(state: ClusterState, job: str) -> bool:
    """Whether room for it is on its way."""
    moves = (move for move in state.moves.values() if job in (move.makes_room_for, move.paused_for))
    return any(not hangs(state.jobs[move.job], state.now) for move in moves)


def _room_for(state: ClusterState, waiting: JobRecord) -> tuple[Move, ...]:
    """The cheapest moves, one after the other, after which the job fits; none if they cost more than its wait."""
    spec = asked_spec(state, waiting)
    worth = usd_alone(state, spec) * min(expected_wait_us(state, spec), _MOST_WAIT_US) / HOUR_US
    trial, moves = state, list[Move]()
    while len(moves) < MOST_MOVED:
        option = min(_ways_out(trial, state, worth), key=lambda one: -one[1].saving_usd, default=None)
        if option is None:
            return ()
        record, way = option
        worth += way.saving_usd
        moves.append(replanning.move_of(trial, record, way, makes_room_for=waiting.spec.name))
        trial = placed(trial, record, way)
        if choose(trial, spec).chosen is not None:
            return tuple(moves)
    return ()


_MOST_WAIT_US = 1000 * HOUR_US


def _ways_out(trial: ClusterState, state: ClusterState, worth: float) -> Iterator[tuple[JobRecord, Option]]:
    """For each job that could leave a node empty, the group that it had best join, on nodes that are taken anyway."""
    for name, record in trial.jobs.items():
        if record.pin is None or record.pin is not state.jobs[name].pin:
            continue
        if not may_leave(trial, record) or hangs(record, trial.now) or not _frees_a_node(trial, record):
            continue
        option = _into_company(trial, record, worth)
        if option is not None:
            yield record, option


def _frees_a_node(state: ClusterState, record: JobRecord) -> bool:
    assert record.group is not None and record.pin is not None
    group = state.groups[record.group]
    others = (state.jobs[name].pin for name in group.members if name != record.spec.name)
    kept = {slot.node for pin in others if pin is not None for slot in pin.rollout + pin.training}
    return not kept.issuperset(group.nodes)


def _into_company(state: ClusterState, record: JobRecord, worth: float) -> Option | None:
    without, spec, told = without_record(state, record), remaining_spec(record), Told()
    options = [
        one
        for one in weave.into_groups(without, spec, without.groups.values(), record.start_us)
        if one.candidate.added_usd_per_hour == 0.0
    ]
    freed, cost = usd_freed(state, without, record), cost_of(state, record)
    below = freed + worth - (1.0 + state.parameters.saving_over_cost) * cost
    found = weave.cheapest(without, weave.screened(without, options, told, below), told, below_usd=below)
    return None if found is None else Option(found.candidate, freed - found.usd - cost, cost)
