"""A guess at what two moves would save: what the groups cost that come of them if nobody is slowed there."""

from typing import NamedTuple

from weaverl.domain.cluster import PoolKind
from weaverl.domain.jobs import JobSpec
from weaverl.domain.units import HOUR_US
from weaverl.scheduling.expected_dollars import stay_of
from weaverl.scheduling.policies import weave
from weaverl.scheduling.state import ClusterState, JobRecord

_MOST_BUSY = 0.85
"""A guess at which part of its time a node can be kept busy: what fills more is not looked at first."""

NEW = ""
"""Where a job goes that opens a group."""


class Leaver(NamedTuple):
    """A job that may move, as it is planned for another place, and dollars of the move."""

    record: JobRecord
    spec: JobSpec
    cost_usd: float

    @property
    def name(self) -> str:
        """Of the job."""
        return self.spec.name


class _Needs(NamedTuple):
    """Of a job: how long it runs if nobody slows it, and of each pool its nodes and the time that they are busy."""

    left_us: int
    num_nodes: tuple[int, int]
    busy_us: tuple[float, float]


class _Rest(NamedTuple):
    """What a group is without some jobs: when its nodes are free at the earliest, the last first, and busy time."""

    until_us: tuple[list[float], list[float]]
    busy_us: tuple[float, float]


_NOBODY = _Rest(([], []), (0.0, 0.0))


class Guess:
    """What groups cost where nobody is slowed: the longest job has the longest-lasting nodes, and none is too busy."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._needs_of: dict[str, _Needs] = {}
        self._rests: dict[tuple[str, tuple[str, ...]], _Rest] = {}
        self._usd: dict[str, float] = {}
        self._least: dict[tuple[str, tuple[str, ...], tuple[str, ...]], float] = {}
        self._prices = [_usd_per_node_hour(state, pool) for pool in PoolKind]

    def most_saved(self, jobs: tuple[Leaver, Leaver], groups: tuple[str, str], least_usd: float) -> float:
        """Dollars, of the groups that two jobs are in and those that they go to; or anything that is too little."""
        own = (str(jobs[0].record.group), str(jobs[1].record.group))
        touched = dict.fromkeys((*own, *groups))
        usd = sum(self._group_usd(name) for name in touched if name != NEW)
        for name in touched:
            gone = tuple(leaver.name for leaver, group in zip(jobs, own, strict=True) if group == name)
            come = tuple(leaver for leaver, group in zip(jobs, groups, strict=True) if group == name)
            usd -= self._least_usd(name, gone, come)
            if usd <= least_usd:
                break
        return usd

    def _least_usd(self, group: str, gone: tuple[str, ...], come: tuple[Leaver, ...]) -> float:
        key = group, gone, tuple(leaver.name for leaver in come)
        if key not in self._least:
            rest = _NOBODY if group == NEW else self._rest(group, gone)
            usd = 0.0
            for pool, price in enumerate(self._prices):
                until, busy_us = rest.until_us[pool], rest.busy_us[pool]
                for leaver in come:
                    needs = self._needs(leaver.record)
                    until = _with(until, needs.left_us, needs.num_nodes[pool])
                    busy_us += needs.busy_us[pool]
                usd += price * max(sum(until), busy_us / _MOST_BUSY)
            self._least[key] = usd / HOUR_US
        return self._least[key]

    def _needs(self, record: JobRecord) -> _Needs:
        name = record.spec.name
        if name not in self._needs_of:
            stay, pin = stay_of(self._state, record), record.pin
            assert pin is not None
            own, solo_us = stay.member.durations, stay.member.solo_us
            num_nodes = (len(pin.nodes(PoolKind.ROLLOUT)), len(pin.nodes(PoolKind.TRAINING)))
            iterations = stay.left_us / solo_us
            busy_us = num_nodes[0] * own.rollout_us * iterations, num_nodes[1] * own.training_us * iterations
            self._needs_of[name] = _Needs(stay.left_us, num_nodes, busy_us)
        return self._needs_of[name]

    def _rest(self, group: str, gone: tuple[str, ...]) -> _Rest:
        key = group, gone
        if key not in self._rests:
            until: tuple[dict[str, float], dict[str, float]] = ({}, {})
            busy_us = [0.0, 0.0]
            for record in self._state.members(self._state.groups[group]):
                if record.spec.name in gone:
                    continue
                assert record.pin is not None
                needs = self._needs(record)
                for pool, kind in enumerate(PoolKind):
                    busy_us[pool] += needs.busy_us[pool]
                    for node in record.pin.nodes(kind):
                        until[pool][node] = max(until[pool].get(node, 0.0), needs.left_us)
            last_first = sorted(until[0].values(), reverse=True), sorted(until[1].values(), reverse=True)
            self._rests[key] = _Rest(last_first, (busy_us[0], busy_us[1]))
        return self._rests[key]

    def _group_usd(self, name: str) -> float:
        if name not in self._usd:
            self._usd[name] = weave.company_of(self._state, self._state.groups[name]).usd
        return self._usd[name]


def _with(until_us: list[float], left_us: float, num_nodes: int) -> list[float]:
    """Nodes with one more job, on those that last the longest."""
    raised = [left_us if end < left_us else end for end in until_us[:num_nodes]]
    return raised + [left_us] * (num_nodes - len(raised)) + until_us[num_nodes:]


def _usd_per_node_hour(state: ClusterState, pool: PoolKind) -> float:
    """Of the pool's largest nodes: a guess where they differ."""
    prices = (state.usd_per_hour((name,)) for name, record in state.nodes.items() if record.node.pool is pool)
    return max(prices, default=0.0)
