"""Who of some jobs is on which nodes of one pool: every way there is, the nodes of a pool being all alike."""

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

Places = tuple[tuple[int, ...], ...]
"""The nodes of each job, by number; nodes are numbered as they are first used."""


_WHOLE = 1.0 + 1e-9
"""A node's time, and what sums of shares are off by."""


class Demand(NamedTuple):
    """What a job asks of one pool: whole nodes, host memory on each, and the least share of each one's time."""

    num_nodes: int
    host_bytes: int
    share: float


def layouts(demands: Sequence[Demand], usable_bytes: int, *, first_nodes_matter: bool) -> list[Places]:
    """All ways to put jobs on nodes that hold them: neither host memory nor time is asked for more than there is.

    Args:
        demands: of each job.
        usable_bytes: host memory of a node.
        first_nodes_matter: a job's nodes are not all the same to it (a rollout's tail stays on the first), so that
            ways count as different that differ only in which of a job's nodes another is on.
    """
    found: dict[object, Places] = {}
    for places in _placed(demands, usable_bytes, [], [], ()):
        found.setdefault(places if first_nodes_matter else tuple(sorted(members_of(places))), places)
    return list(found.values())


def members_of(places: Places) -> list[int]:
    """The jobs of each node, as the bits of a number."""
    nodes = [0] * (1 + max(node for of in places for node in of))
    for job, of in enumerate(places):
        for node in of:
            nodes[node] |= 1 << job
    return nodes


def renumbered(nodes_of: Sequence[Sequence[str]]) -> Places:
    """Named nodes of each job as numbers."""
    numbers: dict[str, int] = {}
    return tuple(tuple(sorted(numbers.setdefault(node, len(numbers)) for node in nodes)) for nodes in nodes_of)


def _placed(
    demands: Sequence[Demand], usable_bytes: int, filled: list[int], shares: list[float], placed: Places
) -> Iterator[Places]:
    if len(placed) == len(demands):
        yield placed
        return
    demand, used = demands[len(placed)], len(filled)
    roomy = [
        node
        for node in range(used)
        if filled[node] + demand.host_bytes <= usable_bytes and shares[node] + demand.share <= _WHOLE
    ]
    for kept in range(min(demand.num_nodes, len(roomy)) + 1):
        opened = demand.num_nodes - kept
        for old in combinations(roomy, kept):
            nodes = old + tuple(range(used, used + opened))
            now_filled, now_shares = filled + [0] * opened, shares + [0.0] * opened
            for node in nodes:
                now_filled[node] += demand.host_bytes
                now_shares[node] += demand.share
            yield from _placed(demands, usable_bytes, now_filled, now_shares, (*placed, nodes))
