"""Who could take a job in, asked of all groups at once: host memory, saturation and promises as columns.

A group that is ruled out by a bound (the host memory of its emptiest node, its busiest node, its longest member) costs
a few vector operations; what is left is put to the exact round model, all groups together. Memory is whole bytes and
time whole microseconds, so the answers are those of judging one group after the other.
"""

from collections.abc import Iterator
from enum import IntEnum
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weaverl.domain.jobs import HostMemory
from weaverl.scheduling.group_table import FULL, NO_PART, GroupTable
from weaverl.scheduling.round_model import Durations, Switches
from weaverl.scheduling.stacked_rounds import NEVER, Bools, Ints, StackedRounds, cycles_us, fit

_SIZES = (3, 6, 12)
"""Groups up to so many members are put to the round model together, so that one large group does not pad them all."""

_FEW = 2
"""So few groups are judged faster one by one."""

_FIRST_LOOK, _CHUNK = 32, 2048
"""Groups at a time: few at first, since an early one may take the job, and never more than the cache holds."""


class Answer(IntEnum):
    """What came of one group; ``TAKES`` it, or why not. ``ASK``: it has to be judged by itself."""

    GONE = 0
    CLOSED = 1
    NO_ROOM = 2
    BREAKS_PROMISE = 3
    TAKES = 4
    ASK = 5


class Arrival(NamedTuple):
    """A job that asks for whole nodes of both pools."""

    durations: Durations
    switches: Switches
    allowed_us: int
    host_memory: HostMemory
    rollout_nodes: int
    training_nodes: int


class _Picked(NamedTuple):
    """The least loaded nodes of each group that hold the job: their places (nodes, groups), the load of the last."""

    places: Ints
    load_us: Ints


def first_answers(table: GroupTable, arrival: Arrival, opened: int) -> NDArray[np.int8]:
    """What each group answers at first sight, if so many of the rollout nodes are new; ``TAKES`` is not certain yet."""
    answers = np.full(len(table), Answer.GONE, np.int8)
    answers[table["alive"]] = Answer.CLOSED
    answers[table["odd"]] = Answer.ASK
    roomy = table["open"]
    answers[roomy] = Answer.NO_ROOM
    roomy = roomy & (table["most_training_free"] >= arrival.host_memory.training_bytes)
    if opened < arrival.rollout_nodes:
        roomy &= table["most_rollout_free"] >= arrival.host_memory.rollout_bytes
    answers[roomy] = Answer.TAKES
    return answers


def takers(table: GroupTable, answers: NDArray[np.int8], arrival: Arrival, opened: int) -> Iterator[int]:
    """Groups that take the job, and those that have to be asked, in order; ``answers`` are completed on the way."""
    rows = np.flatnonzero(answers >= Answer.TAKES)
    if len(rows) <= _FEW:
        answers[rows] = Answer.ASK
    at, size = 0, _FIRST_LOOK
    while at < len(rows):
        some = rows[at : at + size]
        regular = some[answers[some] == Answer.TAKES]
        if len(regular):
            answers[regular] = judged_answers(table, regular, arrival, opened)
        yield from map(int, some[answers[some] >= Answer.TAKES])
        at, size = at + size, min(size * 4, _CHUNK)


class Round(NamedTuple):
    """A group's exact round with the job, and the places of the members that it is the round of; the job's is last."""

    cycle_us: Fraction
    places: list[int]


def rounds_with(table: GroupTable, rows: Ints, arrival: Arrival, opened: int) -> list[Round]:
    """The rounds that groups with room would have."""
    kept, memory = arrival.rollout_nodes - opened, arrival.host_memory
    training = _pick(table, rows, "training", memory.training_bytes, arrival.training_nodes).places
    rollout = _places(_pick(table, rows, "rollout", memory.rollout_bytes, kept) if kept else None, np.arange(len(rows)))
    stacked, _ = _stack(table, rows, arrival, rollout, training)
    places = (np.flatnonzero(judged).tolist() for judged in stacked.judged.T)
    return [Round(*one) for one in zip(cycles_us(stacked), places, strict=True)]


def judged_answers(table: GroupTable, rows: Ints, arrival: Arrival, opened: int) -> NDArray[np.int8]:
    """The answers of some open groups, for certain."""
    kept = arrival.rollout_nodes - opened
    memory = arrival.host_memory
    training = _pick(table, rows, "training", memory.training_bytes, arrival.training_nodes)
    rollout = _pick(table, rows, "rollout", memory.rollout_bytes, kept) if kept else None
    bound = _least_round_us(table, rows, arrival, rollout, training)
    is_one = table["num_parts"][rows] == 1
    budget = np.where(is_one, np.minimum(table["least_allowed_us"][rows], arrival.allowed_us), arrival.allowed_us)
    found = np.full(len(rows), Answer.BREAKS_PROMISE, np.int8)
    found[training.load_us >= FULL] = Answer.NO_ROOM
    if rollout is not None:
        found[rollout.load_us >= FULL] = Answer.NO_ROOM
    left = np.flatnonzero((bound <= budget) & (found == Answer.BREAKS_PROMISE))
    sizes = table["num_members"][rows[left]]
    for least, most in zip((0, *_SIZES), (*_SIZES, FULL), strict=True):
        some = left[(sizes > least) & (sizes <= most)]
        if len(some):
            rounds, allowed = _stack(table, rows[some], arrival, _places(rollout, some), training.places[:, some])
            found[some[fit(rounds, allowed)]] = Answer.TAKES
    return found


def _places(picked: _Picked | None, groups: Ints) -> Ints:
    return np.empty((0, len(groups)), np.int64) if picked is None else picked.places[:, groups]


def _pick(table: GroupTable, rows: Ints, pool: str, needs_bytes: int, num_nodes: int) -> _Picked:
    """The least loaded nodes with room; ties go to the first by name. Without enough of them the load is ``FULL``."""
    load = np.where(table[f"{pool}_free_bytes"][:, rows] >= needs_bytes, table[f"{pool}_load_us"][:, rows], FULL)
    if num_nodes > len(load):
        return _Picked(np.zeros((num_nodes, len(rows)), np.int64), np.full(len(rows), FULL))
    if num_nodes == 1:
        place = load.argmin(0)
        return _Picked(place[None], load.min(0))
    places = load.argsort(0, kind="stable")[:num_nodes]
    return _Picked(places, np.take_along_axis(load, places[-1:], 0)[0])


def _least_round_us(
    table: GroupTable, rows: Ints, arrival: Arrival, rollout: _Picked | None, training: _Picked
) -> Ints:
    """What no round with the job can be shorter than: its own chain, the longest member's, the nodes it shares."""
    times, switches = arrival.durations, arrival.switches
    rollout_us = times.rollout_us + (switches.rollout_us if rollout is not None else 0)
    training_us = times.training_us + switches.training_us
    bound = np.maximum(training.load_us + training_us, rollout_us + training_us + times.sync_us + times.other_us)
    if rollout is not None:
        bound = np.maximum(bound, rollout.load_us + rollout_us)
    return np.where(table["num_parts"][rows] == 1, np.maximum(bound, table["longest_us"][rows]), bound)


def _stack(
    table: GroupTable, rows: Ints, arrival: Arrival, rollout: Ints, training: Ints
) -> tuple[StackedRounds, Ints]:
    """The groups' rounds with the job as the last member on the nodes given by place, and what each may take."""
    size = int(table["num_members"][rows].max())

    def column(name: str) -> NDArray[Any]:
        return table[name][:size, rows]

    times, switches, part = arrival.durations, arrival.switches, column("part")
    touches = [_touched(column("rollout_use"), rollout), _touched(column("training_use"), training)]
    judged = _judged(part, touches[0] | touches[1], table["num_parts"][rows])
    allowed = np.where(judged[:-1], column("allowed_us"), FULL).min(0)
    rounds = StackedRounds(
        _held_us(column, "rollout", touches[0], times.rollout_us, switches.rollout_us),
        _held_us(column, "training", touches[1], times.training_us, switches.training_us),
        _with_last(column("rest_us"), times.sync_us + times.other_us),
        _gaps(table["rollout_pair"][:size, :size, rows], touches[0]),
        _gaps(table["training_pair"][:size, :size, rows], touches[1]),
        judged,
    )
    return rounds, np.minimum(allowed, arrival.allowed_us)


def _touched(use: Ints, places: Ints) -> Bools:
    """Which members (members, groups) have one of the places (nodes, groups)."""
    bits: Ints = np.bitwise_or.reduce(np.int64(1) << places, 0)
    touched: Bools = (use & bits) != 0
    return touched


def _judged(part: Ints, touched: Bools, num_parts: Ints) -> Bools:
    """Members of the parts that the job touches, and the job."""
    if num_parts.max() == 1:
        judged = part != NO_PART
    else:
        merged = np.bitwise_or.reduce(np.where(touched, np.int64(1) << part, 0), 0)
        judged = (merged >> part & 1) != 0
    return np.concatenate((judged, np.ones((1, part.shape[1]), np.bool_)))


def _held_us(column: Any, pool: str, touched: Bools, own_us: int, own_switch_us: int) -> Ints:
    """How long each member holds its slots: a switch is paid where they are shared, with the job if not before."""
    shared = column(f"{pool}_shared") | touched
    held = column(f"{pool}_us") + np.where(shared, column(f"{pool}_switch_us"), 0)
    return np.concatenate((held, (own_us + np.where(touched.any(0), own_switch_us, 0))[None]))


def _with_last(column: Ints, last: int) -> Ints:
    return np.concatenate((column, np.full((1, column.shape[1]), last)))


def _gaps(pair: Bools, touched: Bools) -> Ints:
    size, num_groups = touched.shape
    shared = np.zeros((size + 1, size + 1, num_groups), np.bool_)
    shared[:size, :size], shared[size, :size], shared[:size, size] = pair, touched, touched
    return np.where(shared, 0, NEVER)
