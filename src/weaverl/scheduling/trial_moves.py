"""What comes of planned moves, tried on copies of the state: the place by then, the dollars, the promises."""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from weaverl.domain.cluster import Slot
from weaverl.domain.groups import Group, Move, Pin
from weaverl.domain.jobs import JobSpec, Placement
from weaverl.domain.units import HOUR_US
from weaverl.scheduling.admission import Candidate, Decision, Told, decided, short_of, verdict_on
from weaverl.scheduling.expected_dollars import nodes_of_pin
from weaverl.scheduling.group_rows import closed_reason
from weaverl.scheduling.index import index_of, trial_of
from weaverl.scheduling.placement import change, fold_group, planning_spec, without_job
from weaverl.scheduling.policies import weave
from weaverl.scheduling.policies.pinning import colocated_on, demands, grown, new_group
from weaverl.scheduling.progress import iterations_left
from weaverl.scheduling.state import ClusterState, JobRecord


class Option(NamedTuple):
    """A place to move to, and what is saved by it over the remaining work, the move's cost taken off."""

    candidate: Candidate
    saving_usd: float
    cost_usd: float


def option_of(
    state: ClusterState, without: ClusterState, record: JobRecord, move: Move, *, planned: bool = True
) -> Option | str:
    """What a planned move is worth by now; or why it cannot be made any more.

    ``planned``: the company that it joins is the one that it was planned for (see ``weave.judged``).
    """
    spec = remaining_spec(record)
    candidate = candidate_of(without, spec, move)
    if isinstance(candidate, str):
        return candidate
    option = _weave_option(without, spec, candidate, record.start_us)
    judgement, added = weave.judged(without, option, planned=planned)
    cost = cost_of(state, record)
    return judgement.refused or Option(candidate, usd_freed(state, without, record) - added - cost, cost)


def decide_on(state: ClusterState, record: JobRecord, move: Move) -> Decision:
    """The planned placement of a job that has left its old one; nothing is chosen if it is not to be had any more."""
    spec = remaining_spec(record)
    candidate = candidate_of(state, spec, move)
    if isinstance(candidate, str):
        return Decision(chosen=None, verdicts=())
    judgement, _ = weave.judged(state, _weave_option(state, spec, candidate, record.start_us), planned=True)
    if judgement.refused:
        return Decision(chosen=None, verdicts=(verdict_on(candidate, judgement),))
    return decided(candidate, judgement, Told())


def candidate_of(without: ClusterState, spec: JobSpec, move: Move) -> Candidate | str:
    """The planned placement in a state without the job; or why it is not to be had any more."""
    group = without.groups.get(move.group)
    if group is None and move.group:
        return f"group {move.group} is gone"
    group = group or new_group(without)
    if closed := closed_reason(without, group):
        return closed
    index = index_of(without)
    if move.pin.rollout == move.pin.training:
        return _colocated_again(without, spec, group, move)
    for demand in demands(spec):
        for node in move.pin.nodes(demand.pool):
            if index.group_on(node) not in (None, group.name) or not without.nodes[node].usable:
                return f"node {node} is not to be had any more"
            if index.free_bytes[node] < demand.host_bytes:
                return short_of(demand.host_bytes, node, index.free_bytes[node])
    return grown(without, spec, group, move.pin, "move")


def _colocated_again(without: ClusterState, spec: JobSpec, group: Group, move: Move) -> Candidate | str:
    """The planned placement with all phases on the same slots."""
    index, needs_bytes = index_of(without), sum(demand.host_bytes for demand in demands(spec))
    pool = without.nodes[move.pin.rollout[0].node].node.pool
    for node in dict.fromkeys(slot.node for slot in move.pin.rollout):
        if index.group_on(node) is not None or not without.nodes[node].usable:
            return f"node {node} is not to be had any more"
        if index.free_bytes[node] < needs_bytes:
            return short_of(needs_bytes, node, index.free_bytes[node])
    candidate = colocated_on(without, spec, pool, move.pin.rollout)
    again = msgspec.structs.replace(candidate.group, name=group.name, by_slack=group.by_slack)
    return msgspec.structs.replace(candidate, group=again)


def placed(state: ClusterState, record: JobRecord, option: Option) -> ClusterState:
    """The state after the move, and after the job's start there."""
    return put(without_record(state, record), record, option.candidate)


def put(without: ClusterState, record: JobRecord, candidate: Candidate) -> ClusterState:
    """The state after a job that has left its place has started in another."""
    trial, group = trial_of(without), candidate.group
    progress = msgspec.structs.replace(record.progress, wall_us=record.progress.wall_us + record.start_us)
    change(trial, record.spec.name, pin=candidate.pin, group=group.name, progress=progress)
    trial.groups_made += group.name not in trial.groups
    fold_group(trial, group)
    return trial


def on_nodes_free_before(
    before: ClusterState, trial: ClusterState, record: JobRecord, candidate: Candidate
) -> Candidate:
    """The same placement of a job, the nodes that it opens taken from its own ones, then from those free ``before``.

    On a node that another job has yet to leave it would have to wait for that one, which may wait for it.
    """
    assert candidate.pin is not None and record.pin is not None
    if candidate.pin.rollout == candidate.pin.training or record.spec.placement is Placement.LOCAL:
        return candidate
    now, own = index_of(trial), nodes_of_pin(record.pin)
    instead: dict[str, str] = {}
    for node in nodes_of_pin(candidate.pin):
        if now.group_on(node) is None:
            alike = (one for one in now.catalog.free_like(node) if one not in instead.values())
            instead[node] = min(alike, key=lambda one: (one not in own, index_of(before).group_on(one) or "", one))
    if all(node == other for node, other in instead.items()):
        return candidate
    halves = (candidate.pin.rollout, candidate.pin.training)
    pin = Pin(*(tuple(Slot(instead.get(slot.node, slot.node), slot.device) for slot in half) for half in halves))
    group = trial.groups.get(candidate.group.name) or new_group(trial)
    return grown(trial, planning_spec(record), group, pin, candidate.kind)


def without_record(state: ClusterState, record: JobRecord) -> ClusterState:
    """A state to try things on, in which the job has left its place."""
    return without_records(state, (record,))


def without_records(state: ClusterState, records: Iterable[JobRecord]) -> ClusterState:
    """A state to try things on, in which some jobs have left their places."""
    trial = trial_of(state)
    for record in records:
        group = without_job(trial, trial.jobs[record.spec.name]).group
        change(trial, record.spec.name, pin=None, group=None)
        fold_group(trial, group)
    return trial


def remaining_spec(record: JobRecord) -> JobSpec:
    """The job as an arrival that has only its remaining iterations to run."""
    return msgspec.structs.replace(planning_spec(record), iterations=iterations_left(record))


def _weave_option(without: ClusterState, spec: JobSpec, candidate: Candidate, start_us: int) -> weave.Option:
    group = without.groups.get(candidate.group.name)
    company = weave.NOBODY if group is None else weave.company_of(without, group)
    return weave.option_of(without, spec, candidate, company, start_us)


def usd_freed(state: ClusterState, without: ClusterState, record: JobRecord) -> float:
    """What the job's group costs less from now on without it."""
    assert record.group is not None
    before, after = weave.company_of(state, state.groups[record.group]), without.groups.get(record.group)
    return before.usd - (0.0 if after is None else weave.company_of(without, after).usd)


def cost_of(state: ClusterState, record: JobRecord) -> float:
    """Of a move: nodes like those that the job has, while it starts."""
    assert record.pin is not None
    return state.usd_per_hour(nodes_of_pin(record.pin)) * record.start_us / HOUR_US
