"""Plans of moves, thought out aside on a copy of the scheduler's state, so that no hand-over waits for one.

What comes of it goes through the door as an event; a plan that was overtaken is refused there, and made anew.
"""

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor

import msgspec

from weaverl.domain.commands import AdmitJob, AnyCommand, LearnProfile, QueueJob, RefusePlan, RegroupJobs
from weaverl.domain.events import PlanProposed
from weaverl.scheduling.making_room import propose
from weaverl.scheduling.state import ClusterState

logger = logging.getLogger("weaverl.controller")

Think = Callable[[bytes, tuple[str, ...], int | None], PlanProposed | None]
"""Plans for an encoded state, the groups that have changed, and at a review the time of the last one."""


class Planner:
    """Thinks about one plan at a time: when somebody has joined or left a group, or has drifted, and now and then.

    On a fixed fleet also when a job has to wait: others may make room for it.
    """

    def __init__(self, think: Think | None = None) -> None:
        self._think = think or _think
        self._near: dict[str, None] = {}
        self._has_drifted = False
        self._thought_of: dict[str, None] = {}
        self._has_queued = False
        self._reviewed_at = self._reviewed_before = 0
        self._thinking: Future[PlanProposed | None] | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="weaverl-planner")

    def hear(self, commands: Iterable[AnyCommand]) -> None:
        """Take note of what was decided."""
        for command in commands:
            if isinstance(command, AdmitJob | RegroupJobs):
                self._near[command.group.name] = None
            elif isinstance(command, QueueJob):
                self._has_queued = True
            elif isinstance(command, LearnProfile):
                self._has_drifted = True
            elif isinstance(command, RefusePlan):
                # Whatever the plan was for is looked at once more.
                self._near |= self._thought_of
                self._has_drifted, self._reviewed_at = True, self._reviewed_before

    def look(self, state: ClusterState) -> PlanProposed | None:
        """The plan that has been thought out, if there is one; begins with the next if one is due."""
        if self._thinking is not None:
            if not self._thinking.done():
                return None
            thought, self._thinking = self._thinking, None
            return _plan_of(thought)
        makes_room = self._has_queued and state.parameters.for_throughput
        is_new = self._near or self._has_drifted or makes_room
        is_review = state.now - self._reviewed_at >= state.parameters.review_us
        if (is_new or is_review) and state.parameters.moves_jobs:
            self._thought_of, self._near = self._near, {}
            self._has_queued = self._has_drifted = False
            self._reviewed_before = self._reviewed_at
            self._reviewed_at = state.now if is_review else self._reviewed_at
            reviewed_at = self._reviewed_before if is_review else None
            given = msgspec.msgpack.encode(state), tuple(self._thought_of), reviewed_at
            self._thinking = self._thread.submit(self._think, *given)
        return None

    def close(self) -> None:
        """Think no more."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _plan_of(thought: Future[PlanProposed | None]) -> PlanProposed | None:
    """What has been thought out. A plan is only advice: one that fails is none, as the jobs' permits go on without."""
    error = thought.exception()
    if error is None:
        return thought.result()
    if not isinstance(error, Exception):
        raise error
    logger.error("no plan of moves, as it failed; the next is made in its time", exc_info=error)
    return None


def _think(state: bytes, near: tuple[str, ...], reviewed_at: int | None) -> PlanProposed | None:
    return propose(msgspec.msgpack.decode(state, type=ClusterState), near, reviewed_at)
