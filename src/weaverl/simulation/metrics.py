"""The figures of a simulated run, from events and commands alone, one job at a time.

Nothing but a few numbers is kept of a job that has ended.
"""

from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from weaverl.domain.cluster import PoolKind
from weaverl.domain.commands import (
    AdmitJob,
    AnyCommand,
    ChangeJobState,
    GrantPermit,
    MoveTail,
    QueueJob,
    RefuseRequest,
    RegroupJobs,
    WidenPermit,
)
from weaverl.domain.events import (
    AgentReported,
    AnyEvent,
    JobSubmitted,
    PermitRequested,
    PhaseEnded,
    TailMoved,
)
from weaverl.domain.groups import Group
from weaverl.domain.jobs import ENDED, JobSpec, JobState, PhaseKind
from weaverl.domain.sharing import Sharing
from weaverl.simulation.bound import Bound
from weaverl.simulation.costs import Costs, paces
from weaverl.simulation.earliest_end import EarliestEnd
from weaverl.simulation.ownership import Ownership
from weaverl.simulation.queueing import Queueing
from weaverl.simulation.run import Run
from weaverl.simulation.tenants import Tenants

WINDOW = 20
ROLLOUT, TRAINING = PhaseKind.ROLLOUT, PhaseKind.TRAINING
Number = TypeVar("Number", int, float)


class _Life:
    """A job that has yet to end."""

    __slots__ = (
        "admitted_at",
        "arrived_at",
        "asked",
        "first",
        "held",
        "iteration",
        "keep",
        "moving",
        "paces",
        "pools",
        "since",
        "spec",
        "speeds",
        "walls",
        "why",
    )

    def __init__(self, spec: JobSpec, arrived_at: int) -> None:
        self.spec, self.arrived_at = spec, arrived_at
        self.admitted_at = self.since = -1
        self.iteration = -1
        self.walls: list[int] = []
        self.first = 0
        self.held: dict[PhaseKind, list[tuple[int, int]]] = {}
        self.speeds: dict[PhaseKind, list[tuple[int, float]]] = {}
        self.asked: dict[PhaseKind, int] = {}
        self.pools: dict[PhaseKind, PoolKind] = {}
        self.paces: dict[PhaseKind, float] = {}
        self.keep = 0
        self.moving = False
        self.why = ""


class JobFigures:
    """What is kept of ended jobs, a number each. Seconds, except for ratios."""

    def __init__(self) -> None:
        self.slowdown, self.slo, self.worst_window = array("d"), array("d"), array("d")
        self.wait, self.completion = array("d"), array("d")


class Metrics:
    """Listens to a run. ``runs`` has the draws of the jobs that have yet to end; ``ended`` is called for each end.

    ``work_us`` is the time of the bodies that were run to their end, reckoned at the speed of all their devices where
    it was less; ``alone_us`` the time that they take undisturbed.
    """

    def __init__(
        self,
        costs: Costs,
        runs: Mapping[str, Run],
        ended: Callable[[], None] = lambda: None,
        sharing: Sharing | None = None,
        tenants: Sequence[str] = (),
    ) -> None:
        self.ownership = Ownership()
        self.bound = Bound(costs)
        self.earliest_end = EarliestEnd(costs) if costs.is_fleet else None
        self.tenants = Tenants(costs)
        self.queueing = Queueing(costs, sharing, tenants)
        self.jobs = JobFigures()
        self.busy_us = dict.fromkeys(PoolKind, 0)
        self.work_us, self.alone_us = (dict.fromkeys((ROLLOUT, TRAINING), 0.0) for _ in range(2))
        self.refused: Counter[str] = Counter()
        self.num_submitted = self.num_admitted = self.num_finished = self.moves = self.retries = 0
        self.first_arrival: int | None = None
        self.first_admission: int | None = None
        self.last_end = 0
        self._costs, self._runs = costs, runs
        self._tail_speed = 1.0 / costs.tail_stretch
        self._tell_end = ended
        self._lives: dict[str, _Life] = {}
        self._events: dict[type, Callable[[Any], None]] = {
            AgentReported: lambda event: self.ownership.add(event.node),
            JobSubmitted: self._submitted,
            PermitRequested: self._requested,
            PhaseEnded: self._phase_ended,
            TailMoved: self._tail_moved,
        }
        self._commands: dict[type, Callable[[Any, int], None]] = {
            AdmitJob: self._admitted,
            RegroupJobs: lambda command, at: self._regroup(command.group, at),
            RefuseRequest: self._refused,
            QueueJob: self._queued,
            GrantPermit: self._granted,
            WidenPermit: self._widened,
            MoveTail: self._told_to_move,
            ChangeJobState: self._changed,
        }

    @property
    def unfinished(self) -> dict[str, str]:
        """Jobs that were taken and never ended, and why."""
        return {name: life.why for name, life in self._lives.items()}

    def hear(self, event: AnyEvent, commands: Sequence[AnyCommand]) -> None:
        """Book an event and what was decided on it."""
        book = self._events.get(type(event))
        if book is not None:
            book(event)
        for command in commands:
            react = self._commands.get(type(command))
            if react is not None:
                react(command, event.at)

    def _submitted(self, event: JobSubmitted) -> None:
        self.num_submitted += 1
        if self.first_arrival is None:
            self.first_arrival = event.at
        self._lives[event.spec.name] = _Life(event.spec, event.at)
        self.queueing.submitted(event.spec, event.at)

    def _refused(self, command: RefuseRequest, at: int) -> None:
        del self._lives[command.request]
        self.refused[command.reason] += 1
        self.queueing.refused(command.request, at)

    def _queued(self, command: QueueJob, at: int) -> None:
        reasons = dict.fromkeys(verdict.refused for verdict in command.verdicts)
        self._lives[command.job].why = "; ".join(reasons)

    def _admitted(self, command: AdmitJob, at: int) -> None:
        life = self._lives[command.job]
        self.tenants.admitted(life.spec, self._runs[command.job].work)
        self.queueing.admitted(command.job, command.pin, at)
        self._regroup(command.group, at)
        if life.admitted_at < 0:
            life.admitted_at = at
            self.num_admitted += 1
            if self.first_admission is None:
                self.first_admission = at
        else:
            life.since = at
        life.first = -1
        pin = command.pin
        life.asked = {ROLLOUT: len(pin.rollout), TRAINING: len(pin.training)}
        life.pools = {
            ROLLOUT: self.ownership.pool(pin.rollout[0].node),
            TRAINING: self.ownership.pool(pin.training[0].node),
        }
        life.paces = paces(self._costs, life.pools[ROLLOUT], life.pools[TRAINING])

    def _regroup(self, group: Group, at: int) -> None:
        self.ownership.regroup(group, at)
        self.tenants.regroup(group, at)
        self.queueing.regrouped(group, self.ownership.pool, at)

    def _requested(self, event: PermitRequested) -> None:
        life = self._lives[event.job]
        if not self._begins_iteration(life, event):
            return
        if life.since >= 0:
            self._book_wall(life, event.at)
        life.iteration, life.since = event.iteration, event.at

    def _begins_iteration(self, life: _Life, event: PermitRequested) -> bool:
        """With a request for its rollout, or where rollouts run beside training, for its training.

        There the first iteration of an attempt begins with its rollout, which nothing runs beside.
        """
        if event.phase is ROLLOUT and (life.first < 0 or not life.spec.staleness):
            life.first = event.iteration
            return True
        return bool(life.spec.staleness) and event.phase is TRAINING and event.iteration > life.first

    def _book_wall(self, life: _Life, at: int) -> None:
        """Time since the iteration began; the cold start after a fault counts with the iteration that was cut off."""
        iteration = max(life.iteration, 0)
        if iteration == len(life.walls):
            life.walls.append(0)
        life.walls[iteration] += at - life.since

    def _granted(self, command: GrantPermit, at: int) -> None:
        life, devices = self._lives[command.job], len(command.slots)
        life.held[command.phase] = [(at, devices)]
        life.speeds[command.phase] = [(at, devices / life.asked[command.phase])]
        if command.phase is ROLLOUT:
            life.keep = 0

    def _widened(self, command: WidenPermit, at: int) -> None:
        life = self._lives[command.job]
        held = life.held[ROLLOUT]
        devices = held[-1][1] + len(command.slots)
        held.append((at, devices))
        if not life.keep:
            life.speeds[ROLLOUT].append((at, devices / life.asked[ROLLOUT]))

    def _told_to_move(self, command: MoveTail, at: int) -> None:
        life = self._lives[command.job]
        life.keep = len(command.keep)
        life.speeds[ROLLOUT].append((at, 0.0))

    def _tail_moved(self, event: TailMoved) -> None:
        life = self._lives[event.rank.job]
        life.held[ROLLOUT].append((event.at, life.keep))
        life.speeds[ROLLOUT].append((event.at, self._tail_speed))

    def _phase_ended(self, event: PhaseEnded) -> None:
        life = self._lives[event.rank.job]
        phase, began = event.phase, event.at - event.report.body_us
        self.busy_us[life.pools[phase]] += integral(life.held[phase], began, event.at)
        self.work_us[phase] += integral(life.speeds[phase], began, event.at)
        work = self._runs[life.spec.name].work
        alone_us = (work.rollout_us if phase is ROLLOUT else work.training_us)[event.iteration]
        self.alone_us[phase] += alone_us * life.paces[phase]

    def _changed(self, command: ChangeJobState, at: int) -> None:
        life = self._lives[command.job]
        if command.state is JobState.STOPPING:
            life.moving = command.final is JobState.QUEUED
            self.queueing.stopped(command.job, at)
            if life.since >= 0:
                self._book_wall(life, at)
                life.since = -1
        elif command.state is JobState.QUEUED:
            self.moves += life.moving
            self.retries += not life.moving
            self.queueing.requeued(command.job, at, moved=life.moving)
        elif command.state in ENDED:
            self._ended(life, at, finished=command.state is JobState.FINISHED)

    def _ended(self, life: _Life, at: int, *, finished: bool) -> None:
        self.last_end = max(self.last_end, at)
        self.ownership.advance(at)
        if finished:
            self._book_job(life, at)
        self.queueing.ended(life.spec.name, at, finished=finished)
        self.tenants.left(life.spec.name)
        del self._lives[life.spec.name]
        self._tell_end()

    def _book_job(self, life: _Life, at: int) -> None:
        self.num_finished += 1
        run = self._runs[life.spec.name]
        self.bound.add(run.job, run.work)
        if self.earliest_end is not None:
            self.earliest_end.add(run.job, run.work)
        walls, solo = np.array(life.walls, dtype=np.int64), np.array(run.work.solo_us(), dtype=np.int64)
        slowdown = float(walls.sum() / solo.sum())
        wait = (life.admitted_at - life.arrived_at) / 1e6
        self.jobs.slowdown.append(slowdown)
        self.jobs.slo.append(life.spec.slo)
        self.jobs.worst_window.append(worst_window(walls, solo))
        self.jobs.wait.append(wait)
        self.jobs.completion.append((at - life.arrived_at) / 1e6)
        waits = self.queueing.queued_seconds(life.spec.name)
        self.tenants.finished(life.spec, float(solo.sum()) / 1e6, float(walls.sum()) / 1e6 + waits, slowdown)


def integral(steps: list[tuple[int, Number]], start: int, end: int) -> Number:
    """Sum of a value times microseconds from start to end; ``steps`` says since when it was what."""
    if len(steps) == 1:
        return steps[0][1] * (end - start)
    total = steps[0][1] * 0
    for (since, value), (until, _) in zip(steps, [*steps[1:], (end, 0)], strict=True):
        total += value * max(min(until, end) - max(since, start), 0)
    return total


def worst_window(walls: "np.ndarray[Any, Any]", solo: "np.ndarray[Any, Any]") -> float:
    """The largest slowdown of 20 consecutive iterations; of all of them if there are fewer."""
    if len(walls) <= WINDOW:
        return float(walls.sum() / solo.sum())
    sums = [np.concatenate(([0], np.cumsum(times))) for times in (walls, solo)]
    over, under = (total[WINDOW:] - total[:-WINDOW] for total in sums)
    return float((over / under).max())
