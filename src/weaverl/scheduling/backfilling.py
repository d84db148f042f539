"""Who may pass whom in the queue of a fixed fleet: nobody who would have the first there start late.

EASY backfilling (Lifka, *The ANL/IBM SP Scheduling System*, 1995) with the expected ends of groups: the first that does
not fit is expected to start when enough nodes of each pool are free, and a later job may go before it if that does not
move, or if the first would start soon after its arrival all the same.
"""

from collections.abc import Mapping
from math import inf

from weaverl.domain.groups import Group
from weaverl.domain.jobs import JobSpec
from weaverl.domain.units import HOUR_US
from weaverl.scheduling.admission import Decision
from weaverl.scheduling.expected_dollars import course_of, slowdowns_of, stay_of, stay_of_newcomer, until_us
from weaverl.scheduling.policies.pinning import Demand, demands
from weaverl.scheduling.state import ClusterState, JobRecord

PATIENCE_US = 2 * HOUR_US
"""So long after its arrival a job may start, and be passed as if it did not wait."""

MOST_PASSED_US = 24 * HOUR_US
"""A job that has waited for so long is passed no more, whatever is expected: expectations that are always too good
would have it wait for ever. So it starts when those who run by then have ended, at the latest."""

MOST_PASSED_FOR_DOLLARS_US = 168 * HOUR_US
"""The same where throughput is not the objective. There jobs may wait for days, so that whoever is the first has waited
for a day, and nobody would ever pass: among jobs that wait for two days that cost a tenth of the dollars."""


def expected_wait_us(state: ClusterState, spec: JobSpec, instead: Mapping[str, float] = {}) -> float:
    """Microseconds until as many nodes are free as a job asks in each pool; ``instead``: when some nodes will be."""
    free_at = {**free_at_us(state), **instead}
    return max(_enough_us(state, demand, free_at) for demand in demands(spec))


def free_at_us(state: ClusterState) -> dict[str, float]:
    """In how many microseconds each usable node is expected to be free; infinite where somebody is not known yet."""
    free_at = {name: 0.0 for name, record in state.nodes.items() if record.usable}
    for group in state.groups.values():
        until = _until_us(state, group)
        free_at |= {node: until.get(node, 0.0) for node in group.nodes if node in free_at}
    return free_at


def would_delay(state: ClusterState, first: JobRecord, spec: JobSpec, decision: Decision) -> bool:
    """Whether a later job, placed as decided, would have the first in the queue start late, or must not pass it."""
    chosen, since = decision.chosen, _waits_since(first)
    assert chosen is not None and chosen.pin is not None
    if has_been_passed_enough(state, first):
        return True
    if spec.profile is None:
        until = dict.fromkeys(chosen.group.nodes, inf)
    else:
        others = [stay_of(state, state.jobs[name]) for name in chosen.group.members if name != spec.name]
        stays = [*others, stay_of_newcomer(state, spec, chosen.pin)]
        until = until_us(stays, course_of(stays, slowdowns_of(stays)).ends_us)
    start_us = expected_wait_us(state, first.spec, until)
    if state.now + start_us <= since + PATIENCE_US:
        return False
    return start_us > expected_wait_us(state, first.spec)


def has_been_passed_enough(state: ClusterState, first: JobRecord) -> bool:
    """Whether the first in the queue has waited for so long that nobody is to pass it any more."""
    most_us = MOST_PASSED_US if state.parameters.for_throughput else MOST_PASSED_FOR_DOLLARS_US
    return state.now - _waits_since(first) > most_us


def _waits_since(record: JobRecord) -> int:
    return max(record.queued_at, record.submitted_at)


def _until_us(state: ClusterState, group: Group) -> dict[str, float]:
    records = state.members(group)
    if any(record.profile is None for record in records):
        return dict.fromkeys(group.nodes, inf)
    stays = [stay_of(state, record) for record in records]
    return until_us(stays, course_of(stays, slowdowns_of(stays)).ends_us)


def _enough_us(state: ClusterState, demand: Demand, free_at: Mapping[str, float]) -> float:
    """When enough devices of a pool are free at once."""
    missing = demand.num_gpus
    nodes = (name for name in free_at if state.nodes[name].node.pool is demand.pool)
    for name in sorted(nodes, key=lambda one: (free_at[one], one)):
        if state.usable_host_bytes(name) >= demand.host_bytes:
            missing -= state.nodes[name].node.num_devices
        if missing <= 0:
            return free_at[name]
    return inf
