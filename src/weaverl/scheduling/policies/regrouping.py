"""The best regrouping of all the jobs that are placed: the bound that ``weave`` is measured against.

It answers for a moment: if every job could be put anywhere now, at no cost, which groups, nodes and places on them
would leave the fewest expected dollars to be paid (see ``objectives``), under promises judged as ``weave`` judges them?
It may do whatever ``weave`` may: any numbers of nodes of both pools, shared in any way, by at most ``MOST_MEMBERS``. It
may also leave any group as it is, or what others leave of it. Nodes are as many as it takes, so where a pool is limited
it is a bound still. Its jobs ask for whole nodes, and the nodes of a pool are alike.

The search is exact. The cost of a partition is the sum of what its groups cost, and that of a group is bounded from
below before it is played. So the partition that could be the cheapest is found by dynamic programming over subsets of
the jobs, the next way of each of its groups is played, and so on, until all of the cheapest partition has been played.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from math import inf
from typing import NamedTuple

import numpy as np

from weaverl.domain.cluster import PoolKind
from weaverl.errors import UsageError
from weaverl.scheduling.expected_dollars import stay_of
from weaverl.scheduling.objectives import HORIZON_US, later_usd
from weaverl.scheduling.policies.joint_work import Floats, Layout, NodeKind, Way, Worker, played, ways
from weaverl.scheduling.policies.layouts import renumbered
from weaverl.scheduling.policies.weave import MOST_MEMBERS
from weaverl.scheduling.state import ClusterState, JobRecord

MOST_JOBS = 8
"""Above that the subsets and ways are too many to look at."""


_STEP = 1.001
"""How far a group's bound is raised before the cheapest partition is looked for again."""


class Together(NamedTuple):
    """Jobs of one group, by number, their nodes, and what they cost as they are played."""

    jobs: tuple[int, ...]
    layout: Layout
    usd: float


class Regrouping(NamedTuple):
    """All the jobs in groups, what the groups cost in all, and how many were played to find them."""

    names: tuple[str, ...]
    groups: tuple[Together, ...]
    usd: float
    num_plays: int


class Question(NamedTuple):
    """The jobs in the order in which they came, the nodes, the groups as they are, and how far ahead is looked."""

    workers: tuple[Worker, ...]
    kinds: tuple[NodeKind, NodeKind]
    groups: tuple[Together, ...]
    horizon_us: float = HORIZON_US

    @property
    def later_usd(self) -> float:
        """Dollars of the work beyond the horizon if nobody is slowed down: no regrouping changes them."""
        stays = [worker.stay for worker in self.workers]
        return later_usd(stays, [max(stay.left_us - self.horizon_us, 0.0) for stay in stays])


def question_of(state: ClusterState, horizon_us: float = HORIZON_US) -> Question:
    """The jobs that are placed, and how.

    Raises UsageError if a job has no profile or asks for part of a node, or if the nodes of a pool differ.
    """
    records = [record for record in state.jobs.values() if record.pin is not None]
    kinds = (_kind(state, PoolKind.ROLLOUT), _kind(state, PoolKind.TRAINING))
    workers = tuple(_worker(state, record, kinds) for record in records)
    numbers = {record.spec.name: number for number, record in enumerate(records)}
    groups = (tuple(sorted(numbers[name] for name in group.members)) for group in state.groups.values())
    question = Question(workers, kinds, (), horizon_us)
    return question._replace(groups=tuple(_where_they_are(question, jobs) for jobs in groups))


def as_placed(question: Question) -> Regrouping:
    """The groups as they are."""
    return _regrouping(question, question.groups, 0)


def best_regrouping(question: Question, others: Iterable[Together] = ()) -> Regrouping:
    """The cheapest groups, of all that there can be and ``others``, whose promises are not judged.

    A way that as played costs less than its bound costs as much as its bound: a play ends after some iterations.
    Raises UsageError if there are more than ``MOST_JOBS`` jobs.
    """
    if len(question.workers) > MOST_JOBS:
        raise UsageError(
            f"{len(question.workers)} jobs: the best regrouping is searched for up to {MOST_JOBS}; give fewer"
        )
    subsets = {subset: _Subset(question, subset) for subset in _subsets(len(question.workers))}
    for group in (*_left_as_they_are(question), *others):
        subset = sum(1 << job for job in group.jobs)
        subsets.setdefault(subset, _Subset(question, subset, ())).know(group)
    search = _Search(len(question.workers), subsets)
    while True:
        parts = search.cheapest()
        open_parts = [part for part in parts if not part.is_known]
        if not open_parts:
            found = tuple(part.best for part in parts if part.best is not None)
            return _regrouping(question, found, sum(part.num_plays for part in subsets.values()))
        for part in open_parts:
            part.play_up_to(_STEP * part.usd)


def _left_as_they_are(question: Question) -> Iterator[Together]:
    """The groups, and what would be left of them if some of their jobs went elsewhere."""
    for group in question.groups:
        for number in range(1, len(group.jobs) + 1):
            for places in combinations(range(len(group.jobs)), number):
                yield _where_they_are(question, tuple(group.jobs[place] for place in places))


class _Subset:
    """A subset of the jobs as one group: the cheapest that has been played, and the ways that have not, by bound."""

    def __init__(self, question: Question, subset: int, found: Sequence[Way] | None = None) -> None:
        self.jobs = tuple(job for job in range(len(question.workers)) if subset >> job & 1)
        self._workers = [question.workers[job] for job in self.jobs]
        self._question = question
        self._ways = ways(self._workers, question.kinds, inf, question.horizon_us) if found is None else found
        self.best: Together | None = None
        self.num_plays = 0

    @property
    def usd(self) -> float:
        """What the group costs at least."""
        known = inf if self.best is None else self.best.usd
        return min(known, self._ways[self.num_plays].least_usd) if self.num_plays < len(self._ways) else known

    @property
    def is_known(self) -> bool:
        """Whether no way that has not been played may be cheaper."""
        return self.best is not None and self.best.usd <= self.usd

    def know(self, group: Together) -> None:
        """A way with what it costs."""
        if self.best is None or group.usd < self.best.usd:
            self.best = group

    def play_up_to(self, usd: float) -> None:
        """Play the ways that may cost less than that, the one that may be the cheapest first."""
        while not self.is_known and self.usd < usd:
            least_usd, layout = self._ways[self.num_plays]
            self.num_plays += 1
            found = played(self._workers, self._question.kinds, layout, self._question.horizon_us)
            if not found.refused:
                self.know(Together(self.jobs, layout, max(found.usd, least_usd)))


class _Search:
    """Partitions of the jobs into subsets, each with what it costs at least."""

    def __init__(self, num_jobs: int, subsets: dict[int, _Subset]) -> None:
        self._subsets = list(subsets.values())
        numbers = np.array(list(subsets))
        masks = range(1, 1 << num_jobs)
        with_first = [np.flatnonzero(((numbers & mask) == numbers) & (numbers & mask & -mask > 0)) for mask in masks]
        self._parts = [(one, mask ^ numbers[one]) for mask, one in zip(masks, with_first, strict=True)]

    def cheapest(self) -> list[_Subset]:
        """The subsets of the partition that may be the cheapest."""
        usd: Floats = np.array([subset.usd for subset in self._subsets])
        least, chosen = np.zeros(len(self._parts) + 1), [0] * (len(self._parts) + 1)
        for mask, (parts, rests) in enumerate(self._parts, 1):
            costs = usd[parts] + least[rests]
            place = int(costs.argmin())
            least[mask], chosen[mask] = costs[place], place
        found, mask = [], len(self._parts)
        while mask:
            parts, rests = self._parts[mask - 1]
            found.append(self._subsets[parts[chosen[mask]]])
            mask = int(rests[chosen[mask]])
        return found


def _subsets(num_jobs: int) -> list[int]:
    return [subset for subset in range(1, 1 << num_jobs) if subset.bit_count() <= MOST_MEMBERS]


def _regrouping(question: Question, groups: tuple[Together, ...], num_plays: int) -> Regrouping:
    names = tuple(worker.stay.member.job for worker in question.workers)
    return Regrouping(names, groups, sum(group.usd for group in groups), num_plays)


def _where_they_are(question: Question, jobs: tuple[int, ...]) -> Together:
    """Jobs on the nodes that they have, in the order in which they came, as in all that is compared with it."""
    members = [question.workers[job] for job in jobs]
    pins = [worker.stay.member.pin for worker in members]
    layout = Layout(*(renumbered([pin.nodes(pool) for pin in pins]) for pool in PoolKind))
    return Together(jobs, layout, played(members, question.kinds, layout, question.horizon_us).usd)


def _worker(state: ClusterState, record: JobRecord, kinds: tuple[NodeKind, NodeKind]) -> Worker:
    spec = record.spec
    if record.profile is None:
        raise UsageError(f"job {spec.name} has no profile: the best regrouping is searched for jobs with one")
    asked = (spec.rollout_gpus, spec.training_gpus)
    whole = [divmod(gpus, kind.num_devices) for gpus, kind in zip(asked, kinds, strict=True)]
    if any(rest for _, rest in whole):
        raise UsageError(f"job {spec.name} asks for {asked} GPUs: the best regrouping is searched for whole nodes only")
    memory = spec.host_memory
    return Worker(stay_of(state, record), (whole[0][0], whole[1][0]), (memory.rollout_bytes, memory.training_bytes))


def _kind(state: ClusterState, pool: PoolKind) -> NodeKind:
    nodes = [record.node for record in state.nodes.values() if record.node.pool is pool]
    found = {(node.num_devices, state.usable_host_bytes(node.name), state.usd_per_hour((node.name,))) for node in nodes}
    if len(found) != 1:
        raise UsageError(f"the {pool} nodes differ or there are none: the best regrouping is searched for nodes alike")
    return NodeKind(*found.pop())
