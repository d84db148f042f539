"""What a group is expected to come to in dollars, by what the cluster is for.

Objective ``dollars``: nodes come and go, and each is paid for until the last job on it ends, but no further ahead than
the horizon. Jobs come and go and others are moved, so that nothing stays as it is until all have ended; what is left
to do by then is charged at the price of work in this cluster (a rolling horizon, as in model predictive control).
Objective ``throughput``: the nodes of a fixed fleet are paid for anyway, and what can be lost is
work. A second of a job's work is worth the price of the GPUs that it would have alone, so a job is charged that for
each second that it lasts: the fewest dollars are the most work a second over the time to come and, among jobs of one
size, the least mean completion time.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import NamedTuple

from weaverl.domain.units import HOUR_US
from weaverl.scheduling.expected_dollars import Stay, course_of, until_us, usd_until
from weaverl.scheduling.state import ClusterState

HORIZON_US = 8 * HOUR_US
"""So far ahead dollars are counted as things are."""


class Ahead(NamedTuple):
    """Until when each node is needed, in microseconds from now and no longer than the horizon, and the dollars."""

    until_us: dict[str, float]
    usd: float


def ahead_of(state: ClusterState, stays: Sequence[Stay], slowdowns: Mapping[str, float]) -> Ahead:
    """What the members with these slowdowns are expected to come to from now on."""
    is_fixed = state.parameters.for_throughput
    course = course_of(stays, slowdowns, inf if is_fixed else HORIZON_US)
    until = until_us(stays, course.ends_us)
    if is_fixed:
        return Ahead(until, usd_of_lives(stays, course.ends_us))
    return Ahead(until, usd_until(state, until) + later_usd(stays, course.left_us))


def expected_usd(state: ClusterState, stays: Sequence[Stay], slowdowns: Mapping[str, float]) -> float:
    """What the members with these slowdowns are expected to cost from now on."""
    return ahead_of(state, stays, slowdowns).usd


def later_usd(stays: Iterable[Stay], left_us: Iterable[float]) -> float:
    """Dollars for the solo microseconds that each has left at the horizon."""
    return sum(stay.work_price * stay.usd_per_hour * left for stay, left in zip(stays, left_us, strict=True)) / HOUR_US


def least_later_usd(stay: Stay) -> float:
    """Of a job that nobody slows down."""
    return later_usd([stay], [max(stay.left_us - HORIZON_US, 0.0)])


def usd_of_lives(stays: Iterable[Stay], ends_us: Iterable[float]) -> float:
    """Dollars of all members' lives, each at the price of nodes of its own."""
    return sum(stay.usd_per_hour * end for stay, end in zip(stays, ends_us, strict=True)) / HOUR_US
