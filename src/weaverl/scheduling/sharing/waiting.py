"""The queue is served: who fits is placed, others make way, and what the time alone changes is looked at again."""

from collections.abc import Iterator

from weaverl.domain.commands import AnyCommand, SetTimer
from weaverl.domain.sharing import Sharing
from weaverl.scheduling import placement
from weaverl.scheduling.index import index_of
from weaverl.scheduling.sharing import preemption
from weaverl.scheduling.state import ClusterState

LOOK_SECONDS = 600.0
"""How often the queue is looked at while nothing happens: jobs age, fall due, and have stayed long enough."""


def serve(state: ClusterState) -> Iterator[AnyCommand]:
    """Place what fits in the queue. The caller folds each command at once."""
    yield from placement.place_queue(state)
    sharing = state.cluster.sharing
    if sharing is not None:
        yield from preemption.make_way(state, sharing)
        yield from _look_again(state, sharing)


def _look_again(state: ClusterState, sharing: Sharing) -> Iterator[SetTimer]:
    """While somebody runs and somebody waits. One timer at a time."""
    due = state.shares.looks_at
    if (due is None or due < state.now) and state.groups and index_of(state).queue():
        stay = LOOK_SECONDS if sharing.preemption is None else sharing.preemption.least_stay_seconds
        seconds = max(min(LOOK_SECONDS, sharing.ageing_seconds, stay), 1.0)
        at = state.now + round(seconds * 1e6)
        yield SetTimer(name=f"queue/{at}", at=at)
