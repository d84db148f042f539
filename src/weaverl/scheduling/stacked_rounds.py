"""The round model for many groups at once: do their rounds fit into given times?

All groups are simulated together. If from one round to a later one every phase has moved by at most ``budget`` a round,
then the steady round takes at most the budget; if every phase has moved by more, it takes more (the bounds of Collatz
and Wielandt in max-plus algebra; Baccelli et al., *Synchronization and Linearity*, 1992, section 3.2). What a few
rounds do not decide is relaxed until it settles or must not (Bellman-Ford). Whole microseconds: the answer is exact.
"""

from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weaverl.scheduling.round_model import Edge, greatest_ratio

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

NEVER = -(2**60)
"""Added to the end of a phase that is not waited for."""

_ROUNDS, _WINDOWS = 6, 3
"""Rounds that are simulated, and over how many at a time growth is looked at."""


class StackedRounds(NamedTuple):
    """Groups side by side on the last axis, their members in rotation order before it.

    ``held_us`` (pools, members, groups): how long a member holds its slots; ``rest_us`` (members, groups): sync and
    other. ``gap`` (pools, members, members, groups): 0 where the first shares a slot of the pool with the second,
    ``NEVER`` elsewhere. ``judged`` (members, groups): those that the answer is asked for, whole sets that share slots.
    """

    held_us: Ints
    rest_us: Ints
    gap: Ints
    judged: Bools

    def take(self, groups: Bools) -> "StackedRounds":
        """Some of the groups."""
        return StackedRounds(
            self.held_us[..., groups], self.rest_us[:, groups], self.gap[..., groups], self.judged[:, groups]
        )


def fit(rounds: StackedRounds, budget_us: Ints) -> Bools:
    """Whether each group's steady round takes at most its budget (groups,)."""
    num_groups = len(budget_us)
    answer = np.zeros(num_groups, np.bool_)
    asked = np.arange(num_groups)
    unasked = _unasked(rounds)
    ends = [_after_a_round(rounds, np.zeros(rounds.held_us.shape, np.int64))]
    for _ in range(_ROUNDS):
        ends.append(_after_a_round(rounds, ends[-1]))
        fits, exceeds = _growth(ends, unasked, budget_us)
        answer[asked[fits]] = True
        left = ~(fits | exceeds)
        if not left.any():
            return answer
        if np.count_nonzero(left) < 0.7 * len(asked):
            rounds, asked, budget_us, unasked = rounds.take(left), asked[left], budget_us[left], unasked[:, left]
            ends = [one[..., left] for one in ends]
    answer[asked] = _settles(rounds, ends[-1], budget_us)
    return answer


def cycles_us(rounds: StackedRounds) -> list[Fraction]:
    """The exact steady round of each group; the members judged must be linked.

    Once all phases move by the same over some rounds they always will; what does not repeat itself so soon is asked of
    its event graph.
    """
    found: dict[int, Fraction] = {}
    unasked = _unasked(rounds)
    ends = [_after_a_round(rounds, np.zeros(rounds.held_us.shape, np.int64))]
    num_groups = rounds.rest_us.shape[1]
    while len(found) < num_groups and len(ends) < _ROUNDS:
        ends.append(_after_a_round(rounds, ends[-1]))
        for window, (least, most) in _moved(ends, unasked):
            for group in np.flatnonzero(least == most).tolist():
                found.setdefault(group, Fraction(int(most[group]), window))
    return [found.get(group) or _cycle_of_graph(rounds, group) for group in range(num_groups)]


def _cycle_of_graph(rounds: StackedRounds, group: int) -> Fraction:
    """The round of one group by its event graph, with an edge for every two phases of which one waits for the other."""
    held, rest = rounds.held_us[..., group].tolist(), rounds.rest_us[:, group].tolist()
    members = np.flatnonzero(rounds.judged[:, group]).tolist()
    edges: list[Edge] = []
    for one in members:
        edges += [(2 * one, 2 * one + 1, held[0][one], 0), (2 * one + 1, 2 * one, held[1][one] + rest[one], 1)]
    for pool, one, other in np.argwhere(rounds.gap[..., group] == 0).tolist():
        if one in members:
            edges.append((2 * one + pool, 2 * other + pool, held[pool][one], int(other < one)))
    longest = max(held[0][one] + held[1][one] + rest[one] for one in members)
    return greatest_ratio(edges, 2 * len(rest), Fraction(longest))


def _unasked(rounds: StackedRounds) -> Ints:
    """``NEVER`` for the phases (phases, groups) of members that are not judged, 0 for the others."""
    return np.where(np.concatenate((rounds.judged, rounds.judged)), 0, NEVER)


def _moved(ends: list[Ints], unasked: Ints) -> Iterator[tuple[int, tuple[Ints, Ints]]]:
    """Over one, two, ... rounds up to the last: how far the phases that matter have moved at least and at most."""
    for rounds in range(1, min(len(ends), _WINDOWS + 1)):
        moved = (ends[-1] - ends[-1 - rounds]).reshape(unasked.shape)
        yield rounds, (np.minimum.reduce(moved - unasked), np.maximum.reduce(moved + unasked))


def _growth(ends: list[Ints], unasked: Ints, budget_us: Ints) -> tuple[Bools, Bools]:
    """Which groups are known to fit, and which not to, from how far the last round is behind those before it."""
    fits = exceeds = np.zeros(len(budget_us), np.bool_)
    for rounds, (least, most) in _moved(ends, unasked):
        fits = fits | (most <= rounds * budget_us)
        exceeds = exceeds | (least > rounds * budget_us)
        if (fits | exceeds).all():
            break
    return fits, exceeds


def _settles(rounds: StackedRounds, ends: Ints, budget_us: Ints) -> Bools:
    """Whether the ends come to rest if the budget is taken off every round: then no cycle is longer."""
    for _ in range(2 * len(rounds.rest_us)):
        ends = np.maximum(ends, _after_a_round(rounds, ends) - budget_us)
    later = _after_a_round(rounds, ends) - budget_us
    settled: Bools = np.logical_and.reduce((later <= ends) | ~rounds.judged, (0, 1))
    return settled


def _after_a_round(rounds: StackedRounds, ends: Ints) -> Ints:
    """Ends of the members' phases (2, members, groups) a round after ``ends``."""
    after = ends.copy()
    rollout, training = after
    latest = np.maximum.reduce
    for place, (rollout_us, training_us) in enumerate(rounds.held_us.swapaxes(0, 1)):
        start = training[place] + rounds.rest_us[place]
        np.maximum(start, latest(rollout + rounds.gap[0, place]), out=start)
        np.add(start, rollout_us, out=rollout[place])
        np.maximum(rollout[place], latest(training + rounds.gap[1, place]), out=start)
        np.add(start, training_us, out=training[place])
    return after
