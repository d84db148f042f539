"""The policy as published (WEAVE, OSDI 2026, algorithm 1): pack, else scale the rollout side, else isolate.

Candidates come in the order of their added cost; ties go to packing, then to the older group. Saturated groups are
pruned first. Rollout time for planning is the profile at the response cap.
"""

from weaverl.domain.jobs import JobSpec
from weaverl.scheduling.admission import Decision, first_admitted
from weaverl.scheduling.policies import all_at_once
from weaverl.scheduling.policies.one_by_one import candidates
from weaverl.scheduling.state import ClusterState


def choose(state: ClusterState, spec: JobSpec) -> Decision:
    """The cheapest placement that keeps every promise, with the reasons of those that were refused before it.

    A job that asks for whole nodes is judged against all groups at once, any other against one after the other; the
    decisions are the same.
    """
    arrival = all_at_once.arrival_of(state, spec)
    if arrival is None:
        return first_admitted(state, candidates(state, spec), spec)
    return all_at_once.choose(state, spec, arrival)
