"""Tails of rollouts: the last long responses go on on a few slots, and the next job's rollout starts on the others.

The rules, in full:

- A job says that its rollout is down to its tail, and which of its slots it would keep (``TailReached``). That alone
  frees nothing. A token that is not the permit's, a phase that is no rollout, or a ``keep`` that is not a true part of
  the permit's slots changes nothing, nor does a second word on the same permit.
- It is told to move (``MoveTail``) as soon as another job asks for a rollout, has its turn, wants slots outside
  ``keep``, and would have at least one slot to start on if all the tails in its way had moved. A slot that is held by
  anything but a tail, or promised to another permit, keeps the asking job waiting as ever.
- When each rank that had state there has moved (``TailMoved``) or ended its phase clean, the slots outside ``keep``
  are free. If a rank ended and left its state, nothing is free before the phase ends.
- The next rollout is granted the free slots; ``GrantPermit.later`` names those that tails keep. They are promised:
  nobody else gets them before, and as they come free (and clean) the permit is widened (``WidenPermit``).
- A permit that reaches its own tail, or whose job is ending, is promised nothing any more. A job that is ending moves
  nothing either; its slots come free when its death is confirmed, or with the end of its phase.
- ``PhaseEnded`` ends a permit with all of this, moved or not.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from weaverl.domain.cluster import Slot
from weaverl.domain.commands import GrantPermit, MoveTail, WidenPermit
from weaverl.domain.events import TailReached
from weaverl.scheduling.rings import Member, Rings, Seat
from weaverl.scheduling.rotation_state import Permit, Tail


class TailRule(msgspec.Struct, frozen=True):
    """How a rollout's tail goes on: on which share of the slots, how many times as long, after how long a move."""

    keep: float = 0.25
    stretch: float = 1.05
    move_us: int = 1_000_000


PUBLISHED_TAIL = TailRule()


def book(permit: Permit, at: int) -> None:
    """Fold that time went by on the slots held since it was booked last: the rollout goes at their share of the pace.

    In its own tail a rollout is as fast on few slots, and a permit is promised nothing more by then.
    """
    if missing := len(permit.grant.later):
        permit.lost_us += (at - permit.since) * missing // (missing + len(permit.grant.slots))
    permit.since = at


def reached(permit: Permit, event: TailReached) -> None:
    """Fold the word that a tail is reached: the permit is promised nothing more."""
    permit.tail = Tail(event.keep)
    if permit.grant.later:
        book(permit, event.at)
        permit.grant = msgspec.structs.replace(permit.grant, later=())


def told(permit: Permit, at: int) -> None:
    """Fold the demand to move."""
    assert permit.tail is not None
    permit.tail.unmoved, permit.tail.told_at = list(permit.open_ranks), at


def book_move(permit: Permit, at: int, rule: TailRule = PUBLISHED_TAIL) -> None:
    """Fold that a phase has ended whose tail was told to move: what the move has cost it is no solo time.

    Nobody can measure how long the tail would have taken where it was; the rule says by how much it was stretched.
    """
    if permit.tail is not None and permit.tail.told_at is not None:
        since_us = at - permit.tail.told_at
        move_us = min(rule.move_us, since_us)
        permit.lost_us += move_us + round((since_us - move_us) * (1.0 - 1.0 / rule.stretch))


def rank_moved(permit: Permit, rank: int) -> bool:
    """Fold that nothing of a rank is left outside of ``keep``; whether it was the last one."""
    tail = permit.tail
    if tail is None or tail.unmoved is None or rank not in tail.unmoved:
        return False
    tail.unmoved.remove(rank)
    if tail.unmoved:
        return False
    permit.grant = msgspec.structs.replace(permit.grant, slots=tail.keep)
    return True


def widened(permit: Permit, command: WidenPermit, at: int) -> None:
    """Fold that promised slots are the permit's now."""
    book(permit, at)
    gained = set(command.slots)
    later = tuple(slot for slot in permit.grant.later if slot not in gained)
    permit.grant = msgspec.structs.replace(permit.grant, slots=permit.grant.slots + command.slots, later=later)


def silenced(permit: Permit) -> None:
    """Fold that the job is ending."""
    permit.grant = msgspec.structs.replace(permit.grant, later=())
    if permit.tail is not None and permit.tail.unmoved != []:
        permit.tail = None


def kept_of(members: Iterable[Member], seat: Seat) -> int | None:
    """The bits of a seat that tails keep; None if anything else is in the way, or nothing would be left to start on."""
    kept = 0
    for member in members:
        held = member.holds & seat.mask
        if member.later & seat.mask or (held and not member.keeps):
            return None
        kept |= held & member.keeps
    return kept if seat.mask & ~kept else None


def move(rings: Rings, permits: Mapping[str, Permit], wanted: int) -> Iterator[MoveTail]:
    """Demands on the tails that are on wanted slots; one of which a rank has ended and left state can not be moved."""
    for permit in permits.values():
        tail, grant = permit.tail, permit.grant
        if tail is None or tail.unmoved is not None or permit.dirty_ranks:
            continue
        if rings.members[grant.job].holds & wanted:
            yield MoveTail(
                job=grant.job,
                attempt=grant.attempt,
                role=grant.role,
                token=grant.token,
                keep=tail.keep,
                ranks=grant.ranks,
            )


def widen(grant: GrantPermit, slots: tuple[Slot, ...]) -> WidenPermit:
    """The promised slots go to the permit."""
    return WidenPermit(
        job=grant.job, attempt=grant.attempt, role=grant.role, token=grant.token, slots=slots, ranks=grant.ranks
    )
