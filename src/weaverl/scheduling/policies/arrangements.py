"""Ways to run some jobs as one group on given numbers of nodes: who is on which of them, in which order of turns."""

from collections.abc import Iterator, Sequence
from itertools import combinations, permutations
from typing import NamedTuple

import numpy as np

from weaverl.scheduling.round_model import Durations, Switches
from weaverl.scheduling.stacked_rounds import NEVER, Bools, StackedRounds, fit

Places = tuple[tuple[int, ...], ...]
"""The nodes of each job, by number."""


class Party(NamedTuple):
    """A job of the group to be; nodes asked and host memory on each of them, in both pools."""

    durations: Durations
    switches: Switches
    allowed_us: int
    num_nodes: tuple[int, int]
    host_bytes: tuple[int, int]


class Arrangement(NamedTuple):
    """Jobs in the order of their turns (numbers into the parties given), and the nodes of each in both pools."""

    order: tuple[int, ...]
    rollout: Places
    training: Places


def arrange(parties: Sequence[Party], num_nodes: tuple[int, int], usable_bytes: tuple[int, int]) -> Arrangement | None:
    """A group on exactly so many nodes of each pool that keeps all promises and the host memory, if there is one.

    Jobs that would share no node, even through others, are no group: they are cheaper or as cheap as several.
    """
    budget_us = min(party.allowed_us for party in parties)
    if any(party.durations.solo_us > budget_us for party in parties):
        return None
    for rollout in _assignments(parties, 0, num_nodes[0], usable_bytes[0], budget_us):
        for training in _assignments(parties, 1, num_nodes[1], usable_bytes[1], budget_us):
            if _are_linked(rollout, training):
                order = _order(parties, rollout, training, budget_us)
                if order is not None:
                    return Arrangement(
                        order, tuple(rollout[one] for one in order), tuple(training[one] for one in order)
                    )
    return None


def _assignments(
    parties: Sequence[Party], pool: int, num_nodes: int, usable_bytes: int, budget_us: int
) -> Iterator[Places]:
    """Who is on which nodes of a pool, all of them used; nodes are numbered as they are first used.

    Nodes that are too full are left out: more held than the budget, or more host memory than is usable.
    """
    loads, filled = [0] * num_nodes, [0] * num_nodes

    def place(job: int, used: int, placed: Places) -> Iterator[Places]:
        if job == len(parties):
            if used == num_nodes:
                yield placed
            return
        party = parties[job]
        body_us = (party.durations.rollout_us, party.durations.training_us)[pool]
        for kept in range(party.num_nodes[pool] + 1):
            opened = tuple(range(used, used + party.num_nodes[pool] - kept))
            if used + len(opened) > num_nodes:
                continue
            for old in combinations(range(used), kept):
                nodes = old + opened
                for node in nodes:
                    loads[node] += body_us
                    filled[node] += party.host_bytes[pool]
                if all(loads[node] <= budget_us and filled[node] <= usable_bytes for node in nodes):
                    yield from place(job + 1, used + len(opened), (*placed, nodes))
                for node in nodes:
                    loads[node] -= body_us
                    filled[node] -= party.host_bytes[pool]

    yield from place(0, 0, ())


def _order(parties: Sequence[Party], rollout: Places, training: Places, budget_us: int) -> tuple[int, ...] | None:
    """The first order of turns whose round fits into the budget; a round has no beginning, so job 0 stays first."""
    shares = [_sharing(rollout), _sharing(training)]
    times = [(one.durations.rollout_us, one.durations.training_us) for one in parties]
    switches = [(one.switches.rollout_us, one.switches.training_us) for one in parties]
    held = np.array(times).T + np.where([share.any(0) for share in shares], np.array(switches).T, 0)
    rest = np.array([one.durations.sync_us + one.durations.other_us for one in parties])
    orders = np.array([(0, *others) for others in permutations(range(1, len(parties)))])
    for some in (orders[:1], orders[1:]):
        gaps = [np.where(share[some[:, :, None], some[:, None, :]], 0, NEVER).transpose(1, 2, 0) for share in shares]
        judged = np.ones(some.T.shape, np.bool_)
        stacked = StackedRounds(held[:, some].swapaxes(1, 2), rest[some].T, np.stack(gaps), judged)
        fits = np.flatnonzero(fit(stacked, np.full(len(some), budget_us)))
        if len(fits):
            return tuple(some[fits[0]].tolist())
    return None


def _sharing(places: Places) -> Bools:
    """Whether each two jobs (jobs, jobs) have a node in common."""
    return np.array(
        [[i != j and not set(one).isdisjoint(other) for j, other in enumerate(places)] for i, one in enumerate(places)]
    )


def _are_linked(rollout: Places, training: Places) -> bool:
    linked, left = {0}, set(range(1, len(rollout)))
    while True:
        nodes = [{node for job in linked for node in places[job]} for places in (rollout, training)]
        near = {job for job in left if not (nodes[0].isdisjoint(rollout[job]) and nodes[1].isdisjoint(training[job]))}
        if not near:
            return not left
        linked, left = linked | near, left - near
