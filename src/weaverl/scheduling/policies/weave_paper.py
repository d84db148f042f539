"""The policy as published (WEAVE, OSDI 2026, algorithm 1): pack, else scale the rollout side, else isolate.

Candidates come in the order of their added cost. Saturated groups are pruned first. Rollout time for planning is
the profile at the response cap.
"""

from collections.abc import Iterator
from math import ceil

from weaverl.domain.cluster import Node, PoolKind
from weaverl.domain.groups import Group
from weaverl.domain.jobs import JobSpec, Placement
from weaverl.scheduling.admission import Candidate, Decision, first_admitted
from weaverl.scheduling.policies.pinning import isolated, pinned, roomy
from weaverl.scheduling.round_model import is_saturated
from weaverl.scheduling.state import ClusterState, as_member

_KINDS = ("pack", "scale rollout", "isolate")


def choose(state: ClusterState, spec: JobSpec) -> Decision:
    """The cheapest placement that keeps every promise, with the reason for each that was refused before it."""
    return first_admitted(state, candidates(state, spec), spec)


def candidates(state: ClusterState, spec: JobSpec) -> list[Candidate]:
    """All placements of the family, cheapest first; ties go to packing, then to the group named first."""
    found = [isolated(state, spec)]
    for _, group in sorted(state.groups.items()):
        found += _shared(state, spec, group)
    return sorted(found, key=lambda c: (c.added_usd_per_hour, _KINDS.index(c.kind), c.group.name))


def _shared(state: ClusterState, spec: JobSpec, group: Group) -> Iterator[Candidate]:
    closed = _closed(state, spec, group)
    if closed:
        yield Candidate(kind="pack", group=group, added_usd_per_hour=0.0, refused=closed)
        return
    rollout = _nodes(state, group.rollout_nodes)
    training = _nodes(state, group.training_nodes)
    yield pinned(state, spec, group, rollout, training, "pack")
    if spec.placement is Placement.LOCAL:
        return
    free = roomy(state, spec.host_memory.rollout_bytes, state.free_nodes(PoolKind.ROLLOUT))
    needed = ceil(spec.rollout_gpus / max((node.num_devices for node in free), default=1))
    for added in range(1, min(needed, len(free)) + 1):
        kept = rollout if added < needed else []
        yield pinned(state, spec, group, free[:added] + kept, training, "scale rollout")


def _closed(state: ClusterState, spec: JobSpec, group: Group) -> str:
    """Why nobody may join the group, or an empty string."""
    members = state.members(group)
    if spec.profile is None:
        return "a job without a profile is placed alone until its first iterations gave one"
    for record in members:
        if record.profile is None:
            return f"{record.spec.name} is being profiled there"
        if record.ending is not None:
            return f"{record.spec.name} is leaving it"
    if is_saturated([as_member(state, record) for record in members]):
        return "saturated: its busiest device has no bubble left"
    return ""


def _nodes(state: ClusterState, names: tuple[str, ...]) -> list[Node]:
    return [state.nodes[name].node for name in names]
