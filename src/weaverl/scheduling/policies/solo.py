"""Solo-D: every job on nodes of its own in both pools, nothing shared."""

from weaverl.domain.jobs import JobSpec
from weaverl.scheduling.admission import Decision, first_admitted
from weaverl.scheduling.policies.pinning import isolated
from weaverl.scheduling.state import ClusterState


def choose(state: ClusterState, spec: JobSpec) -> Decision:
    """A group of its own, or none."""
    return first_admitted(state, [isolated(state, spec)], spec)
