"""Rings of one group: who sits on which slots, in which order they take turns, and who waits for whom.

Sets of slots and of jobs are bits of an int here, so that an event costs a few ``&``; all but the lanes is derived,
and worked out anew when the group changes.
"""

from collections.abc import Container, Iterable, Mapping, Sequence

import msgspec

from weaverl.domain.cluster import PoolKind, Slot
from weaverl.domain.commands import GrantPermit
from weaverl.domain.events import PermitRequested
from weaverl.domain.groups import Group, Pin
from weaverl.scheduling.rotation_state import Lane, key_of

_ROLLOUT, _TRAINING = PoolKind.ROLLOUT, PoolKind.TRAINING


class Seat(msgspec.Struct, eq=False, frozen=True):
    """A member's slots in a pool: their bits, their nodes, and the lanes that they are made of.

    ``bit`` is that of whoever may hold one permit at a time: the member, or its phases of this pool alone if it may
    hold one in each. The permit is kept under ``key``.
    """

    slots: tuple[Slot, ...]
    mask: int
    nodes: tuple[str, ...]
    lanes: tuple[Lane, ...]
    bit: int
    key: str


class Member(msgspec.Struct, eq=False):
    """A job of the group: its own bits, its seats, and bits of slots.

    ``holds``: those of its permits; ``later``: those that the permit is promised; ``keeps``: those that its tail keeps,
    or would; ``lingers``: those that its state is on after a phase. ``ranks``: how many there are of each role that is
    known to be registered whole. ``blocked_us``: how long another's phase on its slots takes at most, if it was asked;
    ``beside``: whether its state has room beside others' phases, by what was asked; ``held_us``: how long its rollout
    and training hold their slots, and what passes from there to the next rollout, by its mean times, if it was asked;
    ``ahead``: its next rollout may run beside training, so that it may hold a permit in each pool.
    """

    name: str
    bit: int
    rollout: Seat
    training: Seat
    holds: int = 0
    later: int = 0
    keeps: int = 0
    lingers: int = 0
    ranks: dict[str, int] = {}
    blocked_us: int | None = None
    ahead: bool = False
    beside: dict[str, bool] = {}
    held_us: tuple[int, int, int] | None = None

    def seat(self, pool: PoolKind) -> Seat:
        """Its slots in a pool."""
        return self.rollout if pool is _ROLLOUT else self.training

    @property
    def is_on_one_pool(self) -> bool:
        """Whether both phases use the same slots."""
        return bool(self.rollout.mask & self.training.mask)

    @property
    def is_in_one_ring(self) -> bool:
        """Whether both phases take turns in the same ring."""
        return any(lane is other for lane in self.rollout.lanes for other in self.training.lanes)


class Rings:
    """The rings of a group's lanes. ``lanes`` is the state's own list."""

    def __init__(self, lanes: list[Lane]) -> None:
        self.members: dict[str, Member] = {}
        self.shared = 0
        self._lanes = lanes
        self._bits: dict[Slot, int] = {}
        self._order: tuple[str, ...] = ()
        self._in_quanta = False
        self._linked: dict[str, int] = {}

    def regroup(self, group: Group, pins: Mapping[str, Pin], ahead: Container[str] = ()) -> None:
        """Seat the members where they are pinned. With a quantum all slots are one lane.

        Those that run ``ahead`` may hold a permit in each pool.
        """
        self._order, self._in_quanta, self._linked = group.members, group.quantum_us > 0, {}
        self._lanes[:] = _one_lane(self._lanes, pins) if self._in_quanta else _refined(self._lanes, pins)
        masks = [self.mask(lane.slots) for lane in self._lanes]
        self.members, bit = {}, 1
        for name, pin in pins.items():
            bits, keys = (bit, bit), (name, name)
            if name in ahead:
                bits, keys = (bit, bit << 1), (key_of(name, _ROLLOUT), key_of(name, _TRAINING))
            rollout = self._seat(pin.rollout, masks, bits[0], keys[0])
            training = self._seat(pin.training, masks, bits[1], keys[1])
            self.members[name] = Member(name, bits[0] | bits[1], rollout, training, ahead=name in ahead)
            bit = bits[1] << 1
        self.shared = _shared(self.members.values())

    def forget_times(self) -> None:
        """What members' phases take has changed."""
        for member in self.members.values():
            member.blocked_us = member.held_us = None

    def mask(self, slots: Iterable[Slot]) -> int:
        """The bits of slots."""
        mask = 0
        for slot in slots:
            mask |= self._bits.setdefault(slot, 1 << len(self._bits))
        return mask

    def mask_of(self, grant: GrantPermit) -> int:
        """The bits of a grant's slots: mostly a whole seat's, which is seen at once."""
        member = self.members.get(grant.job)
        if member is not None and grant.slots is (seat := member.seat(grant.pool)).slots:
            return seat.mask
        return self.mask(grant.slots)

    def slots(self, seat: Seat, mask: int) -> tuple[Slot, ...]:
        """The slots of a seat whose bits are in the mask."""
        return seat.slots if mask == seat.mask else tuple(slot for slot in seat.slots if self._bits[slot] & mask)

    def join(self, name: str, seat: Seat, waiting: Sequence[PermitRequested]) -> None:
        """Give a job that asks its place in the rings of its slots."""
        for lane in seat.lanes:
            if name not in lane.ring:
                self._linked = {}
                lane.ring.insert(self._place(lane, name, waiting), name)

    def turn_taken(self, name: str, seat: Seat) -> None:
        """All up to the job have had their turn."""
        for lane in seat.lanes:
            ring = lane.ring
            if ring[:1] == [name]:
                ring.append(ring.pop(0))
            elif name in ring:
                behind = ring.index(name) + 1
                lane.ring = ring[behind:] + ring[:behind]

    def leave(self, name: str, lanes: Iterable[Lane] | None = None) -> None:
        """Nobody waits for the job in these rings, or in any, until it asks again."""
        for lane in self._lanes if lanes is None else lanes:
            if name in lane.ring:
                self._linked = {}
                lane.ring.remove(name)

    def linked(self, name: str) -> int:
        """Bits of the job and of all that it shares a ring with, also through others."""
        if not self._linked:
            self._link()
        return self._linked[name]

    def _link(self) -> None:
        sets = [self._bits_of(lane.ring) for lane in self._lanes]
        for member in self.members.values():
            linked, before = member.bit, 0
            while linked != before:
                before = linked
                for bits in sets:
                    if bits & linked:
                        linked |= bits
            self._linked[member.name] = linked

    def _bits_of(self, names: Iterable[str]) -> int:
        return sum(self.members[name].bit for name in names)

    def _seat(self, slots: tuple[Slot, ...], masks: list[int], bit: int, key: str) -> Seat:
        mask = self.mask(slots)
        lanes = tuple(lane for lane, of_lane in zip(self._lanes, masks, strict=True) if of_lane & mask)
        return Seat(slots, mask, tuple(dict.fromkeys(slot.node for slot in slots)), lanes, bit, key)

    def _place(self, lane: Lane, name: str, waiting: Sequence[PermitRequested]) -> int:
        """Where a newcomer goes, so that all rings keep the group's cyclic order: after its nearest predecessor.

        A predecessor that has just had its turn stands at the end of the ring: then it is the newcomer's turn. With
        a quantum the front stays in front during its turn, and nobody goes before it.
        """
        ring, place = lane.ring, self._order.index(name)
        before = next((other for other in reversed(self._order[:place]) if other in ring), None)
        if before is None:
            found = next((ring.index(other) for other in self._order[place + 1 :] if other in ring), len(ring))
        else:
            behind = ring.index(before) + 1
            asks = any(one.job == before and lane in self.members[before].seat(one.pool).lanes for one in waiting)
            found = 0 if behind == len(ring) and not asks else behind
        return len(ring) if self._in_quanta and found == 0 else found


def _shared(members: Iterable[Member]) -> int:
    """The bits of slots that several members use."""
    used = shared = 0
    for member in members:
        own = member.rollout.mask | member.training.mask
        used, shared = used | own, shared | used & own
    return shared


def _refined(lanes: list[Lane], pins: Mapping[str, Pin]) -> list[Lane]:
    """The lanes, split so that all slots of one have the same users in the same pools; unused slots are left out."""
    users: dict[Slot, int] = {}
    places = {name: 2 * place for place, name in enumerate(pins)}
    for name, pin in pins.items():
        for bit, slots in enumerate((pin.rollout, pin.training), places[name]):
            for slot in slots:
                users[slot] = users.get(slot, 0) | 1 << bit
    lane_of = {slot: place for place, lane in enumerate(lanes) for slot in lane.slots}
    parts: dict[tuple[int, int], list[Slot]] = {}
    for slot in [*(slot for slot in lane_of if slot in users), *(slot for slot in users if slot not in lane_of)]:
        parts.setdefault((lane_of.get(slot, -1), users[slot]), []).append(slot)
    return [
        Lane(tuple(slots), [name for name in _ring(lanes, place) if name in places and used >> places[name] & 3])
        for (place, used), slots in parts.items()
    ]


def _ring(lanes: list[Lane], place: int) -> list[str]:
    return lanes[place].ring if place >= 0 else []


def _one_lane(lanes: list[Lane], pins: Mapping[str, Pin]) -> list[Lane]:
    slots = dict.fromkeys(slot for pin in pins.values() for slot in pin.rollout + pin.training)
    ring = lanes[0].ring if lanes else []
    return [Lane(tuple(slots), [name for name in ring if name in pins])]
