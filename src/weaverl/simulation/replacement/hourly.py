"""The baseline of drift: policy ``weave`` whose running jobs are regrouped every hour, and moves cost nothing.

A world for it takes no cold start after a move (``Costs.moved_start`` 0), and the scheduler's parameters let a job move
as often as it likes, from its first minute on.
"""

from collections.abc import Collection

import msgspec

from weaverl.domain.events import PlanProposed
from weaverl.domain.groups import Pin
from weaverl.domain.units import HOUR_US
from weaverl.scheduling.index import trial_of
from weaverl.scheduling.replanning import propose
from weaverl.scheduling.state import ClusterState, Parameters
from weaverl.simulation.replacement.all_anew import all_anew, plan_of, towards

_NO_LIMIT = 1_000_000
_EARLY_US = 180_000_000
"""The time that the scheduler knows is that of the last event, which may have been a while before the hour."""

LEAST_SAVING_USD = 0.5
"""Moves for less than that would go on for ever: expectations change by as much with every iteration."""

PARAMETERS = Parameters(max_moves_per_job=_NO_LIMIT, least_stay_us=0, review_us=round(HOUR_US))
"""Of a scheduler that takes such plans."""


class Hourly:
    """Plans every hour, for all jobs and all places; then for what has changed by that, until nothing is to be saved.

    ``searches``: then, once an hour, all jobs are placed anew at once, and if that is cheaper it is what is moved to.
    ``always``: between the hours too, whenever somebody comes or goes; a move has to save as much as under ``weave``
    then, as jobs are moved to and fro all the time otherwise.
    """

    def __init__(self, *, searches: bool = False, always: bool = False) -> None:
        self._due_at = round(HOUR_US)
        self._always, self._plans = always, False
        self._near: dict[str, None] = {}
        self._searches, self._has_searched = searches, False
        self._goal: dict[str, Pin] = {}

    def __call__(self, state: ClusterState, near: Collection[str], reviewed_at: int | None) -> PlanProposed | None:
        """The next moves of this hour's regrouping, once those before have been made or dropped."""
        if state.now >= self._due_at - _EARLY_US:
            while state.now >= self._due_at - _EARLY_US:
                self._due_at += round(HOUR_US)
            self._goal = {}
            self._has_searched = not self._searches
            return self._plan(state, None)
        self._near |= dict.fromkeys(near)
        if self._goal:
            return plan_of(state, towards(state, self._goal))
        if (self._always and near) or (self._plans and not state.moves):
            return self._plan(state, self._near)
        return None

    def _plan(self, state: ClusterState, near: Collection[str] | None) -> PlanProposed | None:
        trial = at_no_cost(state, state.parameters.least_saving_usd if self._always else LEAST_SAVING_USD)
        plan = propose(trial, near, _NO_LIMIT)
        self._plans, self._near = plan is not None, {}
        if plan is None and not self._has_searched:
            self._has_searched = self._plans = True
            found = all_anew(trial)
            if found is not None and found.saved_usd > LEAST_SAVING_USD:
                self._goal = found.pins
                return plan_of(state, towards(state, self._goal))
        return plan


def at_no_cost(state: ClusterState, least_saving_usd: float) -> ClusterState:
    """A state to plan on in which moves take no time, and need save so much, whatever they cost."""
    trial = trial_of(state)
    trial.parameters = msgspec.structs.replace(
        state.parameters, least_saving_usd=least_saving_usd, saving_over_cost=0.0
    )
    trial.jobs = {name: msgspec.structs.replace(record, start_us=0) for name, record in state.jobs.items()}
    return trial
