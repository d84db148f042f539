"""`weaverl bench decision`: how long the scheduler takes to decide on an arrival among many running jobs."""

import gc
import time
from collections.abc import Callable
from functools import partial

import msgspec
import numpy as np

from weaverl.cli.bench_handovers import percentile
from weaverl.cli.bench_population import cluster_for, nodes_for, running_jobs, too_hasty, too_large, welcome
from weaverl.cli.machine import machine
from weaverl.domain.commands import AdmitJob, QueueJob, StartRank
from weaverl.domain.events import (
    AgentReported,
    AnyEvent,
    ControllerStarted,
    DeathConfirmed,
    JobCancelled,
    JobSubmitted,
    RankRegistered,
)
from weaverl.domain.groups import Group
from weaverl.domain.jobs import JobSpec, JobState
from weaverl.scheduling.admission import Told
from weaverl.scheduling.group_table import GONE
from weaverl.scheduling.index import index_of
from weaverl.scheduling.lifecycle import nodes_of
from weaverl.scheduling.policies import weave
from weaverl.scheduling.policies.all_at_once import arrival_of
from weaverl.scheduling.policies.group_search import Answer, first_answers, takers
from weaverl.scheduling.scheduler import Scheduler
from weaverl.scheduling.state import ClusterState, Parameters

_Kinds = dict[str, tuple[Callable[[int], JobSpec], Answer]]

_KINDS: _Kinds = {
    "refused_by_memory": (too_large, Answer.NO_ROOM),
    "refused_by_promises": (too_hasty, Answer.BREAKS_PROMISE),
    "feasible": (welcome, Answer.TAKES),
}
_KINDS_OF: dict[str, _Kinds] = {
    "weave-paper": _KINDS,
    "weave": _KINDS | {"refused_by_promises": (partial(too_hasty, least_slo=1.06), Answer.BREAKS_PROMISE)},
}
POLICIES = tuple(_KINDS_OF)
"""Those that can be measured: they put several jobs on one pair of nodes and ask every group of each arrival."""


MOST_JOBS = 200_000


def sizes_up_to(num_jobs: int) -> list[int]:
    """Numbers of running jobs for a plot with logarithmic axes."""
    steps = (step * 10**power for power in range(1, 6) for step in (1, 3))
    return [size for size in steps if size < num_jobs] + [num_jobs]


class ArrivalFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Milliseconds of ``handle(JobSubmitted)`` for arrivals of one kind, no two alike."""

    p50_ms: float
    p99_ms: float
    arrivals: int


class DecisionFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured: the slowest kind of arrival, and each kind."""

    p50_ms: float
    p99_ms: float
    jobs: int
    groups: int
    kinds: dict[str, ArrivalFigures]
    admissions_seconds: float
    policy: str
    machine: dict[str, str | int | float | None]


def measure_decisions(
    num_jobs: int, num_arrivals: int, progress: Callable[[int], None], policy: str = "weave-paper"
) -> DecisionFigures:
    """Admit the jobs one by one, then time arrivals of each kind; ``progress`` is told of jobs admitted."""
    specs = list(running_jobs(num_jobs))
    begun = time.perf_counter()
    bench = _Bench(specs, progress, policy)
    admissions_seconds = time.perf_counter() - begun
    gc.collect()
    kinds = {name: bench.time(make, wanted, num_arrivals) for name, (make, wanted) in _KINDS_OF[policy].items()}
    return DecisionFigures(
        p50_ms=max(kind.p50_ms for kind in kinds.values()),
        p99_ms=max(kind.p99_ms for kind in kinds.values()),
        jobs=num_jobs,
        groups=len(bench.scheduler.state.groups),
        kinds=kinds,
        admissions_seconds=admissions_seconds,
        policy=bench.scheduler.state.parameters.policy,
        machine=machine(),
    )


class _Bench:
    """A scheduler with running jobs, each admitted through the door.

    A job's own nodes report just before it, so that no policy has a choice of nodes that takes another job's.
    """

    def __init__(self, specs: list[JobSpec], progress: Callable[[int], None], policy: str) -> None:
        cluster = cluster_for(specs)
        self.scheduler = Scheduler(cluster, Parameters(ended_jobs_kept=0, policy=policy))
        self._now = 0
        self._send(ControllerStarted(epoch=1))
        for spec, nodes in zip(specs, nodes_for(specs, cluster), strict=True):
            for node in nodes:
                self._send(AgentReported(epoch=1, node=node))
            self._run(spec)
            progress(1)

    def time(self, make: Callable[[int], JobSpec], wanted: Answer, number: int) -> ArrivalFigures:
        """Time arrivals of a kind; each is taken back, so that all meet the same state."""
        specs = [make(place) for place in range(number)]
        for place, spec in enumerate(specs):
            self._check(spec, wanted, slice(place, None, number))
        taken: list[float] = []
        for spec in specs:
            event = JobSubmitted(spec=spec, at=self._next())
            begun = time.perf_counter_ns()
            commands = self.scheduler.handle(event)
            taken.append((time.perf_counter_ns() - begun) / 1e6)
            assert any(isinstance(one, AdmitJob if wanted is Answer.TAKES else QueueJob) for one in commands)
            self._take_back(spec.name)
        return ArrivalFigures(p50_ms=percentile(taken, 0.5), p99_ms=percentile(taken, 0.99), arrivals=number)

    def _run(self, spec: JobSpec) -> None:
        for command in self._send(JobSubmitted(spec=spec)):
            if isinstance(command, StartRank):
                self._send(RankRegistered(rank=command.rank))
        state = self.scheduler.state.jobs[spec.name].state
        assert state is JobState.RUNNING, f"{spec.name} is {state}"

    def _check(self, spec: JobSpec, wanted: Answer, some: slice) -> None:
        """Every group gives the answer that the kind of arrival is named for; only some are played out."""
        state = self.scheduler.state
        if state.parameters.policy == "weave":
            groups = list(state.groups.values())[some]
            others = sum(_answer_of_weave(state, spec, group) is not wanted for group in groups)
        else:
            others = _others_on_paper(state, spec, wanted)
        assert not others, f"{others} groups answer {spec.name} otherwise than {wanted.name}"

    def _take_back(self, name: str) -> None:
        record = self.scheduler.state.jobs[name]
        nodes = nodes_of(record)
        self._send(JobCancelled(job=name))
        for node in nodes:
            self._send(DeathConfirmed(job=name, attempt=record.attempt, node=node))
        assert record.state is JobState.CANCELLED and name not in self.scheduler.state.jobs

    def _send(self, event: AnyEvent) -> list[object]:
        return list(self.scheduler.handle(msgspec.structs.replace(event, at=self._next())))

    def _next(self) -> int:
        self._now += 1
        return self._now


def _others_on_paper(state: ClusterState, spec: JobSpec, wanted: Answer) -> int:
    """How many groups give another answer under the published policy."""
    table, arrival = index_of(state).table, arrival_of(state, spec)
    assert arrival is not None
    answers = first_answers(table, arrival, 0)
    for _ in takers(table, answers, arrival, 0):
        pass
    return int(np.count_nonzero((table["standing"] != GONE) & (answers != wanted)))


def _answer_of_weave(state: ClusterState, spec: JobSpec, group: Group) -> Answer | None:
    """What a group answers under ``weave``; None where a bound says that it breaks a promise, without a play."""
    options = list(weave.into_groups(state, spec, [group]))
    if all(option.newcomer is None for option in options):
        return Answer.NO_ROOM
    left = weave.screened(state, options, Told())
    if any(not weave.judged(state, one.option)[0].refused for one in left):
        return Answer.TAKES
    return Answer.BREAKS_PROMISE if left else None
