"""What a group is expected to come to in dollars, by what the cluster is for.

Objective ``dollars``: nodes come and go, and each is paid for until the last job on it ends. Objective ``throughput``:
the nodes of a fixed fleet are paid for anyway, and what can be lost is work. A second of a job's work is worth the
price of the GPUs that it would have alone, so a job is charged that for each second that it lasts: the fewest dollars
are the most work a second over the time to come and, among jobs of one size, the least mean completion time.
"""

from collections.abc import Mapping, Sequence

from weaverl.domain.units import HOUR_US
from weaverl.scheduling.expected_dollars import Stay, until_us, usd_until
from weaverl.scheduling.state import ClusterState


def expected_usd(state: ClusterState, stays: Sequence[Stay], slowdowns: Mapping[str, float]) -> float:
    """What the members with these slowdowns are expected to cost from now on."""
    if state.parameters.for_throughput:
        return usd_of_lives(stays, slowdowns)
    return usd_until(state, until_us(stays, slowdowns))


def usd_of_lives(stays: Sequence[Stay], slowdowns: Mapping[str, float]) -> float:
    """Dollars of all members' lives, each at the price of nodes of its own."""
    ends = ends_us(stays, slowdowns)
    return sum(stay.usd_per_hour * end for stay, end in zip(stays, ends, strict=True)) / HOUR_US


def ends_us(stays: Sequence[Stay], slowdowns: Mapping[str, float]) -> list[float]:
    """When each member ends, in microseconds from now, where its slowdown falls as others end before it.

    Each of the others has the same part in what is lost.
    """
    excess = [slowdowns[stay.member.job] - 1.0 for stay in stays]
    left = [float(stay.left_us) for stay in stays]
    ends, now = [0.0] * len(stays), 0.0
    running = list(range(len(stays)))
    share = 1.0
    while running:
        paces = {place: 1.0 + excess[place] * share for place in running}
        first = min(running, key=lambda place: left[place] * paces[place])
        passed = left[first] * paces[first]
        now += passed
        for place in running:
            left[place] = max(left[place] - passed / paces[place], 0.0)
        ends[first] = now
        running.remove(first)
        share = (len(running) - 1) / max(len(stays) - 1, 1)
    return ends
