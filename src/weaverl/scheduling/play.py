"""A group by slack played out: its members ask, wait and run, by the rule of ``by_slack``; integers and a queue."""

from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from math import ceil, gcd

from weaverl.scheduling.by_slack import MOST_PASSED, urgency
from weaverl.scheduling.progress import HORIZON, late_below, room
from weaverl.scheduling.round_model import Member
from weaverl.scheduling.tails import TailRule

NEVER = 1 << 62

WARM_UP = 2
"""Iterations of each member that are played and not counted."""


class Player:
    """A member, and where it stands. Slots are bits; rollouts are run through in a circle.

    A rollout has ``left_us`` to do from ``since`` on, ``tail_us`` of it as its tail, and gets to its next step when it
    is ``due``. As in the rotation it ``holds`` slots, is promised some for ``later``, and its tail ``keeps`` some.
    """

    __slots__ = (
        "ahead_us",
        "counted",
        "due",
        "ended",
        "granted_at",
        "handover_us",
        "holds",
        "iteration",
        "job",
        "keeps",
        "late_below",
        "later",
        "left_us",
        "mask",
        "masks",
        "mean_held_us",
        "moved",
        "neighbours",
        "num_passed",
        "part_us",
        "reserve_us",
        "rest_us",
        "rollouts",
        "since",
        "slo",
        "solo_us",
        "speed",
        "stretch",
        "tail_from",
        "tail_us",
        "told",
        "training_held_us",
        "training_us",
        "trains",
        "waits",
    )

    def __init__(self, member: Member, slo: float, held: Sequence[int], masks: Sequence[int], tail_from: float) -> None:
        times = member.durations
        self.job, self.masks, self.tail_from = member.job, masks, tail_from
        self.stretch = member.solo_us / times.solo_us
        self.slo = slo * self.stretch
        self.late_below = late_below(self.slo)
        self.handover_us, self.training_held_us = held[0] - times.rollout_us, held[1]
        self.training_us, self.rest_us = times.training_us, times.sync_us + times.other_us
        self.rollouts: Sequence[int] = (times.rollout_us,)
        self.trains = self.told = self.moved = self.waits = False
        self.iteration = self.num_passed = self.solo_us = self.part_us = self.ahead_us = 0
        self.mask = self.holds = self.later = self.keeps = 0
        self.since = self.due = self.left_us = self.tail_us = self.granted_at = self.mean_held_us = 0
        self.reserve_us = 0
        self.neighbours: list[list[Player]] = [[], []]
        self.speed = 1.0
        self.counted = self.ended = (0, 0)

    def mix(self, rollouts: Sequence[int], stride: int) -> None:
        """Take these rollouts, if any, each once in a circle, neighbours far apart."""
        number = len(rollouts)
        if number:
            step = stride if gcd(stride, number) == 1 else 1
            self.rollouts = [rollouts[place * step % number] for place in range(number)]
        mean_us = sum(self.rollouts) // len(self.rollouts)
        self.ahead_us = HORIZON * (mean_us + self.training_us + self.rest_us)
        self.mean_held_us = mean_us + self.handover_us

    @property
    def rollout_us(self) -> int:
        """Its present rollout alone."""
        return self.rollouts[self.iteration % len(self.rollouts)]

    def slowdown(self) -> float:
        """Over the iterations that count."""
        (first, before), (last, solo) = self.counted, self.ended
        return (last - first) / ((solo - before) * self.stretch)

    def urgency(self, now: int) -> tuple[int, int]:
        """Its place among those who wait, as in a group by slack."""
        if self.num_passed >= MOST_PASSED:
            return 1, 0
        return urgency(self.slo, room(self.slo, self.solo_us, self.part_us, self.ahead_us, now, self.reserve_us))

    def blocked_us(self, other: "Player") -> int:
        """How long another's phase on its slots takes."""
        mask = self.masks[0] | self.masks[1]
        rollout_us = other.mean_held_us if other.masks[0] & mask else 0
        return max(rollout_us, other.training_held_us if other.masks[1] & mask else 0)

    def is_late(self, now: int) -> bool:
        """Whether others leave it its slots."""
        left = room(self.slo, self.solo_us, self.part_us, self.ahead_us, now, self.reserve_us)
        return left < self.late_below

    def asks_at(self, now: int, slots: int) -> int:
        """When it is expected to ask for slots, at the earliest; never for those that it waits for."""
        is_running = self.holds or self.later
        if self.waits and self.mask & slots:
            return NEVER
        begun = self.granted_at if is_running else now
        if not (is_running or self.waits):
            trains_at = now + self.mean_held_us
            return now if self.masks[0] & slots else trains_at
        if self.trains:
            ends = max(begun + self.training_held_us, now) + self.rest_us
            return ends if self.masks[0] & slots else ends + self.mean_held_us
        ends = max(begun + self.mean_held_us, now)
        return ends if self.masks[1] & slots else ends + self.training_held_us + self.rest_us

    def start_rollout(self, now: int) -> None:
        """Its rollout begins on what it holds, after the hand-over."""
        self.left_us, self.since = self.rollout_us, now + self.handover_us
        self.tail_us = round(self.left_us * (1.0 - self.tail_from))
        self.told = self.moved = False
        self.set_pace()

    def set_pace(self) -> None:
        """A rollout is as fast as its share of the slots."""
        self.speed = self.holds.bit_count() / self.mask.bit_count() if self.later else 1.0

    def settle(self, now: int) -> None:
        """Book the work done so far."""
        if now > self.since:
            self.left_us -= round((now - self.since) * self.speed)
            self.since = now

    def next_step(self) -> int:
        """When its tail, or its end, will be reached."""
        ahead = self.left_us - self.tail_us
        self.due = self.since + (ahead if self.speed == 1.0 else round(ahead / self.speed))
        return self.due

    def keep_some(self, share: float) -> None:
        """Its tail would do with the first of its slots."""
        bits, number = self.holds, ceil(self.mask.bit_count() * share)
        if number < bits.bit_count():
            for _ in range(number):
                self.keeps |= bits & -bits
                bits &= bits - 1


class Play:
    """The members take turns. Those that wait do so in the order in which they asked."""

    def __init__(self, players: Sequence[Player], tail: TailRule) -> None:
        self._players, self._tail = players, tail
        self._now = self._held = self._later = self._order = 0
        self._waiting: list[Player] = []
        self._queue: list[tuple[int, int, Callable[[Player], None], Player]] = []
        for player in players:
            others = [other for other in players if other is not player]
            player.reserve_us = max(map(player.blocked_us, others), default=0)
            player.neighbours = [
                [other for other in others if (other.masks[0] | other.masks[1]) & mask] for mask in player.masks
            ]
            self._at(0, self._ask, player)

    def run(self, iterations: int) -> None:
        """Until so many iterations have ended on average."""
        total, least = (iterations + WARM_UP) * len(self._players), WARM_UP + max(iterations // 3, 1)
        queue = self._queue
        while total > 0 or any(player.iteration < least for player in self._players):
            self._now, _, step, player = heappop(queue)
            step(player)
            total -= step == self._training_ended
            if self._waiting:
                self._serve()

    def _at(self, at: int, step: Callable[[Player], None], player: Player) -> None:
        self._order += 1
        heappush(self._queue, (at, self._order, step, player))

    def _ask(self, player: Player) -> None:
        player.ended = (self._now, player.solo_us)
        if player.iteration == WARM_UP:
            player.counted = player.ended
        player.mask, player.trains = player.masks[0], False
        player.waits = True
        self._waiting.append(player)

    def _step(self, player: Player) -> None:
        """A rollout has come to its tail, or to its end."""
        if player.trains or player.due != self._now:
            return
        player.left_us, player.since = player.tail_us, self._now
        if not player.tail_us:
            self._rollout_ended(player)
            return
        player.tail_us = 0
        self._at(player.next_step(), self._step, player)
        if not player.later:
            player.keep_some(self._tail.keep)

    def _rollout_ended(self, player: Player) -> None:
        player.part_us = player.rollout_us
        player.keeps = player.later = 0
        self._free(player, player.holds)
        player.mask, player.trains = player.masks[1], True
        player.waits = True
        self._waiting.append(player)

    def _training_ended(self, player: Player) -> None:
        self._free(player, player.holds)
        player.solo_us += player.part_us + player.training_us + player.rest_us
        player.part_us = 0
        player.iteration += 1
        self._at(self._now + player.rest_us, self._ask, player)

    def _free(self, player: Player, slots: int) -> None:
        player.holds &= ~slots
        self._held &= ~slots
        if self._later:
            self._widen()

    def _widen(self) -> None:
        """Those who were promised slots that are free by now get them."""
        for player in self._players:
            if gained := player.later & ~self._held:
                player.settle(self._now)
                player.holds |= gained
                player.later &= ~gained
                self._held |= gained
                player.set_pace()
                self._at(player.next_step(), self._step, player)
                if not (player.later or player.tail_us) and player.tail_from < 1.0:
                    player.keep_some(self._tail.keep)
        self._later = 0
        for player in self._players:
            self._later |= player.later

    def _serve(self) -> None:
        taken = self._held | self._later
        for player in self._waiting:
            if not player.mask & taken or self._may_be_served(player, taken):
                break
        else:
            return
        waiting, reserved = self._waiting, 0
        order = waiting if len(waiting) == 1 else sorted(waiting, key=lambda player: player.urgency(self._now))
        for player in tuple(order):
            mask = player.mask
            taken = self._held | self._later
            if not mask & reserved and self._may_be_served(player, taken) and not self._would_delay(player):
                self._beside_tails(player) if mask & taken else self._grant(player, 0)
            reserved |= mask

    def _may_be_served(self, player: Player, taken: int) -> bool:
        return not player.mask & taken or (not player.trains and self._keeping(player.mask))

    def _keeping(self, mask: int) -> bool:
        kept = 0
        for other in self._players:  # a generator would take longer than the answer
            kept |= other.keeps
        return kept & mask != 0

    def _would_delay(self, player: Player) -> bool:
        """Whether a grant would keep a late member waiting."""
        now = self._now
        if player.num_passed >= MOST_PASSED or not player.neighbours[player.trains] or player.is_late(now):
            return False
        latest = now + (player.training_held_us if player.trains else player.mean_held_us) // 2
        for other in player.neighbours[player.trains]:
            if other.asks_at(now, player.mask) < latest and other.is_late(now):
                return True
        return False

    def _beside_tails(self, player: Player) -> None:
        kept = 0
        for other in self._players:
            held = other.holds & player.mask
            if other.later & player.mask or (held and not other.keeps):
                return
            kept |= held & other.keeps
        free = player.mask & ~kept
        if free & self._held:
            for other in self._in_the_way(free):
                self._move(other)
        elif free:
            self._grant(player, kept)

    def _in_the_way(self, free: int) -> Iterator[Player]:
        return (other for other in self._players if other.keeps and not other.told and other.holds & free)

    def _move(self, player: Player) -> None:
        player.settle(self._now)
        player.told = player.moved = True
        player.since, player.speed = self._now + self._tail.move_us, 1.0 / self._tail.stretch
        self._at(player.since, self._moved, player)
        self._at(player.next_step(), self._step, player)

    def _moved(self, player: Player) -> None:
        if player.moved and player.keeps and player.due >= self._now:
            self._free(player, player.holds & ~player.keeps)

    def _grant(self, player: Player, later: int) -> None:
        waiting, mask = self._waiting, player.mask
        place = waiting.index(player)
        for other in waiting[:place]:
            other.num_passed += bool(other.mask & mask)
        del waiting[place]
        player.num_passed, player.waits, player.granted_at = 0, False, self._now
        player.holds, player.later = mask & ~later, later
        self._held |= player.holds
        self._later |= later
        if player.trains:
            self._at(self._now + player.training_held_us, self._training_ended, player)
        else:
            player.start_rollout(self._now)
            self._at(player.next_step(), self._step, player)
