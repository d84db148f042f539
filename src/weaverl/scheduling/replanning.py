"""Consolidation: which running jobs had better be elsewhere, now that others have come or left.

A pure question about a state: it is asked aside, its answer comes back through the door as an event, and a plan made
for a placement that has changed since is refused. Places are weighed as those of an arrival are (see
``policies.weave``), with a larger part of each promise kept in hand. A move pays when the dollars that it saves over
the remaining work are ``saving_over_cost`` times those of its cold start, and some dollars at all.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from math import inf

from weaverl.domain.events import PlanProposed
from weaverl.domain.groups import Group, Move
from weaverl.scheduling.admission import Told
from weaverl.scheduling.expected_dollars import Stay, slowdowns_of, stay_of
from weaverl.scheduling.movable import has_one_move, may_leave
from weaverl.scheduling.objectives import expected_usd
from weaverl.scheduling.policies import weave
from weaverl.scheduling.progress import measured_slowdown
from weaverl.scheduling.round_model import allowed_us
from weaverl.scheduling.ruin_and_recreate import are_few, regrouping
from weaverl.scheduling.saving import FIRST_SAVES
from weaverl.scheduling.state import ClusterState, JobRecord
from weaverl.scheduling.trial_moves import Option, cost_of, placed, remaining_spec, usd_freed, without_record

MOST_MOVES = 4
"""In one plan: a plan is made from expectations, and the next departure asks for another."""

_JUST_US = 60_000_000
"""So long ago is just now: a plan may have to wait for another one, or be made anew as it was overtaken."""

_OVERDUE = 2.0
"""Times the longest iteration that a job may have: for one that takes longer no promise waits (see ``hangs``)."""

_KEPT_IN_PLACE = 0.5
"""Of the reserve at admission: with less in hand a promise is in danger, while there is time for a move."""


def propose(
    state: ClusterState,
    near: Collection[str] | None = None,
    most_moves: int = MOST_MOVES,
    *,
    reviewed_at: int | None = None,
    only_rescues: bool = False,
) -> PlanProposed | None:
    """The moves that save a promise, then those that pay, each on top of those before it, one a job; or None.

    ``near`` are the groups that somebody has joined or left: their members are looked at, and who could join them.
    None: all. At a review those are looked at, too, who were too new where they are at the last one, ``reviewed_at``.

    Among few jobs all are looked at when somebody has come or gone, and at reviews; then, if no promise is to be saved,
    a regrouping is looked for that goes on from there (see ``ruin_and_recreate``). It may be of more than
    ``most_moves``.
    """
    if not state.parameters.moves_jobs:
        return None
    moves, trial = _rescues(state, most_moves)
    if not only_rescues:
        moves = _savings(state, trial, near, moves, most_moves, reviewed_at)
    return PlanProposed(base_version=state.version, moves=tuple(moves)) if moves else None


def _rescues(state: ClusterState, most_moves: int) -> tuple[list[Move], ClusterState]:
    """The moves that save a promise, and where they lead to."""
    trial, moves = state, list[Move]()
    for group in state.groups.values():
        rescue = _rescue(trial, trial.groups[group.name]) if len(moves) < most_moves else None
        if rescue is not None and rescue[0].pin is state.jobs[rescue[0].spec.name].pin:
            moves.append(move_of(trial, *rescue))
            trial = placed(trial, *rescue[:2])
    return moves, trial


def _savings(
    state: ClusterState,
    trial: ClusterState,
    near: Collection[str] | None,
    rescues: Sequence[Move],
    most_moves: int,
    reviewed_at: int | None,
) -> list[Move]:
    """The rescues, which lead to ``trial``, and the moves that pay on top of them."""
    tries, moves = state.parameters.regrouping_tries, [*rescues]
    if (near or reviewed_at is not None) and are_few(state):
        tries, near = tries if _is_new(state, reviewed_at) else tries // 10, None
    looked_at = set(state.groups if near is None else near)
    for name in _by_share(state):
        if len(moves) == most_moves:
            break
        record = trial.jobs[name]
        if record.pin is not state.jobs[name].pin:
            continue
        is_looked_at = record.group in looked_at or _is_free_since(state, record, reviewed_at)
        best = _paying(trial, record, None if is_looked_at else looked_at)
        if best is not None:
            looked_at |= {str(record.group), best.candidate.group.name}
            moves.append(move_of(trial, record, best))
            trial = placed(trial, record, best)
    if near is None and are_few(state) and not rescues:
        moves = [*regrouping(state, tries, moves, trial)] or moves
    return moves


def _is_new(state: ClusterState, reviewed_at: int | None) -> bool:
    """Whether a job has just ended, or a newcomer may be moved since the last review: then most is to be found."""
    if state.ended_at is not None and state.now - state.ended_at < _JUST_US:
        return True
    newcomers = (record for record in state.jobs.values() if record.pin is not None and not record.moves)
    return any(_is_free_since(state, record, reviewed_at) for record in newcomers)


def _by_share(state: ClusterState) -> list[str]:
    """The jobs that can be moved, those first that have their nodes for themselves the most."""
    found = []
    for group in filter(lambda one: _is_settled(state, one), state.groups.values()):
        share = state.usd_per_hour(group.nodes) / len(group.members)
        found += [(-share, name) for name in group.members if may_leave(state, state.jobs[name])]
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


def _is_free_since(state: ClusterState, record: JobRecord, reviewed_at: int | None) -> bool:
    """Whether a job may be moved that was too new where it is at the last review."""
    if record.started_at is None or reviewed_at is None:
        return False
    return reviewed_at < record.started_at + state.parameters.least_stay_us <= state.now


def _rescue(state: ClusterState, group: Group) -> tuple[JobRecord, Option, str] | None:
    """The cheapest move of one member for the sake of a promise in danger, if one is, and whose it is."""
    is_changing = any(_leaves_soon(state, name) for name in group.members)
    if len(group.members) < 2 or is_changing or not _is_settled(state, group):
        return None
    for endangered in _in_danger(state, group):
        options = list(_ways_out(state, group, endangered))
        if options:
            record, option = max(options, key=lambda one: one[1].saving_usd)
            return record, option, endangered.member.job
    return None


def _leaves_soon(state: ClusterState, name: str) -> bool:
    """Whether a member goes before long by itself: it is planned to, saves each iteration, and has not hung in one."""
    move, record = state.moves.get(name), state.jobs[name]
    if move is None or not move.is_certain:
        return False
    lasts_us = record.progress.elapsed_us(state.now) - record.progress.lap_us[0]
    is_on_time = lasts_us < _OVERDUE * allowed_us(record.slo, record.durations.solo_us)
    return is_on_time and record.leaves_by <= record.iterations_done + FIRST_SAVES


def _ways_out(state: ClusterState, group: Group, endangered: Stay) -> Iterator[tuple[JobRecord, Option]]:
    """The job in danger goes, or one without whom nobody of the group is in danger.

    Nobody gives the last move that it may make for another one's promise: its own may be in danger next.
    """
    in_danger = endangered.member.job
    company = set(weave.sharers_of(endangered, weave.company_of(state, group).stays))
    for name in group.members:
        record = state.jobs[name]
        is_kept = name != in_danger and has_one_move(state, record)
        if is_kept or not may_leave(state, record, rescues=True):
            continue
        rest = without_record(state, record).groups[group.name]
        if name == in_danger or not any(_in_danger(state, rest)):
            option = _best(state, record, None, -inf, lambda one: _parts(one, endangered, company))
            if option is not None:
                yield record, option


def _parts(option: weave.Option, endangered: Stay, company: set[str]) -> bool:
    """Whether a place parts the job in danger from some of its company.

    If not it would be as slow as it is: that a play of the same company knows better has been measured to be wrong.
    """
    moved = option.newcomer
    if moved is None:
        return True
    if moved.member.job == endangered.member.job:
        return not company.issubset(weave.sharers_of(moved, option.company.stays))
    return not any(weave.sharers_of(endangered, [moved]))


def _in_danger(state: ClusterState, group: Group) -> Iterator[Stay]:
    """The members whose promises would be broken in the group as it is, and could be kept elsewhere.

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
            yield stay


def _best(
    state: ClusterState,
    record: JobRecord,
    near: Collection[str] | None,
    least_usd: float,
    serves: Callable[[weave.Option], bool] = lambda option: True,
) -> Option | None:
    """The other place that ``serves``, keeps all promises and saves the most, and at least that; anywhere or ``near``.

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
    others = (option for option in options if option.candidate.pin != record.pin and serves(option))
    screened = weave.screened(without, others, told, most_freed - least_usd)
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
