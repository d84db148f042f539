"""What a group is expected to come to in dollars, by what the cluster is for.

Objective ``dollars``: nodes come and go, and each is paid for until the last job on it ends. Objective ``throughput``:
the nodes of a fixed fleet are paid for anyway, and what can be lost is work. A second of a job's work is worth the
price of the GPUs that it would have alone, so a job is charged that for each second that it lasts: the fewest dollars
are the most work a second over the time to come and, among jobs of one size, the least mean completion time.
"""

from collections.abc import Mapping, Sequence

from weaverl.domain.units import HOUR_US
from weaverl.scheduling.expected_dollars import Stay, ends_us, until_us, usd_until
from weaverl.scheduling.state import ClusterState


def expected_usd(
    state: ClusterState,
    stays: Sequence[Stay],
    slowdowns: Mapping[str, float],
    until: Mapping[str, float] | None = None,
) -> float:
    """What the members with these slowdowns are expected to cost from now on; ``until``: ``until_us``, if known."""
    if state.parameters.for_throughput:
        return usd_of_lives(stays, slowdowns)
    return usd_until(state, until_us(stays, slowdowns) if until is None else until)


def usd_of_lives(stays: Sequence[Stay], slowdowns: Mapping[str, float]) -> float:
    """Dollars of all members' lives, each at the price of nodes of its own."""
    ends = ends_us(stays, slowdowns)
    return sum(stay.usd_per_hour * end for stay, end in zip(stays, ends, strict=True)) / HOUR_US
