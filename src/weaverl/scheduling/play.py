"""A group by slack played out: its members ask, wait and run, by the rule of ``by_slack``; integers and a queue."""

from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush

from weaverl.scheduling.by_slack import MOST_PASSED
from weaverl.scheduling.players import WARM_UP, Half, Pair, Player, draw_lines
from weaverl.scheduling.tails import TailRule


class Play:
    """The members take turns. Those that wait do so in the order in which they asked."""

    def __init__(self, members: Sequence[Player | Pair], tail: TailRule) -> None:
        players = [side for one in members for side in ((one.rolls, one.trains) if isinstance(one, Pair) else (one,))]
        self._players, self._num_members, self._tail = players, len(members), tail
        self._now = self._held = self._later = self._order = 0
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

    def run(self, iterations: int) -> None:
        """Until so many iterations have ended on average."""
        total, least = (iterations + WARM_UP) * self._num_members, WARM_UP + max(iterations // 3, 1)
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

    def _ask_for_side(self, player: Player) -> None:
        player.mask, player.waits = player.masks[player.trains], True
        self._waiting.append(player)

    def _side_over(self, player: Player) -> None:
        assert isinstance(player, Half) and player.pair is not None
        if player.pair.half_over(player, self._now):
            self._ask_for_side(player.pair.rolls)
            self._ask_for_side(player.pair.trains)

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
        player.keeps = player.later = 0
        player.leaves(self._now)
        self._free(player, player.holds)
        if player.pair is not None:
            self._side_over(player)
            return
        player.part_us = player.rollout_us
        player.mask, player.trains = player.masks[1], True
        player.waits = True
        self._waiting.append(player)

    def _training_ended(self, player: Player) -> None:
        player.leaves(self._now)
        self._free(player, player.holds)
        if player.pair is not None:
            self._at(self._now + player.rest_us, self._side_over, player)
            return
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
        paid_us = player.paid_us(self._now, self._players)
        if player.trains:
            self._at(self._now + player.training_us + paid_us, self._training_ended, player)
        else:
            player.start_rollout(self._now, paid_us)
            self._at(player.next_step(), self._step, player)
