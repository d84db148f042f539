"""What jobs whose timings are known would save woven: on which nodes, at what slowdown, and why if they would not.

The scheduler itself places them, under its published policy and as if each were alone; then the rounds of each group
are walked through with the durations that were measured, iteration by iteration.
"""

from collections.abc import Iterable, Sequence
from itertools import permutations

import msgspec

from weaverl.domain.cluster import Cluster
from weaverl.domain.groups import Pin
from weaverl.domain.jobs import JobSpec
from weaverl.scheduling.round_model import Durations, PlannedPhase, simulate
from weaverl.scheduling.scheduler import Scheduler
from weaverl.scheduling.state import Parameters, as_member
from weaverl.simulation.standing import standing_scheduler, submit, with_enough_nodes

MOST_ROUNDS = 500
_ALL_ORDERS = 4
"""Up to so many jobs, all orders of arrival are tried; the published placement depends on it."""


class AdvisedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job with a profile, and the durations of the iterations that were measured.

    ``colocated``: they were measured with both phases on its training GPUs, the only ones it paid for.
    """

    spec: JobSpec
    measured: tuple[Durations, ...]
    colocated: bool = False

    @property
    def name(self) -> str:
        """The job's name."""
        return self.spec.name


class Refusal(msgspec.Struct, frozen=True):
    """Why a job cannot share nodes with some others; ``slo`` is the least that would let it, the same for all."""

    jobs: tuple[str, ...]
    kind: str
    reason: str
    slo: float | None = None


class JobAdvice(msgspec.Struct, frozen=True, kw_only=True):
    """A job woven. ``predicted_slowdown`` is at the longest rollout, as admission plans; ``slowdown`` as measured.

    ``refused`` says of a job that stays alone why every placement among the others was.
    """

    name: str
    group: str
    slo: float
    slowdown: float
    predicted_slowdown: float
    usd_per_hour_alone: float
    refused: tuple[Refusal, ...] = ()


class GroupAdvice(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that share nodes, with the price of the nodes; ``phases`` are the rounds as walked through."""

    name: str
    jobs: tuple[str, ...]
    rollout_nodes: tuple[str, ...]
    training_nodes: tuple[str, ...]
    usd_per_hour: float
    usd_per_hour_alone: float
    phases: tuple[PlannedPhase, ...]
    pins: dict[str, Pin]


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """Before: each job on nodes of its own in both pools. ``usd`` is for the same iterations, slowdown included.

    ``as_run`` differs from ``before`` where jobs ran colocated: they paid for training nodes only.
    """

    groups: tuple[GroupAdvice, ...]
    jobs: tuple[JobAdvice, ...]
    cluster: Cluster
    rounds: int
    nodes_before: int
    nodes_after: int
    usd_per_hour_before: float
    usd_per_hour_after: float
    usd_per_hour_as_run: float
    usd_before: float
    usd_after: float
    usd_as_run: float

    @property
    def pays(self) -> bool:
        """Whether the same iterations cost less woven than as they were run."""
        return self.usd_after < min(self.usd_before, self.usd_as_run)

    @property
    def saved(self) -> float:
        """Share of the dollars that weaving saves; negative if it costs more."""
        return 1 - self.usd_after / self.usd_before


def advise(jobs: Sequence[AdvisedJob], cluster: Cluster) -> Advice:
    """The cheapest of the woven placements. ``cluster`` gives prices and node sizes; there are as many as it takes.

    Raises RefusedError if a job does not fit any number of such nodes.
    """
    enough = with_enough_nodes(cluster, [job.spec for job in jobs])
    rounds = min(max(len(job.measured) for job in jobs), MOST_ROUNDS)
    alone = _placed(jobs, enough, "solo")
    woven = min(
        (_Woven(_placed(order, enough, "weave-paper"), jobs, rounds, alone) for order in _orders(jobs)),
        key=lambda one: one.usd,
    )
    return Advice(
        groups=woven.groups,
        jobs=tuple(_job_advice(job, woven, jobs, enough, alone) for job in jobs),
        cluster=enough,
        rounds=rounds,
        nodes_before=_num_nodes(alone),
        nodes_after=_num_nodes(woven.scheduler),
        usd_per_hour_before=_usd_per_hour(alone),
        usd_per_hour_after=_usd_per_hour(woven.scheduler),
        usd_per_hour_as_run=sum(_as_run_usd_per_hour(alone, job) for job in jobs),
        usd_before=sum(_alone_usd_per_hour(alone, job.name) * _solo_us(job, rounds) / 3.6e9 for job in jobs),
        usd_after=woven.usd,
        usd_as_run=sum(_as_run_usd_per_hour(alone, job) * _solo_us(job, rounds) / 3.6e9 for job in jobs),
    )


class _Woven:
    """One placement with its groups walked through."""

    def __init__(self, scheduler: Scheduler, jobs: Sequence[AdvisedJob], rounds: int, alone: Scheduler) -> None:
        self.scheduler = scheduler
        self._measured = {job.name: job.measured for job in jobs}
        self.rounds = rounds
        self.walls_us: dict[str, int] = {}
        state = scheduler.state
        self.groups = tuple(self._walked(name, alone) for name in sorted(state.groups))
        self.usd = sum(
            group.usd_per_hour * max(self.walls_us[job] for job in group.jobs) / 3.6e9 for group in self.groups
        )

    def _durations(self, job: str, iteration: int) -> Durations:
        measured = self._measured[job]
        return measured[iteration % len(measured)]

    def _walked(self, name: str, alone: Scheduler) -> GroupAdvice:
        state = self.scheduler.state
        group = state.groups[name]
        records = state.members(group)
        members = [as_member(state, record) for record in records]
        phases = simulate(members, lambda _: self.rounds, self._durations)
        for phase in phases:
            last = self._durations(phase.job, phase.iteration)
            self.walls_us[phase.job] = phase.end_us + last.sync_us + last.other_us
        return GroupAdvice(
            name=name,
            jobs=group.members,
            rollout_nodes=group.rollout_nodes,
            training_nodes=group.training_nodes,
            usd_per_hour=state.usd_per_hour(group.nodes),
            usd_per_hour_alone=sum(_alone_usd_per_hour(alone, job) for job in group.members),
            phases=tuple(phases),
            pins={member.job: member.pin for member in members},
        )


def _job_advice(
    job: AdvisedJob, woven: _Woven, jobs: Sequence[AdvisedJob], cluster: Cluster, alone: Scheduler
) -> JobAdvice:
    record = woven.scheduler.state.jobs[job.name]
    assert record.group is not None
    alone_there = record.predicted_slowdown is None or len(woven.scheduler.state.groups[record.group].members) == 1
    return JobAdvice(
        name=job.name,
        group=record.group,
        slo=job.spec.slo,
        slowdown=woven.walls_us[job.name] / _solo_us(job, woven.rounds),
        predicted_slowdown=record.predicted_slowdown or 1.0,
        usd_per_hour_alone=_alone_usd_per_hour(alone, job.name),
        refused=_refusals(job, jobs, cluster) if alone_there else (),
    )


def _refusals(job: AdvisedJob, jobs: Sequence[AdvisedJob], cluster: Cluster) -> tuple[Refusal, ...]:
    """Why a job that comes after all others would not be placed among them."""
    state = _placed([*(other for other in jobs if other is not job), job], cluster, "weave-paper").state
    return tuple(
        Refusal(
            tuple(name for name in state.groups[verdict.group].members if name != job.name),
            verdict.kind,
            verdict.refused,
            max(verdict.predicted_slowdowns.values(), default=None),
        )
        for verdict in state.jobs[job.name].verdicts
        if verdict.refused and verdict.group in state.groups
    )


def _orders(jobs: Sequence[AdvisedJob]) -> Iterable[Sequence[AdvisedJob]]:
    """Orders of arrival to try: all of few jobs; of many the one given, longest first and shortest first."""
    if len(jobs) <= _ALL_ORDERS:
        return permutations(jobs)
    by_length = sorted(jobs, key=lambda job: sum(one.solo_us for one in job.measured) / len(job.measured))
    return [jobs, by_length[::-1], by_length]


def _placed(jobs: Sequence[AdvisedJob], cluster: Cluster, policy: str) -> Scheduler:
    """A scheduler to which the jobs were submitted in order."""
    scheduler = standing_scheduler(cluster, Parameters(policy=policy))
    for job in jobs:
        submit(scheduler, job.spec)
        assert scheduler.state.jobs[job.name].pin is not None, "there are enough nodes for all"
    return scheduler


def _solo_us(job: AdvisedJob, rounds: int) -> int:
    return sum(job.measured[turn % len(job.measured)].solo_us for turn in range(rounds))


def _usd_per_hour(scheduler: Scheduler) -> float:
    return sum(scheduler.state.usd_per_hour(group.nodes) for group in scheduler.state.groups.values())


def _alone_usd_per_hour(alone: Scheduler, job: str) -> float:
    group = alone.state.jobs[job].group
    assert group is not None
    return alone.state.usd_per_hour(alone.state.groups[group].nodes)


def _as_run_usd_per_hour(alone: Scheduler, job: AdvisedJob) -> float:
    group = alone.state.jobs[job.name].group
    assert group is not None
    nodes = alone.state.groups[group]
    return alone.state.usd_per_hour(nodes.training_nodes if job.colocated else nodes.nodes)


def _num_nodes(scheduler: Scheduler) -> int:
    return sum(len(group.nodes) for group in scheduler.state.groups.values())
