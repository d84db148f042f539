"""The round model for many groups at once: do their rounds fit into given times?

A round fits into a budget if and only if the event graph has no positive cycle once the budget is taken off every
edge that crosses a round, so no eigenvalue has to be known. All groups are relaxed together, round by round
(Bellman-Ford in the order of the round). Times are whole microseconds, so the answer is exact.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

NEVER = -(2**60)
"""Added to the end of a phase that is not waited for."""


class StackedRounds(NamedTuple):
    """Groups side by side on the last axis, their members in rotation order on the first.

    ``*_us`` are (members, groups): how long a member holds its slots, and sync and other. ``*_gap`` are (members,
    members, groups): 0 where the first shares a slot of the pool with the second, ``NEVER`` elsewhere. ``judged`` are
    the members that the answer is asked for: whole sets of members that share slots.
    """

    rollout_us: Ints
    training_us: Ints
    rest_us: Ints
    rollout_gap: Ints
    training_gap: Ints
    judged: Bools

    def take(self, groups: Bools) -> "StackedRounds":
        """Some of the groups."""
        return StackedRounds(
            self.rollout_us[:, groups],
            self.training_us[:, groups],
            self.rest_us[:, groups],
            self.rollout_gap[..., groups],
            self.training_gap[..., groups],
            self.judged[:, groups],
        )


def fit(rounds: StackedRounds, budget_us: Ints) -> Bools:
    """Whether each group's steady round takes at most its budget (groups,)."""
    num_members, num_groups = rounds.rollout_us.shape
    answer = np.zeros(num_groups, np.bool_)
    open_groups = np.arange(num_groups)
    ends = np.zeros((2, num_members, num_groups), np.int64)
    ends = _after_a_round(rounds, ends, np.zeros(num_groups, np.int64))
    for _ in range(2 * num_members + 1):
        following = _after_a_round(rounds, ends, budget_us)
        idle = ~rounds.judged
        settled = ((following <= ends) | idle).all((0, 1))
        diverging = ((following > ends) | idle).all((0, 1))
        answer[open_groups[settled]] = True
        undecided: Bools = np.logical_not(settled | diverging)
        if not undecided.any():
            return answer
        ends = np.maximum(ends, following)
        if np.count_nonzero(undecided) < 0.7 * undecided.size:
            rounds, ends = rounds.take(undecided), ends[..., undecided]
            budget_us, open_groups = budget_us[undecided], open_groups[undecided]
    return answer


def _after_a_round(rounds: StackedRounds, ends: Ints, shift_us: Ints) -> Ints:
    """Ends of the members' phases (2, members, groups) one round after ``ends``, counted from ``shift_us`` later."""
    after = ends - shift_us
    rollout, training = after
    for place in range(len(rollout)):
        start = training[place] + rounds.rest_us[place]
        np.maximum(start, (rollout + rounds.rollout_gap[place]).max(0), out=start)
        np.add(start, rounds.rollout_us[place], out=rollout[place])
        np.maximum(rollout[place], (training + rounds.training_gap[place]).max(0), out=start)
        np.add(start, rounds.training_us[place], out=training[place])
    return after
