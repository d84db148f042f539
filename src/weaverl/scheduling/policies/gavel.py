"""Gavel+: whole jobs take turns of six minutes, on the GPU types with the most work per dollar that keep the promises.

After Narayanan et al., *Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads* (OSDI 2020), with
the dollar objective of its section 4.2 under SLOs. No phases are interleaved: a job's turn takes all its slots, so
sharing gains no throughput, and happens where no free node is left.
"""

from collections.abc import Iterator

import msgspec

from weaverl.domain.cluster import PoolKind
from weaverl.domain.groups import Group, Pin
from weaverl.domain.jobs import JobSpec
from weaverl.scheduling.admission import (
    Candidate,
    Decision,
    Judgement,
    Told,
    breaks_promise,
    decided,
    members_with,
    short_of,
)
from weaverl.scheduling.index import index_of
from weaverl.scheduling.policies.pinning import colocated, isolated
from weaverl.scheduling.round_model import Member, cycle_us
from weaverl.scheduling.state import ClusterState

QUANTUM_US = 6 * 60 * 1_000_000


def choose(state: ClusterState, spec: JobSpec) -> Decision:
    """The placement with the most solo work per dollar among those that keep every promise."""
    judged = [(candidate, _judge(state, candidate, spec)) for candidate in _candidates(state, spec)]
    judged.sort(key=lambda one: _usd_per_solo_hour(state, one[0], one[1], spec))
    told = Told()
    for candidate, judgement in judged:
        if not judgement.refused:
            return decided(candidate, judgement, told)
        told.refused(candidate, judgement)
    return Decision(chosen=None, verdicts=told.verdicts())


def shared_slowdowns(members: list[Member]) -> dict[str, float]:
    """Slowdown of each of some jobs that take turns of one quantum: the turns of all over its own, times its pace."""
    turns_us = sum(QUANTUM_US + (_switch_us(member) if len(members) > 1 else 0) for member in members)
    return {m.job: float(turns_us / QUANTUM_US * cycle_us([m]) / m.solo_us) for m in members}


def _switch_us(member: Member) -> int:
    """What a turn costs to begin. A colocated job's states are restored phase by phase, turn or no turn."""
    is_colocated = member.pin.rollout == member.pin.training
    return 0 if is_colocated else member.switches.rollout_us + member.switches.training_us


def _candidates(state: ClusterState, spec: JobSpec) -> Iterator[Candidate]:
    yield _in_turns(isolated(state, spec))
    if spec.profile is None:
        return
    for pool in PoolKind:
        yield _in_turns(colocated(state, spec, pool))
    for group in state.groups.values():
        yield _joined(state, spec, group)


def _in_turns(candidate: Candidate) -> Candidate:
    group = msgspec.structs.replace(candidate.group, quantum_us=QUANTUM_US)
    return msgspec.structs.replace(candidate, group=group)


def _joined(state: ClusterState, spec: JobSpec, group: Group) -> Candidate:
    """Turns on the very slots that the group's members have."""
    pin = state.members(group)[0].pin
    assert pin is not None
    refused = _cannot_join(state, spec, group, pin)
    if refused:
        return Candidate(kind="take turns", group=group, added_usd_per_hour=0.0, refused=refused)
    grown = msgspec.structs.replace(group, members=(*group.members, spec.name))
    return Candidate(kind="take turns", group=grown, pin=pin, added_usd_per_hour=0.0)


def _cannot_join(state: ClusterState, spec: JobSpec, group: Group, pin: Pin) -> str:
    for record in state.members(group):
        if record.profile is None:
            return f"{record.spec.name} is being profiled there"
        if record.ending is not None:
            return f"{record.spec.name} is leaving it"
    rollout, training = pin.nodes(PoolKind.ROLLOUT), pin.nodes(PoolKind.TRAINING)
    fits = _asked(spec, state, pin) == (len(pin.rollout), len(pin.training))
    if not fits:
        return f"its jobs have {len(pin.rollout)} and {len(pin.training)} GPUs"
    memory = spec.host_memory
    for node in dict.fromkeys(rollout + training):
        needs = (memory.rollout_bytes if node in rollout else 0) + (memory.training_bytes if node in training else 0)
        if (free := index_of(state).free_bytes[node]) < needs:
            return short_of(needs, node, free)
    return ""


def _asked(spec: JobSpec, state: ClusterState, pin: Pin) -> tuple[int, int]:
    """GPUs that the job would use where these slots are."""
    if pin.rollout != pin.training:
        return spec.rollout_gpus, spec.training_gpus
    on_training = state.nodes[pin.training[0].node].node.pool is PoolKind.TRAINING
    return (spec.training_gpus if on_training else spec.rollout_gpus,) * 2


def _judge(state: ClusterState, candidate: Candidate, spec: JobSpec) -> Judgement:
    if candidate.pin is None:
        return Judgement(refused=candidate.refused)
    if spec.profile is None:
        return Judgement(slowdowns={spec.name: 1.0})
    slowdowns = shared_slowdowns(members_with(state, candidate, spec))
    for job, slowdown in slowdowns.items():
        slo = spec.slo if job == spec.name else state.jobs[job].slo
        if slowdown > slo:
            return Judgement(refused=breaks_promise(job, slowdown, slo), slowdowns=slowdowns)
    return Judgement(slowdowns=slowdowns)


def _usd_per_solo_hour(state: ClusterState, candidate: Candidate, judgement: Judgement, spec: JobSpec) -> float:
    """Dollars for an hour of solo work: the job's equal share of its nodes' price, as much longer as it is slowed."""
    slowdown = judgement.slowdowns.get(spec.name)
    if slowdown is None:
        return float("inf")
    return state.usd_per_hour(candidate.group.nodes) / len(candidate.group.members) * slowdown
