"""Who could take a job in, asked of all groups at once: host memory, saturation and promises as columns.

A group that is ruled out by a bound (the host memory of its emptiest node, its busiest node, its longest member) costs
a few vector operations; what is left is put to the exact round model, all groups together. Memory is whole bytes and
time whole microseconds, so the answers are those of judging one group after the other.
"""

from collections.abc import Iterator
from enum import IntEnum
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weaverl.scheduling.group_table import CLOSED, FULL, GONE, NO_PART, ODD, OPEN, Both, GroupTable
from weaverl.scheduling.stacked_rounds import NEVER, Bools, Ints, StackedRounds, cycles_us, fit

_SIZES = (3, 6, 12)
"""Groups up to so many members are put to the round model together, so that one large group does not pad them all."""

_FEW = 2
"""So few groups are judged faster one by one."""

_CHUNK = 1024
"""Groups at a time: an early one may take the job, and the processor's cache holds no more."""


Rows = Ints | slice
"""Some groups: where they are neighbours, a slice copies nothing."""


class Answer(IntEnum):
    """What came of one group; ``TAKES`` it, or why not. ``ASK``: it has to be judged by itself."""

    GONE = GONE
    CLOSED = CLOSED
    NO_ROOM = OPEN
    BREAKS_PROMISE = 3
    TAKES = 4
    ASK = ODD


_NO_ROOM, _BREAKS_PROMISE, _TAKES, _ASK = (
    int(answer) for answer in (Answer.NO_ROOM, Answer.BREAKS_PROMISE, Answer.TAKES, Answer.ASK)
)


class Arrival(NamedTuple):
    """A job that asks for whole nodes: of both pools the times, the nodes and the host memory on each of them."""

    body_us: Both
    switch_us: Both
    rest_us: int
    allowed_us: int
    num_nodes: Both
    host_bytes: Both


class _Picked(NamedTuple):
    """The least loaded nodes of each group that hold the job (pools, groups): their bits, and the load of the last."""

    bits: Ints
    load_us: Ints


def first_answers(table: GroupTable, arrival: Arrival, opened: int) -> NDArray[np.int8]:
    """What each group answers at first sight, if so many of the rollout nodes are new; ``TAKES`` is not certain yet."""
    rollout_free, training_free = table["most_free"]
    roomy = training_free >= arrival.host_bytes[1]
    if opened < arrival.num_nodes[0]:
        roomy &= rollout_free >= arrival.host_bytes[0]
    answers: NDArray[np.int8] = table["standing"] + roomy * np.int8(Answer.TAKES - Answer.NO_ROOM)
    return answers


def takers(table: GroupTable, answers: NDArray[np.int8], arrival: Arrival, opened: int) -> Iterator[int]:
    """Groups that take the job, and those that have to be asked, in order; ``answers`` are completed on the way."""
    rows = np.flatnonzero(answers >= _TAKES)
    if len(rows) <= _FEW:
        answers[rows] = _ASK
    for at in range(0, len(rows), _CHUNK):
        some = rows[at : at + _CHUNK]
        regular = some[answers[some] == _TAKES]
        if len(regular):
            answers[regular] = judged_answers(table, regular, arrival, opened)
        yield from map(int, some[answers[some] >= _TAKES])


class Round(NamedTuple):
    """A group's exact round with the job, and the places of the members that it is the round of; the job's is last."""

    cycle_us: Fraction
    places: list[int]


def rounds_with(table: GroupTable, rows: Ints, arrival: Arrival, opened: int) -> list[Round]:
    """The rounds that groups with room would have."""
    size = int(table["num_members"][rows].max())
    stacked, _ = _stack(table, rows, size, arrival, _pick(table, rows, arrival, opened).bits)
    places = (np.flatnonzero(judged).tolist() for judged in stacked.judged.T)
    return [Round(*one) for one in zip(cycles_us(stacked), places, strict=True)]


def judged_answers(table: GroupTable, rows: Ints, arrival: Arrival, opened: int) -> NDArray[np.int8]:
    """The answers of some open groups, one or more, for certain."""
    first, last = int(rows[0]), int(rows[-1])
    if 2 * len(rows) > last - first:
        return _judged_answers(table, slice(first, last + 1), arrival, opened)[rows - first]
    return _judged_answers(table, rows, arrival, opened)


def _judged_answers(table: GroupTable, rows: Rows, arrival: Arrival, opened: int) -> NDArray[np.int8]:
    picked = _pick(table, rows, arrival, opened)
    sizes, is_one = table["num_members"][rows], table["num_parts"][rows] == 1
    bound = np.maximum(_least_round_us(arrival, picked), np.where(is_one, table["longest_us"][rows], 0))
    budget = np.minimum(np.where(is_one, table["least_allowed_us"][rows], FULL), arrival.allowed_us)
    answers = np.full(len(sizes), _BREAKS_PROMISE, np.int8)
    answers[np.logical_or.reduce(picked.load_us >= FULL)] = _NO_ROOM
    left = (bound <= budget) & (answers == _BREAKS_PROMISE) & (table["standing"][rows] == OPEN)
    for least, most in _size_classes(sizes[left]):
        asked = left & (sizes > least) & (sizes <= most)
        answers[asked] = np.where(_fit(table, rows, arrival, picked, asked), _TAKES, _BREAKS_PROMISE)
    return answers


def _fit(table: GroupTable, rows: Rows, arrival: Arrival, picked: _Picked, asked: Bools) -> Bools:
    """Whether the rounds of those asked fit; if they are most of neighbouring rows, all are computed, not copied."""
    size = int(table["num_members"][rows][asked].max())
    if isinstance(rows, slice) and 2 * np.count_nonzero(asked) > len(asked):
        return fit(*_stack(table, rows, size, arrival, picked.bits))[asked]
    chosen = np.flatnonzero(asked) + rows.start if isinstance(rows, slice) else rows[asked]
    return fit(*_stack(table, chosen, size, arrival, picked.bits[:, asked]))


def _size_classes(sizes: Ints) -> Iterator[tuple[int, int]]:
    """Bounds of the numbers of members that are put to the round model together; none without a group between them."""
    if len(sizes):
        smallest, largest = int(sizes.min()), int(sizes.max())
        for least, most in zip((0, *_SIZES), (*_SIZES, largest), strict=True):
            if smallest <= most and largest > least and ((sizes > least) & (sizes <= most)).any():
                yield least, most


def _pick(table: GroupTable, rows: Rows, arrival: Arrival, opened: int) -> _Picked:
    """The least loaded nodes with room; ties go to the first by name. Without enough of them the load is ``FULL``."""
    wanted = (arrival.num_nodes[0] - opened, arrival.num_nodes[1])
    needs = np.array(arrival.host_bytes)[:, None, None]
    load = np.where(table["free_bytes"][:, :, rows] >= needs, table["load_us"][:, :, rows], FULL)
    if max(wanted) == 1:
        picked = _Picked(np.int64(1) << load.argmin(1), np.minimum.reduce(load, 1))
    else:
        picked = _pick_several(load, wanted)
    if not wanted[0]:
        picked.bits[0], picked.load_us[0] = 0, 0
    return picked


def _pick_several(load: Ints, wanted: Both) -> _Picked:
    num_nodes = load.shape[1]
    order = load.argsort(1, kind="stable")
    picked = _Picked(np.zeros_like(load[:, 0]), np.full_like(load[:, 0], FULL))
    for pool, number in enumerate(wanted):
        if 0 < number <= num_nodes:
            chosen = order[pool, :number]
            picked.bits[pool] = np.bitwise_or.reduce(np.int64(1) << chosen)
            picked.load_us[pool] = np.take_along_axis(load[pool], chosen[-1:], 0)[0]
    return picked


def _least_round_us(arrival: Arrival, picked: _Picked) -> Ints:
    """What no round with the job can be shorter than: its own chain, and the nodes that it shares."""
    joins = picked.bits != 0
    held = np.array(arrival.body_us)[:, None] + np.where(joins, np.array(arrival.switch_us)[:, None], 0)
    busiest: Ints = np.maximum.reduce(np.where(joins, picked.load_us, 0) + held)
    bound: Ints = np.maximum(busiest, held.sum(0) + arrival.rest_us)
    return bound


def _stack(table: GroupTable, rows: Rows, size: int, arrival: Arrival, bits: Ints) -> tuple[StackedRounds, Ints]:
    """The rounds of groups of up to ``size`` members with the job as the last, and what each round may take.

    ``bits`` (pools, groups) are the nodes that the job is on.
    """
    num_groups = bits.shape[1]
    touched = (table["use"][:, :size, rows] & bits[:, None]) != 0
    body, switch = table["body_us"][:, :size, rows], table["switch_us"][:, :size, rows]
    held = np.empty((2, size + 1, num_groups), np.int64)
    held[:, :size] = body + np.where(table["shared"][:, :size, rows] | touched, switch, 0)
    held[:, size] = np.array(arrival.body_us)[:, None] + np.where(bits, np.array(arrival.switch_us)[:, None], 0)
    gap = np.full((2, size + 1, size + 1, num_groups), NEVER)
    gap[:, :size, :size] = table["gap"][:, :size, :size, rows]
    gap[:, size, :size] = gap[:, :size, size] = np.where(touched, 0, NEVER)
    rest = np.full((size + 1, num_groups), arrival.rest_us)
    rest[:size] = table["rest_us"][:size, rows]
    judged = np.ones((size + 1, num_groups), np.bool_)
    judged[:size] = _judged(table["part"][:size, rows], touched, table["num_parts"][rows])
    allowed = np.minimum.reduce(np.where(judged[:size], table["allowed_us"][:size, rows], arrival.allowed_us))
    return StackedRounds(held, rest, gap, judged), np.minimum(allowed, arrival.allowed_us)


def _judged(part: Ints, touched: Bools, num_parts: Ints) -> Bools:
    """Members of the parts that the job touches."""
    judged: Bools = part != NO_PART
    if num_parts.max() > 1:
        bits: Ints = np.where(np.logical_or.reduce(touched), np.int64(1) << part, 0)
        judged = (np.bitwise_or.reduce(bits) >> part & 1) != 0
    return judged
