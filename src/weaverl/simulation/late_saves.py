"""How long slots took to come free where state had stayed on them after a phase, in a measured run."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from statistics import median

from weaverl.domain.cluster import Slot
from weaverl.domain.jobs import PhaseKind
from weaverl.domain.timeline import Interval


def late_saves(intervals: Iterable[Interval]) -> dict[str, int]:
    """Microseconds from the demand to save the state until the slots were free, by the token that had left it there.

    What another job waited for was measured whole. Of the others the save alone is known; the messages around it are
    taken to be as slow as they mostly were in this run, after a cold start or after a phase.
    """
    late = {one.token: _saved_late(one) for one in intervals if _saved_late(one) > 0}
    waited: dict[str, int] = {}
    messages: dict[bool, list[int]] = defaultdict(list)
    for before, after in _hand_overs(intervals):
        wait, saved = after.granted_at - max(after.requested_at, before.released_at), late.get(before.token)
        if saved is not None and wait >= saved:
            waited[before.token] = wait
            messages[before.phase is PhaseKind.LOADING].append(wait - saved)
    usual = {kind: round(median(some)) for kind, some in messages.items()}
    loads = {one.token for one in intervals if one.phase is PhaseKind.LOADING}
    return {token: waited.get(token, saved + usual.get(token in loads, 0)) for token, saved in late.items()}


def _saved_late(one: Interval) -> int:
    """What was saved after the phase had been left: nothing if the save was part of it."""
    return one.save_us - (one.released_at - one.ended_at)


def _hand_overs(intervals: Iterable[Interval]) -> Iterator[tuple[Interval, Interval]]:
    """Phases of two jobs, one after the other on a slot."""
    last: dict[Slot, Interval] = {}
    for one in sorted(intervals, key=lambda one: one.granted_at):
        before = {last[slot].token: last[slot] for slot in one.slots if slot in last}
        yield from ((other, one) for other in before.values() if other.job != one.job)
        last.update(dict.fromkeys(one.slots, one))
