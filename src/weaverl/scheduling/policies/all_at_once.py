"""The published family of placements, each price at once over all groups: for jobs that ask for whole nodes."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weaverl.domain.cluster import PoolKind
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
from weaverl.scheduling.policies.pinning import demands, isolated, lacking, nodes_of
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
    opened: tuple[str, ...] = ()
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
    if spec.placement is not Placement.DISAGGREGATED or spec.profile is None or None in devices or spec.staleness:
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
    return _Search(state, spec, arrival).decision()


class _Search:
    """One job put to all groups, stage by stage."""

    def __init__(self, state: ClusterState, spec: JobSpec, arrival: Arrival) -> None:
        self._state, self._spec, self._arrival = state, spec, arrival
        self._table = index_of(state).table
        self._demands = demands(spec)
        self._told = Told()

    def decision(self) -> Decision:
        """The choice, with what was refused before it."""
        for stage in self._stages():
            found = self._join(stage) if stage.alone is None else self._isolate(stage.alone)
            if found is not None:
                return decided(*found, self._told)
        return Decision(chosen=None, verdicts=self._told.verdicts())

    def _stages(self) -> Iterator[_Stage]:
        """The stages by price. What packs costs nothing, so the others are looked up only where nothing packs."""
        yield _Stage(0.0, 0)
        alone = isolated(self._state, self._spec)
        stages = [_Stage(alone.added_usd_per_hour, 2, alone=alone)]
        free = [node.name for node in openable(self._state, self._spec)]
        for number in range(1, min(self._arrival.num_nodes[0], len(free)) + 1):
            opened = tuple(free[:number])
            stages.append(_Stage(self._state.usd_per_hour(opened), 1, opened))
        yield from sorted(stages, key=lambda stage: stage[:2])

    def _isolate(self, alone: Candidate) -> tuple[Candidate, Judgement] | None:
        judgement = judge(self._state, alone, self._spec)
        if not judgement.refused:
            return alone, judgement
        self._told.refused(alone, judgement)
        return None

    def _join(self, stage: _Stage) -> tuple[Candidate, Judgement] | None:
        """The oldest group that takes the job at the stage's price; those before it that do not are told."""
        answers = first_answers(self._table, self._arrival, len(stage.opened))
        for row in takers(self._table, answers, self._arrival, len(stage.opened)):
            candidate, judgement = self._ask(stage, row)
            if not judgement.refused:
                self._tell(stage, answers[:row])
                return candidate, judgement
            assert answers[row] == Answer.ASK, f"{candidate.group} takes {self._spec.name}: {judgement.refused}"
            answers[row] = Answer.NO_ROOM if candidate.pin is None else Answer.BREAKS_PROMISE
        self._tell(stage, answers)
        return None

    def _ask(self, stage: _Stage, row: int) -> tuple[Candidate, Judgement]:
        """One group's answer, by itself."""
        group = self._state.groups[self._table.names[row]]
        opened = nodes_of(self._state, stage.opened)
        candidate = with_opened(self._state, self._spec, group, opened, self._arrival.num_nodes[0] - len(stage.opened))
        return candidate, judge(self._state, candidate, self._spec)

    def _tell(self, stage: _Stage, answers: NDArray[np.int8]) -> None:
        """Why groups refused: the first in full. That a group is closed is told once, where it was to be packed."""
        sorts = _SORTS_TO_OPEN if stage.opened else _SORTS
        in_full = _first_of(answers, min(sorts), self._told.room)
        rounds = self._rounds(stage, in_full[answers[in_full] == Answer.BREAKS_PROMISE])
        for row in in_full.tolist():
            self._told.tell(self._verdict(stage, row, rounds.get(row)))
        for answer, sort in sorts.items():
            others = np.count_nonzero(answers == answer) - np.count_nonzero(answers[in_full] == answer)
            self._told.count(stage.kind, sort, int(others), stage.usd_per_hour)

    def _rounds(self, stage: _Stage, rows: Ints) -> dict[int, Round]:
        """The rounds of regular groups by row."""
        regular = rows[self._table["standing"][rows] == OPEN]
        if not len(regular):
            return {}
        found = rounds_with(self._table, regular, self._arrival, len(stage.opened))
        return dict(zip(regular.tolist(), found, strict=True))

    def _verdict(self, stage: _Stage, row: int, found: Round | None) -> Verdict:
        """The words for one group's refusal."""
        group = self._state.groups[self._table.names[row]]
        slowdowns: dict[str, float] = {}
        if self._table.closed[row]:
            refused = self._table.closed[row]
        elif found is not None:
            slowdowns, refused = self._broken(group, found)
        elif self._table["standing"][row] == ODD:
            return verdict_on(*self._ask(stage, row))
        else:
            own = group.rollout_nodes if len(stage.opened) < self._arrival.num_nodes[0] else ()
            refused = lacking(self._state, self._demands, (stage.opened + own, group.training_nodes))
        return Verdict(
            kind=stage.kind,
            group=group.name,
            added_usd_per_hour=stage.usd_per_hour,
            predicted_slowdowns=slowdowns,
            refused=refused,
        )

    def _broken(self, group: Group, found: Round) -> tuple[dict[str, float], str]:
        """The slowdowns in a round, and the first promise that it breaks."""
        slowdowns: dict[str, float] = {}
        refused = ""
        time_us, rounds = found.cycle_us.as_integer_ratio()
        for place in found.places:
            if place < len(group.members):
                record = self._state.jobs[group.members[place]]
                name, slo, solo_us = record.spec.name, record.slo, record.durations.solo_us
            else:
                name, slo = self._spec.name, self._spec.slo
                solo_us = sum(self._arrival.body_us) + self._arrival.rest_us
            slowdowns[name] = time_us / (rounds * solo_us)
            if not refused and time_us > rounds * allowed_us(slo, solo_us):
                refused = breaks_promise(name, slowdowns[name], slo)
        return slowdowns, refused


def _first_of(answers: NDArray[np.int8], least: int, number: int) -> Ints:
    """The first rows that refused, from the answer that counts as the least on."""
    found: Ints = np.empty(0, np.int64)
    for end in (_FEW_ROWS, len(answers)):
        if number and len(found) < number:
            found = np.flatnonzero((answers[:end] >= least) & (answers[:end] <= Answer.BREAKS_PROMISE))[:number]
    return found
