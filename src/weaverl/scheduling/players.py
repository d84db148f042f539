"""Members of a group that is played out, and where each stands: what it holds, what it asks for, and how late it is."""

from collections.abc import Iterable, Sequence
from math import ceil, gcd

from weaverl.scheduling.by_slack import AT_EASE, IN_DANGER, LATE, MOST_PASSED, PASSED, danger_below
from weaverl.scheduling.progress import HORIZON, late_below, room_left
from weaverl.scheduling.round_model import Member, allowed_us

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
        "budget_us",
        "counted",
        "danger_below",
        "due",
        "ended",
        "granted_at",
        "handover_us",
        "hides",
        "holds",
        "iteration",
        "job",
        "keeps",
        "late_below",
        "late_from",
        "later",
        "left_us",
        "lines",
        "mask",
        "masks",
        "mean_held_us",
        "neighbours",
        "num_passed",
        "pair",
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
        "tail_keeps",
        "tail_us",
        "told",
        "touches",
        "training_held_us",
        "training_us",
        "trains",
        "undone_us",
        "waits",
    )

    def __init__(self, member: Member, slo: float, held: Sequence[int], masks: Sequence[int], tail_from: float) -> None:
        times = member.durations
        self.job, self.masks, self.tail_from = member.job, masks, tail_from
        self.stretch = member.solo_us / times.solo_us
        self.slo = slo * self.stretch
        self.late_below, self.danger_below = ceil(late_below(self.slo)), danger_below(self.slo)
        self.handover_us, self.training_held_us = held[0] - times.rollout_us, held[1]
        self.training_us, self.rest_us = times.training_us, times.rest_us
        self.rollouts: Sequence[int] = (times.rollout_us,)
        self.trains = self.told = self.waits = False
        self.iteration = self.num_passed = self.solo_us = self.part_us = self.ahead_us = 0
        self.mask = self.holds = self.later = self.keeps = 0
        self.since = self.due = self.left_us = self.tail_us = self.granted_at = self.mean_held_us = 0
        self.reserve_us = self.budget_us = self.undone_us = self.late_from = self.tail_keeps = 0
        self.neighbours: list[list[Player]] = [[], []]
        self.hides, self.lines = member.hides, NO_LINES
        self.touches: tuple[Sequence[Line], Sequence[Line]] = ((), ())
        self.pair: Pair | None = None
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

    def keep_in_tail(self, share: float) -> None:
        """Its tails would do with the first of its slots, if that is not all of them."""
        bits, number = self.masks[0], ceil(self.masks[0].bit_count() * share)
        if number < bits.bit_count():
            for _ in range(number):
                self.tail_keeps |= bits & -bits
                bits &= bits - 1

    @property
    def rollout_us(self) -> int:
        """Its present rollout alone."""
        return self.rollouts[self.iteration % len(self.rollouts)]

    def slowdown(self) -> float:
        """Over the iterations that count."""
        (first, before), (last, solo) = self.counted, self.ended
        return (last - first) / ((solo - before) * self.stretch)

    def count_done(self, solo_us: int, part_us: int) -> None:
        """Book what is done: solo time of the finished iterations, and of what is finished of the one under way."""
        self.solo_us = solo_us
        self.budget_us = allowed_us(self.slo, solo_us + self.ahead_us) - self.reserve_us
        self.count_part(part_us)

    def count_part(self, part_us: int) -> None:
        """Book what is finished of the iteration under way. What is left decides when it will be late.

        It is asked that many times before it has finished more: all that changes is the time.
        """
        self.part_us = part_us
        undone_us = self.ahead_us - part_us
        self.undone_us = undone_us = undone_us if undone_us > 0 else 1
        self.late_from = (1000 * self.budget_us - self.late_below * undone_us) // 1000 + 1

    def urgency(self, now: int) -> tuple[int, int]:
        """Its place among those who wait, as in a group by slack."""
        if self.num_passed >= MOST_PASSED:
            return PASSED
        left = room_left(self.budget_us - now, self.undone_us)
        if now >= self.late_from:
            return LATE, left
        return (IN_DANGER, left) if left < self.danger_below else AT_EASE

    def blocked_us(self, other: "Player") -> int:
        """How long another's phase on its slots takes."""
        mask = self.masks[0] | self.masks[1]
        rollout_us = other.mean_held_us if other.masks[0] & mask else 0
        return max(rollout_us, other.training_held_us if other.masks[1] & mask else 0)

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

    def paid_us(self, now: int, players: Iterable["Player"]) -> int:
        """How much of the hand-over is paid in a phase that is granted now: what was not hidden before it.

        All is hidden where its state had room beside the last holder's phase, or beside the tails that hold some of
        its slots still; else the time for which the slots were idle.
        """
        trains = self.trains
        handover_us = self.training_held_us - self.training_us if trains else self.handover_us
        if self.hides is None or not handover_us:
            return handover_us
        if self.later:
            tails = (other for other in players if other.keeps & self.later)
            return 0 if all(self._fits_beside(other, 0) for other in tails) else handover_us
        line = self.lines[trains]
        idle_us = now - line.free_at
        return 0 if idle_us >= handover_us or self._fits_beside(line.last, trains) else handover_us - idle_us

    def _fits_beside(self, other: "Player | None", pool: int) -> bool:
        if self.hides is None or other is None or other.hides is None or other is self:
            return False
        return self.hides.fits_beside(other.hides, pool)

    def start_rollout(self, now: int, paid_us: int) -> None:
        """Its rollout begins on what it holds, after what is paid of the hand-over."""
        self.left_us, self.since = self.rollout_us, now + paid_us
        self.tail_us = round(self.left_us * (1.0 - self.tail_from))
        self.told, self.speed = False, 1.0
        if self.later:
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


class Line:
    """Slots that some members have in a pool: since when they are idle, and who held them last."""

    __slots__ = ("free_at", "last")

    def __init__(self) -> None:
        self.free_at = 0
        self.last: Player | None = None


NO_LINES = (Line(), Line())


def draw_lines(players: Sequence[Player]) -> None:
    """Have members find the lines of their own slots, and those that their phases touch, if any switch is hidden."""
    if not any(player.hides is not None for player in players):
        return
    lines = {mask: Line() for player in players for mask in player.masks}
    for player in players:
        player.lines = lines[player.masks[0]], lines[player.masks[1]]
        rollout, training = ([line for own, line in lines.items() if own & mask] for mask in player.masks)
        player.touches = rollout, training


class Half(Player):
    """One of the two sides of a member whose next rollout runs beside training: it only rolls out, or only trains.

    Both sides begin an iteration together and the next one when the later of them ``is_over`` (the training with its
    sync and the rest): see ``round_model.chain_us``. The side that trains keeps the member's accounts.
    """

    __slots__ = ("is_over",)

    def __init__(
        self, member: Member, slo: float, held: Sequence[int], masks: Sequence[int], tail_from: float, *, trains: bool
    ) -> None:
        super().__init__(member, slo, held, masks, tail_from)
        self.trains = self.is_over = trains

    def mix(self, rollouts: Sequence[int], stride: int) -> None:
        """Take these rollouts, as any player does; what is ahead is the longer side of each."""
        super().mix(rollouts, stride)
        trained_us = self.training_us + self.rest_us
        self.ahead_us = HORIZON * (sum(max(one, trained_us) for one in self.rollouts) // len(self.rollouts))

    def asks_at(self, now: int, slots: int) -> int:
        """When the next iteration's phases are expected to ask, at the earliest; never for what it waits for."""
        if self.waits and self.mask & slots:
            return NEVER
        assert self.pair is not None
        return max(self.pair.rolls.over_at(now), self.pair.trains.over_at(now))

    def over_at(self, now: int) -> int:
        """When this side of the iteration is expected to be over."""
        if self.is_over:
            return now
        held_us, rest_us = (self.training_held_us, self.rest_us) if self.trains else (self.mean_held_us, 0)
        return max((now if self.waits else self.granted_at) + held_us + rest_us, now)


class Pair:
    """A member whose next rollout runs beside training, as its two sides."""

    def __init__(self, member: Member, slo: float, held: Sequence[int], masks: Sequence[int], tail_from: float) -> None:
        self.rolls = Half(member, slo, held, (masks[0], 0), tail_from, trains=False)
        self.trains = Half(member, slo, held, (0, masks[1]), tail_from, trains=True)
        self.rolls.pair = self.trains.pair = self
        self._num_closed = 0

    def mix(self, rollouts: Sequence[int], stride: int) -> None:
        """Take these rollouts."""
        self.rolls.mix(rollouts, stride)
        self.trains.mix(rollouts, stride)

    def slowdown(self) -> float:
        """Over the iterations that count."""
        return self.trains.slowdown()

    def share_reserve(self) -> None:
        """Both sides keep the same in hand."""
        self.rolls.reserve_us = self.trains.reserve_us = max(self.rolls.reserve_us, self.trains.reserve_us)

    def half_over(self, half: Half, now: int) -> bool:
        """Book that a side is over; whether the other was, so that the next iteration begins.

        The first rollout has no training beside it.
        """
        half.is_over = True
        rolls, trains = self.rolls, self.trains
        trained_us = trains.training_us + trains.rest_us if self._num_closed else 0
        if not (rolls.is_over and trains.is_over):
            mean_us = trained_us if half is rolls else rolls.mean_held_us
            self._count_done(trains.solo_us, max((rolls.rollout_us if half is rolls else trained_us) - mean_us, 0))
            return False
        self._count_done(trains.solo_us + max(rolls.rollout_us, trained_us), 0)
        rolls.is_over = trains.is_over = False
        rolls.iteration += 1
        trains.iteration = self._num_closed
        self._num_closed += 1
        trains.ended = (now, trains.solo_us)
        if trains.iteration == WARM_UP:
            trains.counted = trains.ended
        return True

    def _count_done(self, solo_us: int, part_us: int) -> None:
        self.rolls.count_done(solo_us, part_us)
        self.trains.count_done(solo_us, part_us)
