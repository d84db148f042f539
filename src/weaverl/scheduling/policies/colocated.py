"""Colocated (veRL): both phases of every job on training GPUs of its own, whose states take turns there.

A baseline: a job is placed whatever its promise is; what it is slowed to is told and measured.
"""

from weaverl.domain.cluster import PoolKind
from weaverl.domain.jobs import JobSpec
from weaverl.scheduling.admission import Decision, judge, verdict_on
from weaverl.scheduling.policies.pinning import colocated
from weaverl.scheduling.state import ClusterState


def choose(state: ClusterState, spec: JobSpec) -> Decision:
    """Training nodes of its own for both phases, or none if too few are free."""
    candidate = colocated(state, spec, PoolKind.TRAINING)
    judgement = judge(state, candidate, spec)
    if candidate.pin is None:
        return Decision(chosen=None, verdicts=(verdict_on(candidate, judgement),))
    told = verdict_on(candidate, judgement, refused="")
    return Decision(chosen=candidate, verdicts=(told,), slowdowns=judgement.slowdowns)
