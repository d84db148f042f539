"""Consolidation: which running jobs had better be elsewhere, now that others have left.

A pure question about a state: it is asked aside, its answer comes back through the door as an event, and a plan made
for a placement that has changed since is refused. A move pays when the dollars that it saves over the remaining work
are ``saving_over_cost`` times those of its cold start, and some dollars at all.
"""

from collections.abc import Collection, Iterator
from typing import NamedTuple

import msgspec

from weaverl.domain.cluster import PoolKind
from weaverl.domain.events import PlanProposed
from weaverl.domain.groups import Group, Move, Pin
from weaverl.domain.jobs import JobSpec, JobState
from weaverl.scheduling.admission import Candidate, Judgement, judge, short_of
from weaverl.scheduling.expected_dollars import (
    UNKNOWN_ITERATIONS,
    expected_slowdowns,
    iterations_left,
    usd_left,
    usd_left_with,
)
from weaverl.scheduling.group_rows import closed_reason
from weaverl.scheduling.index import index_of, trial_of
from weaverl.scheduling.placement import change, fold_group, planning_spec, without_job
from weaverl.scheduling.policies.one_by_one import joining
from weaverl.scheduling.policies.pinning import demands, grown, isolated
from weaverl.scheduling.progress import mean_us
from weaverl.scheduling.state import ClusterState, JobRecord

MOVING_POLICY = "weave"
MOST_MOVES = 4
"""In one plan: a plan is made from expectations, and the next departure asks for another."""


class Option(NamedTuple):
    """A place to move to, and what is saved by it over the remaining work, the move's cost taken off."""

    candidate: Candidate
    saving_usd: float
    cost_usd: float


def propose(state: ClusterState, near: Collection[str] | None = None) -> PlanProposed | None:
    """The moves that pay, each on top of those before it; None if none does, or the policy moves nobody.

    ``near`` are the groups that somebody has left: their members are looked at, and who could join them. None: all.
    """
    if state.parameters.policy != MOVING_POLICY:
        return None
    trial, moves = state, list[Move]()
    near = state.groups if near is None else near
    for record in _by_share(state):
        if len(moves) == MOST_MOVES:
            break
        best = _best(trial, record, near)
        if best is not None:
            moves.append(_move(trial, record, best))
            trial = _placed(without_record(trial, record), record, best)
    return PlanProposed(base_version=state.version, moves=tuple(moves)) if moves else None


def refusal(state: ClusterState, job: str, attempt: int) -> str:
    """Why a job cannot be moved now, or an empty string."""
    record, parameters = state.jobs.get(job), state.parameters
    if record is None or record.attempt != attempt or record.state is not JobState.RUNNING:
        return f"attempt {attempt} of {job} does not run"
    if record.spec.checkpoint_directory is None:
        return f"{job} keeps no checkpoints, so that it cannot be moved"
    if record.profile is None or record.started_at is None:
        return f"{job} has no profile yet"
    if job in state.moves:
        return f"{job} is to move already"
    if record.moves >= parameters.max_moves_per_job:
        return f"{job} was moved {record.moves} times already"
    if state.now - record.started_at < parameters.least_stay_us:
        return f"{job} has not been where it is for long"
    return ""


def option_of(state: ClusterState, without: ClusterState, record: JobRecord, move: Move) -> Option | str:
    """What a planned move is worth by now; or why it cannot be made any more."""
    candidate = candidate_of(without, remaining_spec(record), move)
    if isinstance(candidate, str):
        return candidate
    option = _weigh(state, without, record, candidate, _usd_freed(state, record))
    refused = _judge(state, without, record, option).refused
    return refused or option


def candidate_of(without: ClusterState, spec: JobSpec, move: Move) -> Candidate | str:
    """The planned placement in a state without the job; or why it is not to be had any more."""
    group = without.groups.get(move.group)
    if group is None and move.group:
        return f"group {move.group} is gone"
    group = group or Group(f"g{without.groups_made + 1}", (), (), ())
    if closed := closed_reason(without, group):
        return closed
    index = index_of(without)
    for demand in demands(spec):
        for node in move.pin.nodes(demand.pool):
            if index.group_on(node) not in (None, group.name) or not without.nodes[node].usable:
                return f"node {node} is not to be had any more"
            if index.free_bytes[node] < demand.host_bytes:
                return short_of(demand.host_bytes, node, index.free_bytes[node])
    return grown(without, spec, group, move.pin, "move")


def pays(state: ClusterState, option: Option) -> bool:
    """Whether an option saves enough for a running job to be moved."""
    parameters = state.parameters
    return option.saving_usd >= max(parameters.least_saving_usd, (parameters.saving_over_cost - 1.0) * option.cost_usd)


def without_record(state: ClusterState, record: JobRecord) -> ClusterState:
    """A state to try things on, in which the job has left its place."""
    trial = trial_of(state)
    change(trial, record.spec.name, pin=None, group=None)
    _fold_without(state, trial, record)
    return trial


def remaining_spec(record: JobRecord) -> JobSpec:
    """The job as an arrival that has only its remaining iterations to run."""
    return msgspec.structs.replace(planning_spec(record), iterations=iterations_left(record))


def _fold_without(state: ClusterState, trial: ClusterState, record: JobRecord) -> None:
    fold_group(trial, without_job(state, record).group)


def _by_share(state: ClusterState) -> Iterator[JobRecord]:
    """The jobs that can be moved, those first that have their nodes for themselves the most."""
    found = []
    for group in state.groups.values():
        if group.quantum_us or any(r.profile is None or r.ending for r in state.members(group)):
            continue
        share = state.usd_per_hour(group.nodes) / len(group.members)
        found += [(-share, name) for name in group.members if not refusal(state, name, state.jobs[name].attempt)]
    for _, name in sorted(found):
        yield state.jobs[name]


def _best(state: ClusterState, record: JobRecord, near: Collection[str]) -> Option | None:
    """The place that saves the most among those that keep all promises and pay."""
    freed = _usd_freed(state, record)
    if freed < state.parameters.least_saving_usd:
        return None
    options = [one for one in _options(state, record, near, freed) if pays(state, one)]
    for option in sorted(options, key=lambda one: -one.saving_usd):
        without = without_record(state, record)
        if not _judge(state, without, record, option).refused:
            return option
    return None


def _options(state: ClusterState, record: JobRecord, near: Collection[str], freed: float) -> Iterator[Option]:
    """Other places for a job: any for one whose group somebody has left, else only those in such groups."""
    spec, own = remaining_spec(record), record.group
    without = without_record(state, record) if own in near else state
    groups = [group for name, group in without.groups.items() if own in near or name in near]
    found = [isolated(without, spec)] if own in near else []
    for group in groups:
        found += joining(without, spec, group)
    for candidate in found:
        if candidate.pin is not None and freed > candidate.added_usd_per_hour * _least_hours(spec):
            yield _weigh(state, without, record, candidate, freed)


def _least_hours(spec: JobSpec) -> float:
    """How long the job will be there at least."""
    assert spec.profile is not None
    return (spec.iterations or UNKNOWN_ITERATIONS) * mean_us(spec.profile) / 3600e6


def _usd_freed(state: ClusterState, record: JobRecord) -> float:
    """What the job's group costs less from now on without it."""
    assert record.group is not None
    members = state.groups[record.group].members
    return usd_left(state, members) - usd_left(state, [name for name in members if name != record.spec.name])


def _weigh(state: ClusterState, without: ClusterState, record: JobRecord, candidate: Candidate, freed: float) -> Option:
    assert candidate.pin is not None
    spec = remaining_spec(record)
    cost = state.usd_per_hour(_nodes(candidate.pin)) * record.start_us / 3600e6
    others = [name for name in candidate.group.members if name != spec.name]
    added = usd_left_with(without, candidate, spec) - usd_left(without, others)
    return Option(candidate, freed - added - cost, cost)


def _judge(state: ClusterState, without: ClusterState, record: JobRecord, option: Option) -> Judgement:
    """Whether all promises are kept: in the new group's rounds at the cap, and over each member's whole life."""
    spec = remaining_spec(record)
    judgement = judge(without, option.candidate, spec)
    if judgement.refused:
        return judgement
    for name, expected in expected_slowdowns(without, option.candidate, spec).items():
        member, lost_us = (record, record.start_us) if name == spec.name else (without.jobs[name], 0)
        slowdown = max(expected, judgement.slowdowns.get(name, 1.0))
        whole = _slowdown_of_life(state, member, slowdown, lost_us)
        if whole > member.spec.slo:
            refused = f"would slow {name} to {whole:.2f}x over its life, its SLO is {member.spec.slo:.2f}x"
            return msgspec.structs.replace(judgement, refused=refused)
    return judgement


def _slowdown_of_life(state: ClusterState, record: JobRecord, slowdown: float, lost_us: int) -> float:
    """A promise is about the whole life: what a job has had so far, what a move takes, and what is to come."""
    assert record.profile is not None
    ahead_us = (iterations_left(record) or UNKNOWN_ITERATIONS) * mean_us(record.profile)
    life_us = record.progress.elapsed_us(state.now) + lost_us + slowdown * ahead_us
    return life_us / (record.progress.solo_us + ahead_us)


def _move(state: ClusterState, record: JobRecord, option: Option) -> Move:
    candidate = option.candidate
    assert candidate.pin is not None
    group = candidate.group.name if candidate.group.name in state.groups else ""
    return Move(
        job=record.spec.name, attempt=record.attempt, group=group, pin=candidate.pin, saving_usd=option.saving_usd
    )


def _placed(without: ClusterState, record: JobRecord, option: Option) -> ClusterState:
    """The state after the move."""
    group = option.candidate.group
    change(without, record.spec.name, pin=option.candidate.pin, group=group.name)
    without.groups_made += group.name not in without.groups
    fold_group(without, group)
    return without


def _nodes(pin: Pin) -> tuple[str, ...]:
    return tuple(dict.fromkeys(pin.nodes(PoolKind.ROLLOUT) + pin.nodes(PoolKind.TRAINING)))
