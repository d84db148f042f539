"""What groups by slack come to: the slowdown of each member in the long run, played out under the rule of ``by_slack``.

The play has no faults and nobody who comes or goes; a hand-over is paid wherever states take turns, but for what is
restored ahead (see ``restores``), and tails are moved where members are said to have any. The same members always give
the same answer.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import inf

from weaverl.domain.cluster import Slot
from weaverl.domain.groups import Pin
from weaverl.scheduling.play import Play
from weaverl.scheduling.players import Pair, Player
from weaverl.scheduling.round_model import Member, chains_us, held_where_shared, lines_of
from weaverl.scheduling.tails import PUBLISHED_TAIL, TailRule

ITERATIONS = 15
_STRIDES = (5, 8, 3, 11, 2, 7, 4, 10, 6, 9)
"""How far apart a member's next rollout is among its quantiles: members of a group run through theirs differently."""


def forecast(
    members: Sequence[Member],
    slos: Mapping[str, float],
    *,
    rollouts: Mapping[str, Sequence[int]] = {},
    tails: Mapping[str, float] = {},
    tail: TailRule = PUBLISHED_TAIL,
    iterations: int = ITERATIONS,
) -> dict[str, float]:
    """Predicted slowdown of each member: wall time over the solo time that it is promised against.

    Args:
        members: with durations as they are to be expected (means, not those at the response cap).
        slos: of each member: who is in danger goes first.
        rollouts: microseconds of a member's rollouts where they differ (see ``spread``); run through again and again.
        tails: the fraction of a member's rollout after which its tail can be moved; who is not named has none.
        tail: how a tail goes on once it is moved.
        iterations: played of a member on average, and of each at least a third of that.
    """
    masks = _masks(tuple(member.pin for member in members))
    held = held_where_shared(members, _shared(masks))
    players: list[Player | Pair] = []
    for place, member in enumerate(members):
        phases = slice(2 * place, 2 * place + 2)
        given = member, slos[member.job], held[phases], masks[phases], tails.get(member.job, 1.0)
        player = Pair(*given) if member.durations.staleness else Player(*given)
        player.mix(rollouts.get(member.job, ()), _STRIDES[place % len(_STRIDES)])
        players.append(player)
    Play(players, tail).run(iterations)
    return {member.job: player.slowdown() for member, player in zip(members, players, strict=True)}


def least_slowdowns(
    members: Sequence[Member], slos: Mapping[str, float], tails: Mapping[str, float] = {}
) -> dict[str, float]:
    """What no order of phases can beat for a member while the others keep their SLOs; infinite where none can do.

    The others need a slot that is shared for their phases at least once in ``slo`` solo times each. What that leaves
    of the slot's time must do for the member's own phases. A group with any bound above its member's SLO is pruned.
    Slots may be free of a rollout once its tail can be moved (``tails``, as in ``forecast``), and of every switch.
    """
    bodies = [us for one in members for us in (one.durations.rollout_us, one.durations.training_us)]
    held = list(map(float, bodies))
    for place, member in enumerate(members):
        held[2 * place] *= tails.get(member.job, 1.0)
    solo = [member.solo_us for member in members]
    least = [chain / one for chain, one in zip(chains_us(members, bodies), solo, strict=True)]
    needs = [us / (slos[members[vertex // 2].job] * solo[vertex // 2]) for vertex, us in enumerate(held)]
    for line in lines_of(members):
        load = sum(needs[vertex] for vertex in line)
        for place in {vertex // 2 for vertex in line}:
            own = [vertex for vertex in line if vertex // 2 == place]
            left = 1.0 - load + sum(needs[vertex] for vertex in own)
            share = sum(held[vertex] for vertex in own) / solo[place]
            least[place] = max(least[place], share / left if left > 0 else inf)
    return {member.job: bound for member, bound in zip(members, least, strict=True)}


@lru_cache(maxsize=4096)
def _masks(pins: tuple[Pin, ...]) -> list[int]:
    """Bits of the slots of each phase, to be read only."""
    bits: dict[Slot, int] = {}
    return [
        sum(bits.setdefault(slot, 1 << len(bits)) for slot in slots)
        for pin in pins
        for slots in (pin.rollout, pin.training)
    ]


def _shared(masks: Sequence[int]) -> list[int]:
    """The numbers of the phases that have slots which another phase uses too."""
    used = twice = 0
    for mask in masks:
        twice |= used & mask
        used |= mask
    return [vertex for vertex, mask in enumerate(masks) if mask & twice]
