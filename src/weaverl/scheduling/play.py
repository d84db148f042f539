"""A group by slack played out: its members ask, wait and run, by the rule of ``by_slack``; integers and a queue."""

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from operator import methodcaller

from weaverl.scheduling.by_slack import MOST_PASSED
from weaverl.scheduling.players import NEVER, WARM_UP, Half, Pair, Player, draw_lines
from weaverl.scheduling.tails import TailRule


class Play:
    """The members take turns. Those that wait do so in the order in which they asked.

    Bits of slots, over all members: those that are ``held``, those promised for ``later``, those that tails ``keep``.
    Of those held some are ``firm``, held by phases that have not come to a tail, and some ``movable``, held by tails
    that have not been told to move.
    """

    def __init__(self, members: Sequence[Player | Pair], tail: TailRule) -> None:
        players = [side for one in members for side in ((one.rolls, one.trains) if isinstance(one, Pair) else (one,))]
        self._players, self._num_members, self._tail = players, len(members), tail
        self._now = self._order = self._num_left = 0
        self._held = self._later = self._kept = self._firm = self._movable = 0
        self._waiting: list[Player] = []
        draw_lines(players)
        self._queue: list[tuple[int, int, Callable[[Player], None], Player]] = []
        for player in players:
            others = [other for other in players if other is not player]
            player.reserve_us = max(map(player.blocked_us, others), default=0)
            player.neighbours = [
                [other for other in others if (other.masks[0] | other.masks[1]) & mask] for mask in player.masks
            ]
            if player.pair is None:
                self._at(0, self._ask, player)
            elif not player.trains:
                self._at(0, self._ask_for_side, player)
        for member in members:
            if isinstance(member, Pair):
                member.share_reserve()
        for player in players:
            player.keep_in_tail(tail.keep)
            player.count_done(0, 0)

    def run(self, iterations: int) -> None:
        """Until so many iterations have ended on average."""
        self._num_left, least = (iterations + WARM_UP) * self._num_members, WARM_UP + max(iterations // 3, 1)
        queue, waiting, behind = self._queue, self._waiting, self._players
        while self._num_left > 0 or (behind := [player for player in behind if player.iteration < least]):
            self._now, _, step, player = heappop(queue)
            step(player)
            if waiting:
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

    def _ask_for_side(self, player: Player) -> None:
        player.mask, player.waits = player.masks[player.trains], True
        self._waiting.append(player)

    def _side_over(self, player: Player) -> None:
        assert isinstance(player, Half) and player.pair is not None
        if player.pair.half_over(player, self._now):
            self._ask_for_side(player.pair.rolls)
            self._ask_for_side(player.pair.trains)

    def _step(self, player: Player) -> None:
        """A rollout has come to its tail, or to its end; nothing has if it has got a new pace since."""
        if player.due != self._now or player.trains:
            return
        player.left_us, player.since = player.tail_us, self._now
        if not player.tail_us:
            self._rollout_ended(player)
            return
        player.tail_us = 0
        self._at(player.next_step(), self._step, player)
        if not player.later:
            self._keep_some(player)

    def _keep_some(self, player: Player) -> None:
        """A tail would do with some of its slots; the others could be moved off."""
        if player.tail_keeps:
            player.keeps = player.tail_keeps
            self._kept |= player.keeps
            self._movable |= player.holds
            self._firm &= ~player.holds

    def _rollout_ended(self, player: Player) -> None:
        player.due = NEVER  # another step may stand in the queue for this very moment
        self._kept &= ~player.keeps
        self._later &= ~player.later
        player.keeps = player.later = 0
        self._free(player, player.holds)
        if player.pair is not None:
            self._side_over(player)
            return
        player.count_part(player.rollout_us)
        player.mask, player.trains = player.masks[1], True
        player.waits = True
        self._waiting.append(player)

    def _training_ended(self, player: Player) -> None:
        self._num_left -= 1
        self._free(player, player.holds)
        if player.pair is not None:
            self._at(self._now + player.rest_us, self._side_over, player)
            return
        player.iteration += 1
        player.count_done(player.solo_us + player.part_us + player.training_us + player.rest_us, 0)
        self._at(self._now + player.rest_us, self._ask, player)

    def _free(self, player: Player, slots: int) -> None:
        player.holds &= ~slots
        if not player.holds:  # its phase is over: from now on its slots are idle for who comes next
            for line in player.touches[player.trains]:
                line.free_at, line.last = self._now, player
        self._held &= ~slots
        self._firm &= ~slots
        self._movable &= ~slots
        if self._later & slots:
            self._widen()

    def _widen(self) -> None:
        """Those who were promised slots that are free by now get them."""
        for player in self._players:
            if gained := player.later & ~self._held:
                player.settle(self._now)
                player.holds |= gained
                player.later &= ~gained
                self._held |= gained
                self._firm |= gained
                self._later &= ~gained
                player.set_pace()
                self._at(player.next_step(), self._step, player)
                if not (player.later or player.tail_us) and player.tail_from < 1.0:
                    self._keep_some(player)

    def _serve(self) -> None:
        """Look at the requests, if something could come of it: each reserves its slots from those behind it."""
        blocked, servable = self._firm | self._later, []
        for player in self._waiting:
            mask = player.mask
            if not mask & blocked and (not mask & self._held or self._may_start_beside(player)):
                servable.append(player)
        if len(servable) > 1:
            self._serve_in_order()
        elif servable:
            (player,) = servable
            if (len(self._waiting) == 1 or self._goes_next(player)) and not self._would_delay(player):
                self._give(player)

    def _serve_in_order(self) -> None:
        reserved = 0
        for player in sorted(self._waiting, key=methodcaller("urgency", self._now)):
            mask = player.mask
            if not mask & (reserved | self._firm | self._later):
                is_open = not mask & self._held or self._may_start_beside(player)
                if is_open and not self._would_delay(player):
                    self._give(player)
            reserved |= mask

    def _goes_next(self, player: Player) -> bool:
        """Whether nobody who waits for some of the same slots is more urgent, or as urgent and asked before."""
        mask, now, asked_before = player.mask, self._now, True
        for other in self._waiting:
            if other is player:
                asked_before = False
            elif other.mask & mask:
                urgency, of_other = player.urgency(now), other.urgency(now)
                if of_other < urgency or (asked_before and of_other == urgency):
                    return False
        return True

    def _may_start_beside(self, player: Player) -> bool:
        """Whether something could come of a request where only tails are in the way: they are asked off, but once."""
        free = player.mask & ~self._kept
        if player.trains or free == player.mask:
            return False
        return bool(free & self._movable if free & self._held else free)

    def _would_delay(self, player: Player) -> bool:
        """Whether a grant would keep a late member waiting."""
        now = self._now
        if now >= player.late_from or player.num_passed >= MOST_PASSED:
            return False
        for other in player.neighbours[player.trains]:
            if now >= other.late_from:
                held_us = player.training_held_us if player.trains else player.mean_held_us
                if other.asks_at(now, player.mask) < now + held_us // 2:
                    return True
        return False

    def _give(self, player: Player) -> None:
        """Grant the slots that tails do not keep, or ask tails off them first."""
        kept = player.mask & self._kept
        free = player.mask & ~kept
        if not free & self._held:
            self._grant(player, kept)
            return
        for other in self._players:
            if other.keeps and not other.told and other.holds & free:
                self._move(other)

    def _move(self, player: Player) -> None:
        player.settle(self._now)
        player.told = True
        player.since, player.speed = self._now + self._tail.move_us, 1.0 / self._tail.stretch
        self._movable &= ~player.holds
        self._at(player.since, self._moved, player)
        self._at(player.next_step(), self._step, player)

    def _moved(self, player: Player) -> None:
        if player.told and player.keeps and player.due >= self._now:
            self._free(player, player.holds & ~player.keeps)

    def _grant(self, player: Player, later: int) -> None:
        waiting, mask = self._waiting, player.mask
        for other in waiting:
            if other is player:
                break
            if other.mask & mask:
                other.num_passed += 1
        waiting.remove(player)
        player.num_passed, player.waits, player.granted_at = 0, False, self._now
        player.holds, player.later = mask & ~later, later
        self._held |= player.holds
        self._firm |= player.holds
        self._later |= later
        paid_us = player.paid_us(self._now, self._players)
        if player.trains:
            self._at(self._now + player.training_us + paid_us, self._training_ended, player)
        else:
            player.start_rollout(self._now, paid_us)
            self._at(player.next_step(), self._step, player)
