"""Plans of moves, thought out aside on a copy of the scheduler's state, so that no hand-over waits for one.

What comes of it goes through the door as an event; a plan that was overtaken is refused there, and made anew.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor

import msgspec

from weaverl.domain.commands import AdmitJob, AnyCommand, LearnProfile, QueueJob, RefusePlan, RegroupJobs
from weaverl.domain.events import PlanProposed
from weaverl.scheduling.making_room import propose
from weaverl.scheduling.state import ClusterState


class Planner:
    """Thinks about one plan at a time: when somebody has joined or left a group, or has drifted, and now and then.

    On a fixed fleet also when a job has to wait: others may make room for it.
    """

    def __init__(self, think: Callable[[bytes, tuple[str, ...], bool], PlanProposed | None] | None = None) -> None:
        self._think = think or _think
        self._near: dict[str, None] = {}
        self._has_drifted = False
        self._thought_of: dict[str, None] = {}
        self._has_queued = False
        self._reviewed_at = 0
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
                self._near |= self._thought_of
                self._has_drifted = True  # whatever the plan was for, promises are looked at once more

    def look(self, state: ClusterState) -> PlanProposed | None:
        """The plan that has been thought out, if there is one; begins with the next if one is due."""
        if self._thinking is not None:
            if not self._thinking.done():
                return None
            plan, self._thinking = self._thinking.result(), None
            return plan
        makes_room = self._has_queued and state.parameters.for_throughput
        is_new = self._near or self._has_drifted or makes_room
        is_review = state.now - self._reviewed_at >= state.parameters.review_us
        if (is_new or is_review) and state.parameters.moves_jobs:
            self._thought_of, self._near = self._near, {}
            self._has_queued = self._has_drifted = False
            self._reviewed_at = state.now if is_review else self._reviewed_at
            given = msgspec.msgpack.encode(state), tuple(self._thought_of), is_review
            self._thinking = self._thread.submit(self._think, *given)
        return None

    def close(self) -> None:
        """Think no more."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _think(state: bytes, near: tuple[str, ...], is_review: bool) -> PlanProposed | None:
    return propose(msgspec.msgpack.decode(state, type=ClusterState), near, is_review)
