"""The published family of placements, one candidate after the other: for any job, and for the words of a refusal."""

from collections.abc import Iterator
from itertools import islice
from math import ceil

from weaverl.domain.cluster import Node, PoolKind
from weaverl.domain.groups import Group
from weaverl.domain.jobs import JobSpec, Placement
from weaverl.scheduling.admission import CLOSED, Candidate
from weaverl.scheduling.group_rows import SATURATED, closed_reason
from weaverl.scheduling.index import index_of
from weaverl.scheduling.policies.pinning import isolated, joined, nodes_of
from weaverl.scheduling.round_model import is_saturated
from weaverl.scheduling.state import ClusterState

NO_PROFILE = "a job without a profile is placed alone until its first iterations gave one"
_KINDS = ("pack", "scale rollout", "isolate")


def candidates(state: ClusterState, spec: JobSpec) -> list[Candidate]:
    """All placements of the family, cheapest first; ties go to packing, then to the older group."""
    found = [isolated(state, spec)]
    for group in state.groups.values():
        found += joining(state, spec, group)
    return sorted(found, key=lambda c: (c.added_usd_per_hour, _KINDS.index(c.kind)))


def joining(state: ClusterState, spec: JobSpec, group: Group) -> Iterator[Candidate]:
    """The ways into a group: its own nodes, or its training nodes with some or all rollout nodes new."""
    closed = _closed(state, spec, group)
    if closed:
        yield Candidate(kind="pack", group=group, added_usd_per_hour=0.0, refused=closed, sort=CLOSED)
        return
    yield with_opened(state, spec, group, [], spec.rollout_gpus)
    if spec.placement is Placement.LOCAL:
        return
    free = openable(state, spec)
    needed = ceil(spec.rollout_gpus / max((node.num_devices for node in free), default=1))
    for opened in range(1, min(needed, len(free)) + 1):
        yield with_opened(state, spec, group, free[:opened], needed - opened)


def with_opened(state: ClusterState, spec: JobSpec, group: Group, opened: list[Node], kept: int) -> Candidate:
    """Into the group, on new rollout nodes and, if ``kept`` is not 0, those that it has."""
    own = nodes_of(state, group.rollout_nodes) if kept else []
    return joined(state, spec, group, opened + own, nodes_of(state, group.training_nodes), opened)


def _closed(state: ClusterState, spec: JobSpec, group: Group) -> str:
    """Why the job may not join the group, or an empty string."""
    closed = NO_PROFILE if spec.profile is None else closed_reason(state, group)
    if not closed and is_saturated(index_of(state).members(group.members)):
        return SATURATED
    return closed


def openable(state: ClusterState, spec: JobSpec) -> list[Node]:
    """The free rollout nodes that could be opened for the job, by name: no more than it could use."""
    names = index_of(state).catalog.free(PoolKind.ROLLOUT, spec.host_memory.rollout_bytes)
    return nodes_of(state, islice(names, spec.rollout_gpus))
