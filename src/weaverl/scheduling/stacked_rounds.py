"""The round model for many groups at once: do their rounds fit into given times?

All groups are simulated together. If from one round to a later one every phase has moved by at most ``budget`` a round,
then the steady round takes at most the budget; if every phase has moved by more, it takes more (the bounds of Collatz
and Wielandt in max-plus algebra; Baccelli et al., *Synchronization and Linearity*, 1992, section 3.2). What a few
rounds do not decide is relaxed until it settles or must not (Bellman-Ford). Whole microseconds: the answer is exact.
"""

from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

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
    unasked = np.where(np.concatenate((rounds.judged, rounds.judged)), 0, NEVER)
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
    """The exact steady round of each group: the greatest mean weight of a cycle of phases over the rounds it crosses.

    Karp, *A characterization of the minimum cycle mean in a digraph* (1978): of the heaviest paths from the last
    member's training that cross 0, 1, 2, ... rounds. The members judged must be linked.
    """
    num_members, num_groups = rounds.rest_us.shape
    heaviest = [np.full((2, num_members, num_groups), NEVER)]
    heaviest[0][1, -1] = 0
    for _ in range(2 * num_members):
        heaviest.append(_after_a_round(rounds, heaviest[-1]))
    paths = np.stack(heaviest).reshape(len(heaviest), 2 * num_members, num_groups)
    crossed = np.arange(len(paths) - 1, 0, -1)
    gained = paths[-1] - paths[:-1]
    means = gained / crossed[:, None, None]
    means[:, (paths[-1] < NEVER // 2) | ~np.concatenate((rounds.judged, rounds.judged))] = -np.inf
    least = means.argmin(0)
    phase = np.take_along_axis(means, least[None], 0)[0].argmax(0)
    groups = np.arange(num_groups)
    chosen = least[phase, groups]
    weights, lengths = gained[chosen, phase, groups].tolist(), crossed[chosen].tolist()
    return [Fraction(weight, length) for weight, length in zip(weights, lengths, strict=True)]


def _growth(ends: list[Ints], unasked: Ints, budget_us: Ints) -> tuple[Bools, Bools]:
    """Which groups are known to fit, and which not to, from how far the last round is behind those before it.

    ``unasked`` (phases, groups) is ``NEVER`` for phases that do not matter, 0 for the others.
    """
    fits = exceeds = np.zeros(len(budget_us), np.bool_)
    for rounds in range(1, min(len(ends), _WINDOWS + 1)):
        moved = (ends[-1] - ends[-1 - rounds]).reshape(unasked.shape)
        fits = fits | (np.maximum.reduce(moved + unasked) <= rounds * budget_us)
        exceeds = exceeds | (np.minimum.reduce(moved - unasked) > rounds * budget_us)
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
