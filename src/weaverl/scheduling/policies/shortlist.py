"""Which of very many groups policy ``weave`` plays out: those that a cheap estimate finds the best, a few at a time.

Whom nobody may join, and who lacks host memory for every way in, is ruled out for all groups at once. The others are
priced as if each were one lockstep round in which its busiest node decides. All of it is asked of the state alone, so
that a state out of a snapshot gives the same list. The estimate decides only who is looked at: what is chosen keeps
every promise by a play of its group.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weaverl.domain.cluster import PoolKind
from weaverl.domain.groups import Group
from weaverl.domain.jobs import JobSpec, Placement
from weaverl.domain.units import HOUR_US
from weaverl.scheduling.admission import CLOSED, NO_ROOM, Told
from weaverl.scheduling.group_rows import SATURATED, closed_reason
from weaverl.scheduling.group_table import CLOSED as ROW_CLOSED
from weaverl.scheduling.group_table import FULL, GONE, GroupTable
from weaverl.scheduling.index import ClusterIndex, index_of
from weaverl.scheduling.objectives import HORIZON_US
from weaverl.scheduling.policies.pinning import Demand, demands
from weaverl.scheduling.prices import price_of_work, usd_alone
from weaverl.scheduling.progress import UNKNOWN_ITERATIONS, iterations_left, mean_us
from weaverl.scheduling.round_model import allowed_us, planned_durations
from weaverl.scheduling.stacked_rounds import Bools, Ints
from weaverl.scheduling.state import ClusterState, switches_of

CHEAPEST, ROOMIEST = (3, 8), (1, 1)
"""Groups that are looked at, and plays of ways into them: of those that seem the cheapest, then of the emptiest."""

_PRICED = 64
"""Groups whose dollars are estimated: those that would be the least busy."""

NOT_ASKED = "not looked at: others were expected to cost less or to have more room"
CROWDED = "has many members, and is joined only where nothing else can be had"
"""Sorts of reasons, as in ``admission``."""

Floats = NDArray[np.float64]


Size = tuple[int, int]
"""Groups, and plays of ways into them."""


class Batch(NamedTuple):
    """Groups to be looked at together, and how many ways into them are played out at most."""

    groups: list[Group]
    most_plays: int


class Left(NamedTuple):
    """The groups that are not ruled out for a job, by their rows, and how many are, by reason."""

    rows: Ints
    num_closed: int
    num_without_room: int

    def tell(self, told: Told) -> None:
        """Count those that are ruled out."""
        told.count("pack", CLOSED, self.num_closed, 0.0)
        told.count("pack", NO_ROOM, self.num_without_room, 0.0)


class _Busy(NamedTuple):
    """Groups by row, what the busiest node of each would be held a round with the job, and whether that is too long."""

    rows: Ints
    busy_us: Ints
    breaks: Bools


def screen(state: ClusterState, spec: JobSpec) -> Left:
    """Rule out the groups that are closed, and those without host memory. None that could take the job."""
    table = index_of(state).table
    shut = _closed(state, table)
    joinable = table["standing"] != GONE
    joinable[shut] = False
    roomy = joinable & with_room(state, spec)
    return Left(np.flatnonzero(roomy), len(shut), int(np.count_nonzero(joinable & ~roomy)))


def groups_of(state: ClusterState, rows: Ints) -> list[Group]:
    """Groups by their rows."""
    names = index_of(state).table.names
    return [state.groups[names[row]] for row in rows.tolist()]


def split(state: ClusterState, rows: Ints, most_members: int) -> tuple[Ints, Ints]:
    """Those with fewer members, and the others."""
    table = index_of(state).table
    sizes = table["num_members"].copy()
    for row in _without_columns(table):
        sizes[row] = len(state.groups[table.names[row]].members)
    return rows[sizes[rows] < most_members], rows[sizes[rows] >= most_members]


def batches(
    state: ClusterState, spec: JobSpec, rows: Ints, sizes: tuple[Size, Size] = (CHEAPEST, ROOMIEST)
) -> Iterator[Batch]:
    """Those that are expected to add the fewest dollars for a job with a profile, and of the others the emptiest.

    In each batch the oldest group comes first. An estimated round longer than a promise allows, all rollouts at their
    caps, puts a group behind those without.
    """
    found = _busy(state, spec, rows)
    num_cheapest, num_roomiest = sizes[0][0], sizes[1][0]
    order = np.lexsort((found.busy_us, found.breaks))[: max(_PRICED, num_cheapest + num_roomiest)]
    near = _Busy(found.rows[order], found.busy_us[order], found.breaks[order])
    cheapest = np.lexsort((near.busy_us, _added_usd(state, spec, near), near.breaks))[:num_cheapest]
    yield Batch(groups_of(state, np.sort(near.rows[cheapest])), sizes[0][1])
    others = np.setdiff1d(np.arange(len(near.rows)), cheapest)[:num_roomiest]
    yield Batch(groups_of(state, np.sort(near.rows[others])), sizes[1][1])


def with_room(state: ClusterState, spec: JobSpec) -> Bools:
    """The rows of groups that have, or can get, a node with the host memory that the job needs in each pool.

    Never false of a group that could take the job: one node of its own must do for a part, in one pool at least.
    """
    index = index_of(state)
    if spec.placement is Placement.LOCAL:
        return np.ones(len(index.table), np.bool_)
    own, to_be_had = zip(*(_roomy(state, index, demand) for demand in demands(spec)), strict=True)
    found: Bools = (own[0] | own[1]) & (own[0] | to_be_had[0]) & (own[1] | to_be_had[1])
    return found


def _roomy(state: ClusterState, index: ClusterIndex, demand: Demand) -> tuple[Bools, bool]:
    """Whether the emptiest node of each group holds a part of the job, and whether a free node does."""
    table, place = index.table, list(PoolKind).index(demand.pool)
    roomy: Bools = table["free_bytes"][place].max(0) >= demand.host_bytes
    for row in _without_columns(table):
        group = state.groups[table.names[row]]
        nodes = group.rollout_nodes if demand.pool is PoolKind.ROLLOUT else group.training_nodes
        roomy[row] = any(index.free_bytes[node] >= demand.host_bytes for node in nodes)
    return roomy, next(index.catalog.free(demand.pool, demand.host_bytes), None) is not None


def _without_columns(table: GroupTable) -> list[int]:
    found: list[int] = np.flatnonzero((table["num_members"] == 0) & (table["standing"] != GONE)).tolist()
    return found


def _closed(state: ClusterState, table: GroupTable) -> list[int]:
    """The rows of groups that nobody may join. A saturated one may be: rollouts are not always at their cap."""
    rows = np.flatnonzero(table["standing"] == ROW_CLOSED).tolist()
    shut = (row for row in rows if table.closed[row] != SATURATED)
    return [row for row in shut if closed_reason(state, state.groups[table.names[row]])]


def _busy(state: ClusterState, spec: JobSpec, rows: Ints) -> _Busy:
    """Groups with the job on the least loaded node with room, or on a new one; odd ones are taken to be idle."""
    assert spec.profile is not None
    times, switches = planned_durations(spec.profile), switches_of(state.cluster, spec.profile)
    table = index_of(state).table
    needs = np.array([demand.host_bytes for demand in demands(spec)])[:, None, None]
    load = np.where(table["free_bytes"][:, :, rows] >= needs, table["load_us"][:, :, rows], FULL).min(1)
    load[load >= FULL] = 0
    held = np.array([times.rollout_us + switches.rollout_us, times.training_us + switches.training_us])
    busy = (load + held[:, None]).max(0)
    allowed = np.where(table["num_parts"][rows] == 1, table["least_allowed_us"][rows], FULL)
    return _Busy(rows, busy, busy > np.minimum(allowed, allowed_us(spec.slo, times.solo_us)))


def _added_usd(state: ClusterState, spec: JobSpec, near: _Busy) -> Floats:
    """Dollars that a group would cost more in rounds of its busiest node.

    All its nodes until the last member's end or the horizon, and the work that is not done by then; for throughput all
    its members until their own ends, at their own prices.
    """
    assert spec.profile is not None
    groups = groups_of(state, near.rows)
    record = state.jobs.get(spec.name)
    iterations = spec.iterations if record is None else iterations_left(record)
    left_us = (iterations or UNKNOWN_ITERATIONS) * mean_us(spec.profile)
    chain = np.maximum(index_of(state).table["longest_us"][near.rows], planned_durations(spec.profile).solo_us)
    slowdown = np.maximum(near.busy_us / chain, 1.0)
    alone = usd_alone(state, spec)
    if state.parameters.for_throughput:
        lives = np.array([_usd_of_lives(state, group) for group in groups], np.float64)
        lost: Floats = lives * (slowdown - 1.0) + alone * left_us * slowdown / HOUR_US
        return lost
    until = np.array([_until_us(state, group) for group in groups], np.float64)
    usd_per_hour = np.array([state.usd_per_hour(group.nodes) for group in groups], np.float64)
    members = np.array([sum(usd_alone(state, one.spec) for one in state.members(group)) for group in groups])
    longest = np.maximum(until, left_us)
    needed = np.minimum(longest * slowdown, HORIZON_US)
    put_off = np.maximum(longest - needed / slowdown, 0.0) - np.maximum(longest - HORIZON_US, 0.0)
    later = price_of_work(state.spending) * (members + alone) * put_off
    added: Floats = (usd_per_hour * (needed - np.minimum(until, HORIZON_US)) + later) / HOUR_US
    return added


def _usd_of_lives(state: ClusterState, group: Group) -> float:
    """What the members' lives alone are worth from now on."""
    known = ((record, record.profile) for record in state.members(group))
    return sum(
        usd_alone(state, one.spec) * (iterations_left(one) or UNKNOWN_ITERATIONS) * mean_us(profile) / HOUR_US
        for one, profile in known
        if profile
    )


def _until_us(state: ClusterState, group: Group) -> int:
    """The longest solo time that a member has left."""
    known = ((record, record.profile) for record in state.members(group))
    left = ((iterations_left(one) or UNKNOWN_ITERATIONS) * mean_us(profile) for one, profile in known if profile)
    return max(left, default=0)
