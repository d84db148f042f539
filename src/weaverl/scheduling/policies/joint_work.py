"""Some jobs as one group: every way to put them on nodes, what each costs at least, and what it costs as played.

The bounds are those by which ``weave`` screens options: ``forecast.least_slowdowns``, of all ways at once.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from weaverl.domain.cluster import PoolKind, Slot
from weaverl.domain.groups import Pin
from weaverl.domain.units import HOUR_US
from weaverl.scheduling.expected_dollars import Stay, course_of, slowdowns_of
from weaverl.scheduling.objectives import HORIZON_US, later_usd
from weaverl.scheduling.policies import weave
from weaverl.scheduling.policies.layouts import Demand, Places, layouts, members_of
from weaverl.scheduling.round_model import chain_us

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


class NodeKind(NamedTuple):
    """The nodes of a pool, all alike: devices, host memory that jobs may fill, and dollars an hour."""

    num_devices: int
    usable_bytes: int
    usd_per_hour: float


class Worker(NamedTuple):
    """A job with what it has left to do, wherever it is; whole nodes and host memory on each, of both pools."""

    stay: Stay
    num_nodes: tuple[int, int]
    host_bytes: tuple[int, int]


class Layout(NamedTuple):
    """The nodes of each job in both pools."""

    rollout: Places
    training: Places


class Played(NamedTuple):
    """What a layout comes to; ``refused`` if it would break a promise."""

    usd: float
    slowdowns: dict[str, float]
    refused: str


class Way(NamedTuple):
    """A layout that no bound rules out, and the least that it costs."""

    least_usd: float
    layout: Layout


class _Side(NamedTuple):
    """All ways to put the jobs on nodes of one pool: members of each node as bits, and the bounds."""

    places: list[Places]
    members: NDArray[np.int64]
    least: Floats


def played(
    workers: Sequence[Worker], kinds: tuple[NodeKind, NodeKind], layout: Layout, horizon_us: float = HORIZON_US
) -> Played:
    """The expected dollars of some jobs as one group, and whether ``weave`` would allow it."""
    stays = [_pinned(worker.stay, kinds, *nodes) for worker, *nodes in zip(workers, *layout, strict=True)]
    slowdowns = slowdowns_of(stays)
    course = course_of(stays, slowdowns, horizon_us)
    usd = sum(_usd(kind, places, course.ends_us) for kind, places in zip(kinds, layout, strict=True))
    return Played(usd + later_usd(stays, course.left_us), slowdowns, weave.broken(stays, slowdowns, sharers=stays))


def ways(
    workers: Sequence[Worker], kinds: tuple[NodeKind, NodeKind], below_usd: float, horizon_us: float = HORIZON_US
) -> list[Way]:
    """The ways to run some jobs as one group that may cost less than that, the least costly first.

    Jobs that would share no node, even through others, are no group. A job by itself has one way.
    """
    sides = [_side(workers, pool, kind) for pool, kind in enumerate(kinds)]
    if not all(side.places for side in sides):
        return []
    slowdowns = _least_slowdowns(workers, *sides)
    allowed = np.array([worker.stay.allowed for worker in workers])
    is_kept = ~((slowdowns > 1.0) & (weave.foreseen(slowdowns) > allowed)).any(2)
    slowdowns = np.where(np.isfinite(slowdowns), slowdowns, 1.0)  # of what is ruled out
    left_us = np.array([worker.stay.left_us for worker in workers], np.float64)
    ends, left = _course(left_us, slowdowns, horizon_us)
    usd = _least_usd(kinds[0], sides[0].members[:, None], ends) + _least_usd(kinds[1], sides[1].members[None], ends)
    usd += left @ np.array([worker.stay.work_price * worker.stay.usd_per_hour / HOUR_US for worker in workers])
    fits = is_kept & (usd < below_usd)
    fits &= _are_linked(sides[0].members, sides[1].members, len(workers))
    order = sorted(zip(usd[fits].tolist(), np.argwhere(fits).tolist(), strict=True))
    return [Way(least, Layout(sides[0].places[one], sides[1].places[other])) for least, (one, other) in order]


def _side(workers: Sequence[Worker], pool: int, kind: NodeKind) -> _Side:
    demands = [_demand(worker, pool) for worker in workers]
    places = layouts(demands, kind.usable_bytes, first_nodes_matter=pool == 0)
    nodes = [members_of(one) for one in places]
    most = max(map(len, nodes), default=0)
    members = np.array([one + [0] * (most - len(one)) for one in nodes], np.int64).reshape(len(nodes), most)
    bits = 1 << np.arange(len(workers))
    on = (members[:, :, None] & bits) > 0
    return _Side(places, members, _line_bounds(workers, pool, on))


def _line_bounds(workers: Sequence[Worker], pool: int, on: Bools) -> Floats:
    """What each node leaves a job time for (ways, jobs), the others as slow as they may be."""
    held = np.array([_held_us(worker, pool) for worker in workers])
    solo = np.array([worker.stay.member.solo_us for worker in workers], np.float64)
    allowed = np.array([max(worker.stay.allowed, 1.0) for worker in workers])
    needs = held / (allowed * solo)
    left = 1.0 - (on * needs).sum(2)[:, :, None] + needs
    share = held / solo
    with np.errstate(divide="ignore"):
        bounds = np.where(left > 0, share / np.maximum(left, 1e-300), np.inf)
    least: Floats = np.where(on, bounds, 0.0).max(1, initial=0.0)
    return least


def _held_us(worker: Worker, pool: int) -> float:
    """How long a job holds its nodes of a pool at least: its rollout's tail may be moved, its switches hidden."""
    times = worker.stay.member.durations
    return times.training_us if pool else times.rollout_us * worker.stay.profile.rollout_p80


def _least_slowdowns(workers: Sequence[Worker], rollout: _Side, training: _Side) -> Floats:
    """Bounds of each job in each pair of ways (rollout, training, jobs)."""
    solo = np.array([worker.stay.member.solo_us for worker in workers], np.float64)
    times = [worker.stay.member.durations for worker in workers]
    chains = np.array([chain_us(one.rollout_us, one.training_us + one.rest_us, one.staleness) for one in times])
    least: Floats = np.maximum(chains / solo, np.maximum(rollout.least[:, None], training.least[None]))
    return least


def _course(left_us: Floats, slowdowns: Floats, horizon_us: float) -> tuple[Floats, Floats]:
    """``expected_dollars.course_of`` of all ways at once: bounds of slowdowns bound ends and what is left."""
    num_jobs, excess = len(left_us), slowdowns - 1.0
    left, ends = np.broadcast_to(left_us, slowdowns.shape).copy(), np.full_like(slowdowns, horizon_us)
    now, is_running = np.zeros((*slowdowns.shape[:2], 1)), np.ones(slowdowns.shape, np.bool_)
    share = 1.0
    for num_running in range(num_jobs, 0, -1):
        paces = 1.0 + excess * share
        lasts = np.where(is_running, left * paces, np.inf)
        first = lasts.argmin(2)[:, :, None]
        passed = np.minimum(np.take_along_axis(lasts, first, 2), horizon_us - now)
        now += passed
        left = np.where(is_running, np.maximum(left - passed / paces, 0.0), left)
        np.put_along_axis(ends, first, now, 2)
        np.put_along_axis(is_running, first, False, 2)
        share = (num_running - 2) / max(num_jobs - 1, 1)
    return ends, left


def _least_usd(kind: NodeKind, members: NDArray[np.int64], ends: Floats) -> Floats:
    """Dollars of one pool's nodes until the last of their members ends."""
    until = np.zeros(ends.shape[:2])
    for node in np.moveaxis(members, 2, 0):
        on = (node[:, :, None] >> np.arange(ends.shape[2])) & 1
        until += (ends * on).max(2)
    usd: Floats = until * (kind.usd_per_hour / HOUR_US)
    return usd


def _are_linked(rollout: NDArray[np.int64], training: NDArray[np.int64], num_jobs: int) -> Bools:
    """Whether all jobs share nodes, also through others, in each pair of ways."""
    reached = np.ones((len(rollout), len(training)), np.int64)
    sides = [*np.moveaxis(rollout[:, None], 2, 0), *np.moveaxis(training[None], 2, 0)]
    for _ in range(num_jobs - 1):
        for node in sides:
            reached |= np.where(reached & node, node, 0)
    linked: Bools = reached == (1 << num_jobs) - 1
    return linked


def _demand(worker: Worker, pool: int) -> Demand:
    share = _held_us(worker, pool) / (max(worker.stay.allowed, 1.0) * worker.stay.member.solo_us)
    return Demand(worker.num_nodes[pool], worker.host_bytes[pool], share)


def _pinned(stay: Stay, kinds: tuple[NodeKind, NodeKind], rollout: tuple[int, ...], training: tuple[int, ...]) -> Stay:
    slots = [
        tuple(Slot(f"{pool[0]}{node}", device) for node in nodes for device in range(kind.num_devices))
        for pool, kind, nodes in zip(PoolKind, kinds, (rollout, training), strict=True)
    ]
    return stay._replace(member=msgspec.structs.replace(stay.member, pin=Pin(*slots)))


def _usd(kind: NodeKind, places: Places, ends: Sequence[float]) -> float:
    until: dict[int, float] = {}
    for nodes, end in zip(places, ends, strict=True):
        for node in nodes:
            until[node] = max(until.get(node, 0.0), end)
    return kind.usd_per_hour * sum(until.values()) / HOUR_US
