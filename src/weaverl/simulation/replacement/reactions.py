"""What can be done when a job has drifted: nothing, moves of two kinds, stop and resubmit, or a regrouping of all jobs.

Each plans moves for the simulated world whenever a job has drifted (``Parameters.profile_error``), and at no other
time, so that nothing but the reaction to drift is compared. Whoever moves does so at the end of its iteration, from its
checkpoint, and pays its cold start.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import StrEnum
from time import process_time_ns

from weaverl.domain.commands import AnyCommand, LearnProfile
from weaverl.domain.events import AnyEvent, PlanProposed
from weaverl.domain.groups import Move, Pin
from weaverl.scheduling import placement
from weaverl.scheduling.movable import refusal
from weaverl.scheduling.replanning import propose
from weaverl.scheduling.state import ClusterState, JobRecord
from weaverl.scheduling.trial_moves import remaining_spec, without_record
from weaverl.simulation.replacement.all_anew import all_anew, own_move, plan_of, towards


class Reaction(StrEnum):
    """To the drift of a job. ``rescue`` is what policy ``weave`` does; ``incremental`` makes moves that pay as well."""

    NONE = "none"
    RESCUE = "rescue"
    INCREMENTAL = "incremental"
    RESUBMIT = "resubmit"
    GLOBAL = "global"


class Reacting:
    """Hears a run and plans what follows from drift; ``plan_ns`` is the processor time of each plan, if of no move."""

    def __init__(self, reaction: Reaction) -> None:
        self.plan_ns: list[int] = []
        self._reaction = reaction
        self._drifted: dict[str, None] = {}
        self._goal: dict[str, Pin] = {}

    def hear(self, event: AnyEvent, commands: Sequence[AnyCommand]) -> None:
        """Take note of who has drifted."""
        self._drifted |= dict.fromkeys(one.job for one in commands if isinstance(one, LearnProfile))

    def __call__(self, state: ClusterState, near: Collection[str], reviewed_at: int | None) -> PlanProposed | None:
        """The moves to be made now."""
        drifted, self._drifted = self._drifted, {}
        began = process_time_ns()
        moves = self._moves(state, [state.jobs[name] for name in drifted if name in state.jobs])
        if drifted:
            self.plan_ns.append(process_time_ns() - began)
        return plan_of(state, moves)

    def _moves(self, state: ClusterState, drifted: list[JobRecord]) -> tuple[Move, ...]:
        match self._reaction:
            case Reaction.RESCUE if drifted:
                return _proposed(state, ())
            case Reaction.INCREMENTAL if drifted:
                return _proposed(state, {record.group for record in drifted if record.group is not None})
            case Reaction.RESUBMIT:
                return tuple(_resubmissions(state, drifted))
            case Reaction.GLOBAL:
                if drifted:
                    found = all_anew(state)
                    self._goal = found.pins if found is not None and found.saved_usd > 0.0 else {}
                return tuple(towards(state, self._goal))
        return ()


def _proposed(state: ClusterState, near: Collection[str]) -> tuple[Move, ...]:
    plan = propose(state, near)
    return () if plan is None else plan.moves


def _resubmissions(state: ClusterState, drifted: Iterable[JobRecord]) -> Iterator[Move]:
    """Those who drifted are stopped, and placed as arrivals that bring their remaining work."""
    for record in drifted:
        if refusal(state, record.spec.name, record.attempt, rescues=True):
            continue
        without = without_record(state, record)
        chosen = placement.choose(without, remaining_spec(record)).chosen
        if chosen is not None and chosen.pin is not None:
            group = chosen.group.name if chosen.group.name in without.groups else ""
            yield own_move(record, group, chosen.pin)
