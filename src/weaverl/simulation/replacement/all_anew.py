"""All running jobs placed anew at once: groups are dissolved, and their members placed one by one, in several orders.

What is cheapest in expected dollars is laid over the nodes that the jobs have, so that as many as can be stay where
they are. Neither is optimal: the best regrouping of a few jobs alone takes an exhaustive search, which is in
``scheduling.policies.regrouping``.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from weaverl.domain.cluster import PoolKind, Slot
from weaverl.domain.events import PlanProposed
from weaverl.domain.groups import Group, Move, Pin
from weaverl.domain.units import HOUR_US
from weaverl.scheduling.admission import Told
from weaverl.scheduling.expected_dollars import nodes_of_pin, stay_of
from weaverl.scheduling.index import index_of, trial_of
from weaverl.scheduling.movable import refusal
from weaverl.scheduling.placement import change, fold_group
from weaverl.scheduling.policies import weave
from weaverl.scheduling.state import ClusterState, JobRecord
from weaverl.scheduling.trial_moves import option_of, remaining_spec, without_record


class PlacedAnew(NamedTuple):
    """Where each of the jobs that move would be, and the expected dollars that are saved, cold starts taken off."""

    pins: dict[str, Pin]
    saved_usd: float


def all_anew(state: ClusterState) -> PlacedAnew | None:
    """The cheapest that was found; None where no job can be moved, or nodes are too few for one by itself.

    It may save less than nothing.
    """
    movable = [name for group in state.groups.values() if _is_known(state, group) for name in _movable(state, group)]
    before, found = expected_usd(state), list[PlacedAnew]()
    empty = state
    for name in movable:
        empty = without_record(empty, state.jobs[name])
    for order in _orders(state, movable):
        full = _filled(empty, state, order)
        if full is not None:
            moved = _moved(state, full, movable)
            starts = sum(_start_usd(state, state.jobs[name], pin) for name, pin in moved.items())
            found.append(PlacedAnew(moved, before - expected_usd(full) - starts))
    return max(found, key=lambda one: one.saved_usd, default=None)


def expected_usd(state: ClusterState) -> float:
    """Of all groups whose members' times are known, from now on."""
    known = (group for group in state.groups.values() if _is_known(state, group))
    return sum(weave.company_of(state, group).usd for group in known)


def _is_known(state: ClusterState, group: Group) -> bool:
    return all(record.profile is not None for record in state.members(group))


def _movable(state: ClusterState, group: Group) -> list[str]:
    return [name for name in group.members if not refusal(state, name, state.jobs[name].attempt, rescues=True)]


def _orders(state: ClusterState, names: Sequence[str]) -> Iterator[list[str]]:
    """Large ones first, long ones first, impatient ones first, and as they came."""
    stays = {name: stay_of(state, state.jobs[name]) for name in names}

    def usd_per_hour(name: str) -> float:
        return state.usd_per_hour(nodes_of_pin(stays[name].member.pin))

    yield sorted(names, key=lambda name: -usd_per_hour(name) * stays[name].left_us)
    yield sorted(names, key=lambda name: -stays[name].left_us)
    yield sorted(names, key=lambda name: stays[name].allowed)
    yield list(names)


def _filled(empty: ClusterState, state: ClusterState, order: Iterable[str]) -> ClusterState | None:
    """The state with the jobs placed again, each where it adds the fewest expected dollars."""
    full = empty
    for name in order:
        spec = remaining_spec(state.jobs[name])
        options = [weave.alone(full, spec), *weave.into_groups(full, spec, full.groups.values())]
        found = weave.cheapest(full, weave.screened(full, options, Told()), Told())
        if found is None:
            return None
        full = _placed(full, name, found.candidate.pin, found.candidate.group)
    return full


def _placed(state: ClusterState, name: str, pin: Pin | None, group: Group) -> ClusterState:
    trial = trial_of(state)
    change(trial, name, pin=pin, group=group.name)
    trial.groups_made += group.name not in trial.groups
    fold_group(trial, group)
    return trial


def _moved(state: ClusterState, full: ClusterState, names: Sequence[str]) -> dict[str, Pin]:
    """The jobs that are elsewhere by then, with their slots, the nodes renamed so that few are."""
    stay = set(state.jobs) - set(names)
    renamed = {
        node: node for group in full.groups.values() if not stay.isdisjoint(group.members) for node in group.nodes
    }
    pins = {name: (_pin(state, name), _pin(full, name)) for name in names}
    for old, new in sorted(pins.values(), key=lambda both: -state.usd_per_hour(nodes_of_pin(both[0]))):
        renamed |= _laid_over(old, new, renamed) or {}
    owned, asked = ({node for both in pins.values() for node in nodes_of_pin(both[side])} for side in (0, 1))
    taken = set(renamed.values())
    spare = sorted(owned - taken) + sorted(asked - owned - taken)
    for node in sorted(asked - renamed.keys()):
        renamed[node] = _like(state, node, spare)
        spare.remove(renamed[node])
    return {name: there for name, (old, new) in pins.items() if (there := _rename(new, renamed)) != old}


def _laid_over(old: Pin, new: Pin, renamed: Mapping[str, str]) -> dict[str, str] | None:
    """How the nodes of one pin become those of another besides what was renamed; None if they cannot."""
    found, taken = dict[str, str](), set(renamed.values())
    for pool in PoolKind:
        there, here = new.nodes(pool), old.nodes(pool)
        fixed = [renamed[node] for node in there if node in renamed]
        loose = [node for node in there if node not in renamed]
        free = [node for node in here if node not in fixed]
        if not set(fixed) <= set(here) or len(loose) != len(free) or not taken.isdisjoint(free):
            return None
        found |= dict(zip(loose, free, strict=True))
    return found


def _like(state: ClusterState, node: str, others: Iterable[str]) -> str:
    """The first node of the same pool: in a simulated cluster they are all alike."""
    pool = state.nodes[node].node.pool
    return next(other for other in others if state.nodes[other].node.pool is pool)


def _rename(pin: Pin, renamed: Mapping[str, str]) -> Pin:
    rollout, training = (
        tuple(sorted(Slot(renamed[slot.node], slot.device) for slot in slots)) for slots in (pin.rollout, pin.training)
    )
    return Pin(rollout, training)


def _pin(state: ClusterState, name: str) -> Pin:
    pin = state.jobs[name].pin
    assert pin is not None
    return pin


def _start_usd(state: ClusterState, record: JobRecord, pin: Pin) -> float:
    return state.usd_per_hour(nodes_of_pin(pin)) * record.start_us / HOUR_US


def towards(state: ClusterState, goal: dict[str, Pin]) -> Iterator[Move]:
    """The moves of a regrouping that can be made by now; the others wait for nodes and neighbours.

    Jobs that are where they should be, or gone, are taken out of ``goal``.
    """
    claimed = {node for move in state.moves.values() for node in nodes_of_pin(move.pin)}
    for name, pin in list(goal.items()):
        record = state.jobs.get(name)
        if record is None or record.pin == pin:
            del goal[name]
            continue
        if refusal(state, name, record.attempt, rescues=True):
            continue
        without = without_record(state, record)
        index = index_of(without)
        owners = {index.group_on(node) for node in nodes_of_pin(pin)} - {None}
        move = own_move(record, str(next(iter(owners), "") or ""), pin)
        is_new = not owners and claimed.isdisjoint(nodes_of_pin(pin))
        if (len(owners) == 1 or is_new) and not isinstance(option_of(state, without, record, move), str):
            claimed |= set(nodes_of_pin(pin))
            yield move


def own_move(record: JobRecord, group: str, pin: Pin) -> Move:
    """A move for its own sake: at its boundary it is not dropped because it saves nothing by itself."""
    name = record.spec.name
    return Move(job=name, attempt=record.attempt, group=group, pin=pin, rescues=name)


def plan_of(state: ClusterState, moves: Iterable[Move]) -> PlanProposed | None:
    """The moves as a plan, if there are any."""
    some = tuple(moves)
    return PlanProposed(base_version=state.version, moves=some) if some else None
