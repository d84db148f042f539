"""Consolidation: which running jobs had better be elsewhere, now that others have come or left.

A pure question about a state: it is asked aside, its answer comes back through the door as an event, and a plan made
for a placement that has changed since is refused. Places are weighed as those of an arrival are (see
``policies.weave``), with a larger part of each promise kept in hand. A move pays when the dollars that it saves over
the remaining work are ``saving_over_cost`` times those of its cold start, and some dollars at all.
"""

from collections.abc import Collection, Iterable
from math import inf
from typing import NamedTuple

import msgspec

from weaverl.domain.events import PlanProposed
from weaverl.domain.groups import Group, Move
from weaverl.domain.jobs import JobSpec, JobState
from weaverl.domain.units import HOUR_US
from weaverl.scheduling.admission import Candidate, Decision, Told, decided, short_of, verdict_on
from weaverl.scheduling.expected_dollars import nodes_of_pin, slowdowns_of, stay_of
from weaverl.scheduling.group_rows import closed_reason
from weaverl.scheduling.index import index_of, trial_of
from weaverl.scheduling.objectives import expected_usd
from weaverl.scheduling.placement import change, fold_group, planning_spec, without_job
from weaverl.scheduling.policies import weave
from weaverl.scheduling.policies.pinning import colocated_on, demands, grown, new_group
from weaverl.scheduling.progress import iterations_left, measured_slowdown
from weaverl.scheduling.saving import MOST_UNSAVED
from weaverl.scheduling.state import ClusterState, JobRecord

MOST_MOVES = 4
"""In one plan: a plan is made from expectations, and the next departure asks for another."""

_KEPT_IN_PLACE = 0.5
"""Of the reserve at admission: with less in hand a promise is in danger, while there is time for a move."""

MOST_RESCUES = 2
"""Moves of a job for the sake of a promise, on top of those that save something; the last is kept for its own."""


class Option(NamedTuple):
    """A place to move to, and what is saved by it over the remaining work, the move's cost taken off."""

    candidate: Candidate
    saving_usd: float
    cost_usd: float


def propose(
    state: ClusterState, near: Collection[str] | None = None, most_moves: int = MOST_MOVES
) -> PlanProposed | None:
    """The moves that save a promise, then those that pay, each on top of those before it, one a job; or None.

    ``near`` are the groups that somebody has joined or left: their members are looked at, and who could join them.
    None: all. Where there is none, at a review, those are looked at who were too new where they are at the last one.
    """
    if not state.parameters.moves_jobs:
        return None
    trial, moves = state, list[Move]()
    for group in state.groups.values():
        rescue = _rescue(trial, trial.groups[group.name]) if len(moves) < most_moves else None
        if rescue is not None and rescue[0].pin is state.jobs[rescue[0].spec.name].pin:
            moves.append(move_of(trial, *rescue))
            trial = placed(trial, *rescue[:2])
    is_review, looked_at = near is not None and not near, set(state.groups if near is None else near)
    for name in _by_share(state):
        if len(moves) == most_moves:
            break
        record = trial.jobs[name]
        if record.pin is not state.jobs[name].pin:
            continue
        is_looked_at = record.group in looked_at or (is_review and _is_free_since_review(state, record))
        best = _paying(trial, record, None if is_looked_at else looked_at)
        if best is not None:
            looked_at |= {str(record.group), best.candidate.group.name}
            moves.append(move_of(trial, record, best))
            trial = placed(trial, record, best)
    return PlanProposed(base_version=state.version, moves=tuple(moves)) if moves else None


def refusal(state: ClusterState, job: str, attempt: int, *, rescues: bool = False) -> str:
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
    most = parameters.max_moves_per_job
    if record.moves >= most + (MOST_RESCUES if rescues and most else 0):
        return f"{job} was moved {record.moves} times already"
    if record.unsaved >= MOST_UNSAVED:
        return f"{job} was to leave {record.unsaved} times and had not saved"
    if state.now - record.started_at < parameters.least_stay_us and not rescues:
        return f"{job} has not been where it is for long"
    return ""


def option_of(state: ClusterState, without: ClusterState, record: JobRecord, move: Move) -> Option | str:
    """What a planned move is worth by now; or why it cannot be made any more."""
    spec = remaining_spec(record)
    candidate = candidate_of(without, spec, move)
    if isinstance(candidate, str):
        return candidate
    option = _weave_option(without, spec, candidate, record.start_us)
    judgement, added = weave.judged(without, option, planned=True)
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


def after(state: ClusterState, moves: Iterable[Move]) -> ClusterState:
    """The state after planned moves, each job at the end of an iteration; those that would be dropped are not made."""
    for move in moves:
        record = state.jobs[move.job]
        option = option_of(state, without_record(state, record), record, move)
        if not isinstance(option, str) and (option.saving_usd > 0.0 or move.rescues):
            state = placed(state, record, option)
    return state


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


def without_record(state: ClusterState, record: JobRecord) -> ClusterState:
    """A state to try things on, in which the job has left its place."""
    trial = trial_of(state)
    change(trial, record.spec.name, pin=None, group=None)
    fold_group(trial, without_job(state, record).group)
    return trial


def remaining_spec(record: JobRecord) -> JobSpec:
    """The job as an arrival that has only its remaining iterations to run."""
    return msgspec.structs.replace(planning_spec(record), iterations=iterations_left(record))


def _by_share(state: ClusterState) -> list[str]:
    """The jobs that can be moved, those first that have their nodes for themselves the most."""
    found = []
    for group in filter(lambda one: _is_settled(state, one), state.groups.values()):
        share = state.usd_per_hour(group.nodes) / len(group.members)
        found += [(-share, name) for name in group.members if not refusal(state, name, state.jobs[name].attempt)]
    return [name for _, name in sorted(found)]


def _is_settled(state: ClusterState, group: Group) -> bool:
    """Whether a group's members are known and stay."""
    return not group.quantum_us and all(one.profile is not None and not one.ending for one in state.members(group))


def _paying(state: ClusterState, record: JobRecord, near: Collection[str] | None) -> Option | None:
    """The place that saves the most, in groups ``near`` or anywhere, among those that keep all promises and pay.

    Nobody goes who could not afford one more cold start after this one.
    """
    stay = stay_of(state, record)
    if (stay.allowed - 1.0) * stay.left_us < 2 * record.start_us:
        return None
    parameters, cost = state.parameters, cost_of(state, record)
    least = max(parameters.saving_over_cost * cost, parameters.least_saving_usd + cost)
    return _best(state, record, near, least)


def _is_free_since_review(state: ClusterState, record: JobRecord) -> bool:
    """Whether a job was too new where it is to be moved when all was looked at last."""
    assert record.started_at is not None
    return 0 <= state.now - record.started_at - state.parameters.least_stay_us < state.parameters.review_us


def _rescue(state: ClusterState, group: Group) -> tuple[JobRecord, Option, str] | None:
    """The cheapest move of one member after which no promise of the group is in danger, if one is.

    Nobody gives the last move that it may make for another one's promise: its own may be in danger next.
    """
    if len(group.members) < 2 or not _is_settled(state, group) or not state.moves.keys().isdisjoint(group.members):
        return None
    in_danger = _in_danger(state, group)
    if in_danger is None:
        return None
    options = []
    for name in group.members:
        record = state.jobs[name]
        if refusal(state, name, record.attempt, rescues=True) or (name != in_danger and _has_one_move(state, record)):
            continue
        rest = without_record(state, record).groups[group.name]
        if name == in_danger or _in_danger(state, rest) is None:
            option = _best(state, record, None, -inf)
            if option is not None:
                options.append((record, option, in_danger))
    return max(options, key=lambda one: one[1].saving_usd, default=None)


def _has_one_move(state: ClusterState, record: JobRecord) -> bool:
    return record.moves + 1 == state.parameters.max_moves_per_job + MOST_RESCUES


def _in_danger(state: ClusterState, group: Group) -> str | None:
    """A member whose promise would be broken in the group as it is, and could be kept elsewhere.

    The forecast is corrected by how slow the job has been in this company.
    """
    stays = weave.company_of(state, group).stays
    slowdowns, is_present = slowdowns_of(stays), group == state.groups.get(group.name)
    for stay in stays:
        name = stay.member.job
        record, slowdown = state.jobs[name], slowdowns[name]
        if is_present and weave.shares_slots(stay, stays):
            stay, slowdown = stay._replace(error=0.0), measured_slowdown(record, slowdown)
        could_be_kept = stay.allowed > 1.0 + record.start_us / stay.left_us
        if could_be_kept and weave.broken([stay], {name: slowdown}, _KEPT_IN_PLACE):
            return name
    return None


def _best(state: ClusterState, record: JobRecord, near: Collection[str] | None, least_usd: float) -> Option | None:
    """The place, in one of these groups, or anywhere, that keeps all promises and saves the most, and at least that.

    Bounds come first: most jobs are where they had better stay, and a group is played out in a thousand times as long.
    """
    most_freed = _most_freed_usd(state, record)
    if most_freed <= least_usd or (near is not None and not near):
        return None
    without, spec, told = without_record(state, record), remaining_spec(record), Told()
    groups = [group for name, group in without.groups.items() if near is None or name in near]
    options = list(weave.into_groups(without, spec, groups, record.start_us))
    if near is None:
        options += weave.by_itself(without, spec, record.start_us)
    screened = weave.screened(without, options, told, most_freed - least_usd)
    if not screened:
        return None
    freed, cost = usd_freed(state, without, record), cost_of(state, record)
    found = weave.cheapest(without, screened, told, below_usd=freed - least_usd)
    return None if found is None else Option(found.candidate, freed - found.usd - cost, cost)


def _most_freed_usd(state: ClusterState, record: JobRecord) -> float:
    """What the job's group costs less without it if the others were not slowed at all then."""
    assert record.group is not None
    company = weave.company_of(state, state.groups[record.group])
    others = [stay for stay in company.stays if stay.member.job != record.spec.name]
    return company.usd - expected_usd(state, others, {stay.member.job: 1.0 for stay in others})


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


def move_of(
    state: ClusterState, record: JobRecord, option: Option, rescues: str = "", makes_room_for: str = ""
) -> Move:
    """The move of a job to a place."""
    candidate = option.candidate
    assert candidate.pin is not None
    return Move(
        job=record.spec.name,
        attempt=record.attempt,
        group=candidate.group.name if candidate.group.name in state.groups else "",
        pin=candidate.pin,
        saving_usd=option.saving_usd,
        rescues=rescues,
        makes_room_for=makes_room_for,
    )


def placed(state: ClusterState, record: JobRecord, option: Option) -> ClusterState:
    """The state after the move, and after the job's start there."""
    without, group = without_record(state, record), option.candidate.group
    progress = msgspec.structs.replace(record.progress, wall_us=record.progress.wall_us + record.start_us)
    change(without, record.spec.name, pin=option.candidate.pin, group=group.name, progress=progress)
    without.groups_made += group.name not in without.groups
    fold_group(without, group)
    return without
