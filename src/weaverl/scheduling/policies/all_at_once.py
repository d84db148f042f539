"""The published family of placements, each price at once over all groups: for jobs that ask for whole nodes."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weaverl.domain.cluster import Node, PoolKind
from weaverl.domain.commands import Verdict
from weaverl.domain.groups import Group
from weaverl.domain.jobs import JobSpec, Placement
from weaverl.scheduling.admission import (
    BREAKS_PROMISE,
    CLOSED,
    NO_ROOM,
    Candidate,
    Decision,
    Judgement,
    Told,
    breaks_promise,
    decided,
    judge,
    verdict_on,
)
from weaverl.scheduling.group_table import ODD, OPEN
from weaverl.scheduling.index import index_of
from weaverl.scheduling.policies.group_search import Answer, Arrival, Round, first_answers, rounds_with, takers
from weaverl.scheduling.policies.one_by_one import openable, with_opened
from weaverl.scheduling.policies.pinning import demands, isolated, lacking
from weaverl.scheduling.round_model import allowed_us, planned_durations
from weaverl.scheduling.stacked_rounds import Ints
from weaverl.scheduling.state import ClusterState, switches_of

_SORTS_TO_OPEN = {int(Answer.NO_ROOM): NO_ROOM, int(Answer.BREAKS_PROMISE): BREAKS_PROMISE}
_FEW_ROWS = 256
_SORTS = {int(Answer.CLOSED): CLOSED} | _SORTS_TO_OPEN


class _Stage(NamedTuple):
    """Candidates of one price: into any group with some rollout nodes new, or in a group of its own."""

    usd_per_hour: float
    rank: int
    opened: tuple[Node, ...] = ()
    alone: Candidate | None = None

    @property
    def kind(self) -> str:
        """What the candidates are called."""
        return "scale rollout" if self.opened else "pack"


def arrival_of(state: ClusterState, spec: JobSpec) -> Arrival | None:
    """The job as the search over all groups takes it; None if it has to be judged group by group."""
    catalog = index_of(state).catalog
    devices = [catalog.devices_a_node(pool) for pool in PoolKind]
    asked = (spec.rollout_gpus, spec.training_gpus)
    if spec.placement is not Placement.DISAGGREGATED or spec.profile is None or None in devices:
        return None
    nodes = [divmod(num_gpus, size) for num_gpus, size in zip(asked, devices, strict=True) if size]
    if any(rest for _, rest in nodes):
        return None
    times, switches = planned_durations(spec.profile), switches_of(state.cluster, spec.profile)
    return Arrival(
        (times.rollout_us, times.training_us),
        (switches.rollout_us, switches.training_us),
        times.sync_us + times.other_us,
        allowed_us(spec.slo, times.solo_us),
        (nodes[0][0], nodes[1][0]),
        (spec.host_memory.rollout_bytes, spec.host_memory.training_bytes),
    )


def choose(state: ClusterState, spec: JobSpec, arrival: Arrival) -> Decision:
    """The first stage, by price, in which a candidate keeps every promise; there, the oldest group."""
    told = Told()
    for stage in _stages(state, spec, arrival):
        found = _join(state, spec, arrival, stage, told) if stage.alone is None else _isolate(state, spec, stage.alone)
        if found is None:
            continue
        if not found[1].refused:
            return decided(*found, told)
        told.refused(*found)
    return Decision(chosen=None, verdicts=told.verdicts())


def _stages(state: ClusterState, spec: JobSpec, arrival: Arrival) -> Iterator[_Stage]:
    """The stages by price. What packs costs nothing, so the others are looked up only where nothing packs."""
    yield _Stage(0.0, 0)
    alone = isolated(state, spec)
    stages = [_Stage(alone.added_usd_per_hour, 2, alone=alone)]
    free = openable(state, spec)
    for number in range(1, min(arrival.num_nodes[0], len(free)) + 1):
        opened = tuple(free[:number])
        stages.append(_Stage(state.usd_per_hour(tuple(node.name for node in opened)), 1, opened))
    yield from sorted(stages, key=lambda stage: stage[:2])


def _isolate(state: ClusterState, spec: JobSpec, alone: Candidate) -> tuple[Candidate, Judgement]:
    return alone, judge(state, alone, spec)


def _join(
    state: ClusterState, spec: JobSpec, arrival: Arrival, stage: _Stage, told: Told
) -> tuple[Candidate, Judgement] | None:
    """The oldest group that takes the job at the stage's price; those before it that do not are told."""
    table = index_of(state).table
    answers = first_answers(table, arrival, len(stage.opened))
    for row in takers(table, answers, arrival, len(stage.opened)):
        candidate, judgement = _ask(state, spec, arrival, stage, row)
        if not judgement.refused:
            _tell(state, spec, arrival, stage, answers[:row], told)
            return candidate, judgement
        assert answers[row] == Answer.ASK, f"{candidate.group} was found to take {spec.name}: {judgement.refused}"
        answers[row] = Answer.NO_ROOM if candidate.pin is None else Answer.BREAKS_PROMISE
    _tell(state, spec, arrival, stage, answers, told)
    return None


def _ask(state: ClusterState, spec: JobSpec, arrival: Arrival, stage: _Stage, row: int) -> tuple[Candidate, Judgement]:
    """One group's answer, by itself."""
    group = state.groups[index_of(state).table.names[row]]
    candidate = with_opened(state, spec, group, list(stage.opened), arrival.num_nodes[0] - len(stage.opened))
    return candidate, judge(state, candidate, spec)


def _tell(
    state: ClusterState, spec: JobSpec, arrival: Arrival, stage: _Stage, answers: NDArray[np.int8], told: Told
) -> None:
    """Why groups refused: the first in full. That a group is closed is told once, where it was to be packed."""
    sorts = _SORTS_TO_OPEN if stage.opened else _SORTS
    in_full = _first_of(answers, min(sorts), told.room)
    rounds = _rounds(state, arrival, stage, in_full[answers[in_full] == Answer.BREAKS_PROMISE])
    for row in in_full.tolist():
        told.tell(_verdict(state, spec, arrival, stage, row, rounds.get(row)))
    for answer, sort in sorts.items():
        others = np.count_nonzero(answers == answer) - np.count_nonzero(answers[in_full] == answer)
        told.count(stage.kind, sort, int(others), stage.usd_per_hour)


def _first_of(answers: NDArray[np.int8], least: int, number: int) -> Ints:
    """The first rows that refused, from the answer that counts as the least on."""
    found: Ints = np.empty(0, np.int64)
    for end in (_FEW_ROWS, len(answers)):
        if number and len(found) < number:
            found = np.flatnonzero((answers[:end] >= least) & (answers[:end] <= Answer.BREAKS_PROMISE))[:number]
    return found


def _rounds(state: ClusterState, arrival: Arrival, stage: _Stage, rows: Ints) -> dict[int, Round]:
    """The rounds of regular groups by row."""
    table = index_of(state).table
    regular = rows[table["standing"][rows] == OPEN]
    if not len(regular):
        return {}
    found = rounds_with(table, regular, arrival, len(stage.opened))
    return dict(zip(regular.tolist(), found, strict=True))


def _verdict(
    state: ClusterState, spec: JobSpec, arrival: Arrival, stage: _Stage, row: int, found: Round | None
) -> Verdict:
    """The words for one group's refusal."""
    table = index_of(state).table
    group = state.groups[table.names[row]]
    slowdowns: dict[str, float] = {}
    if table.closed[row]:
        refused = table.closed[row]
    elif found is not None:
        slowdowns, refused = _broken(state, spec, arrival, group, found)
    elif table["standing"][row] == ODD:
        return verdict_on(*_ask(state, spec, arrival, stage, row))
    else:
        own = group.rollout_nodes if len(stage.opened) < arrival.num_nodes[0] else ()
        opened = tuple(node.name for node in stage.opened)
        refused = lacking(state, demands(spec), (opened + own, group.training_nodes))
    return Verdict(
        kind=stage.kind,
        group=group.name,
        added_usd_per_hour=stage.usd_per_hour,
        predicted_slowdowns=slowdowns,
        refused=refused,
    )


def _broken(
    state: ClusterState, spec: JobSpec, arrival: Arrival, group: Group, found: Round
) -> tuple[dict[str, float], str]:
    """The slowdowns in a round, and the first promise that it breaks."""
    slowdowns: dict[str, float] = {}
    refused = ""
    time_us, rounds = found.cycle_us.as_integer_ratio()
    for place in found.places:
        if place < len(group.members):
            record = state.jobs[group.members[place]]
            name, slo, solo_us = record.spec.name, record.spec.slo, record.durations.solo_us
        else:
            name, slo, solo_us = spec.name, spec.slo, sum(arrival.body_us) + arrival.rest_us
        slowdowns[name] = time_us / (rounds * solo_us)
        if not refused and time_us > rounds * allowed_us(slo, solo_us):
            refused = breaks_promise(name, slowdowns[name], slo)
    return slowdowns, refused
