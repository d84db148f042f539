"""The world of a simulation: it carries out what the scheduler commands by having happen what a cluster would report.

One process stands for each job. A cold start takes its time before the process registers; a phase under a permit first
restores the job's state if that is not on the slots, which is the whole price of a hand-over; then its body runs, and
so on to the last iteration.
"""

from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from time import perf_counter_ns
from typing import Any, Protocol

import msgspec

from weaverl.domain.cluster import Node, PoolKind
from weaverl.domain.commands import (
    AdmitJob,
    AnyCommand,
    ChangeJobState,
    DropMove,
    GrantPermit,
    KillJob,
    LearnProfile,
    MoveTail,
    PlanMove,
    PrepareSlot,
    QueueJob,
    RefuseRequest,
    RegroupJobs,
    SetTimer,
    StartRank,
    VacateSlot,
    WidenPermit,
)
from weaverl.domain.events import (
    AgentReported,
    AnyEvent,
    ControllerStarted,
    DeathConfirmed,
    JobSubmitted,
    NodeLost,
    PlanProposed,
    ProcessExited,
    RankId,
    RankRegistered,
    TimerFired,
)
from weaverl.domain.groups import Group, Pin
from weaverl.domain.jobs import ENDED, JobSpec, JobState, PhaseKind
from weaverl.simulation.costs import Costs, LinkSharing, paces
from weaverl.simulation.engine import ARRIVALS_NEXT, TIMERS_LAST, Engine
from weaverl.simulation.failures import Faults
from weaverl.simulation.interference import Interference
from weaverl.simulation.link import PrivateLink, SharedLink
from weaverl.simulation.loading import Loading
from weaverl.simulation.phase_run import NOT_DUE
from weaverl.simulation.phases import Phases
from weaverl.simulation.run import Run
from weaverl.simulation.timeline import Recorder
from weaverl.simulation.workload import SimulatedJob, WorkOf

EPOCH = 1


class Door(Protocol):
    """What decides: the scheduler."""

    def handle(self, event: AnyEvent) -> list[AnyCommand]:
        """Decide on an event."""


class Nodes(Protocol):
    """Where the nodes come from."""

    @property
    def nodes(self) -> list[Node]:
        """All that there are."""

    def at_start(self) -> list[Node]:
        """Those that are there before the first job."""

    def for_job(self, spec: JobSpec, num_lost: int) -> list[Node]:
        """Those to add before a job is placed."""

    def taken(self, group: Group) -> None:
        """A group has its nodes."""

    def given_back(self, group: Group) -> None:
        """A group has its nodes no more."""


class Listener(Protocol):
    """Hears every event with what was decided on it, in order."""

    def hear(self, event: AnyEvent, commands: Sequence[AnyCommand]) -> None:
        """Hear one."""


class World:
    """Sends events to the scheduler and carries its commands out.

    ``propose`` is asked for a plan of moves, aside, when somebody has joined or left groups, and, without a group,
    when a job has drifted, every ``review_us`` (then it is told of the last time), and with ``makes_room`` when a job
    has to wait. ``says_saves``: jobs say what they have saved, as they must where they are moved.
    """

    def __init__(
        self,
        door: Door,
        costs: Costs,
        supply: Nodes,
        work_of: WorkOf,
        runs: dict[str, Run],
        listeners: Iterable[Listener],
        recorder: Recorder | None = None,
        seed: int = 0,
        propose: Callable[[Collection[str], int | None], PlanProposed | None] = lambda near, reviewed_at: None,
        review_us: int = 0,
        makes_room: bool = False,
        says_saves: bool = False,
    ) -> None:
        self.engine = Engine()
        self.runs = runs
        self.decision_ns = array("q")
        self._handle = door.handle
        self._costs, self._supply, self._work_of = costs, supply, work_of
        self._hear = [listener.hear for listener in listeners]
        self._propose = propose
        self._review_us, self._makes_room = review_us, makes_room
        self._is_due = False
        self._changed_groups: dict[str, None] = {}
        self._pools: dict[str, PoolKind] = {}
        self._groups: dict[str, Group] = {}
        link = SharedLink(self.engine) if costs.link_sharing is LinkSharing.SHARED else PrivateLink(self.engine)
        self._recorder = recorder
        interference = Interference(costs, runs, self._groups)
        self._phases = Phases(
            self.engine, link, costs, interference.factor, self._send, self._finished, recorder, says_saves
        )
        self._loading = Loading(self.engine, self._send, self._phases.begin)
        self._lost: set[str] = set()
        self._faults = (
            Faults(self.engine, costs.node_mtbf_hours, (seed, 1), self._nodes_that_work, self._lose),
            Faults(self.engine, costs.job_mtbf_hours, (seed, 2), self._jobs_that_run, self._crash),
        )
        self._reactions = self._table()

    def run(self, jobs: Iterable[SimulatedJob]) -> None:
        """Let all jobs arrive, in order of their arrival, and run to their end."""
        self._send(ControllerStarted(epoch=EPOCH))
        self._report(self._supply.at_start())
        self._next_arrival(iter(jobs))
        if self._review_us:
            self.engine.at(self._review_us, self._review, None, TIMERS_LAST)
        self.engine.run()

    def _table(self) -> dict[type, Callable[[Any], None]]:
        return {
            AdmitJob: self._admitted,
            RegroupJobs: self._left,
            QueueJob: self._queued,
            RefuseRequest: self._refused,
            StartRank: self._start,
            GrantPermit: self._granted,
            MoveTail: lambda command: self._phases.move_tail(self.runs[command.job], command),
            WidenPermit: lambda command: self._phases.widened(self.runs[command.job], command),
            VacateSlot: lambda command: self._phases.vacate(self.runs[command.job], command),
            PrepareSlot: lambda command: self._phases.prepare(self.runs[command.job], command),
            PlanMove: lambda command: self._move(command.job, planned=True),
            DropMove: lambda command: self._move(command.job, planned=False),
            LearnProfile: lambda _: self._plan_now(),
            KillJob: self._kill,
            ChangeJobState: self._changed,
            SetTimer: lambda command: self.engine.at(command.at, self._timer, command.name, TIMERS_LAST),
        }

    def _send(self, event: AnyEvent) -> None:
        self._carry_out(event, self._handle(event))

    def _carry_out(self, event: AnyEvent, commands: list[AnyCommand]) -> None:
        for hear in self._hear:
            hear(event, commands)
        for command in commands:
            react = self._reactions.get(type(command))
            if react is not None:
                react(command)

    def _next_arrival(self, jobs: Iterator[SimulatedJob]) -> None:
        job = next(jobs, None)
        if job is not None:
            self.engine.at(job.arrival_us, self._arrive, (job, jobs), ARRIVALS_NEXT)

    def _arrive(self, arrival: tuple[SimulatedJob, Iterator[SimulatedJob]]) -> None:
        job, jobs = arrival
        self._report(self._supply.for_job(job.spec, len(self._lost)))
        self.runs[job.spec.name] = Run(job, self._work_of(job))
        event = JobSubmitted(at=self.engine.now, spec=job.spec, request=job.spec.name)
        started = perf_counter_ns()
        commands = self._handle(event)
        self.decision_ns.append(perf_counter_ns() - started)
        self._carry_out(event, commands)
        self._next_arrival(jobs)

    def _report(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            self._pools[node.name] = node.pool
            self._send(AgentReported(at=self.engine.now, epoch=EPOCH, node=node))

    def _admitted(self, command: AdmitJob) -> None:
        self._regroup(command.group)
        self._has_changed(command.group)
        run = self.runs[command.job]
        run.admit(command, self._paces(command.pin))
        if self._recorder is not None:
            self._recorder.admitted(run, self.engine.now)
        for faults in self._faults:
            faults.go_on()

    def _paces(self, pin: Pin) -> dict[PhaseKind, float]:
        """How many times as long each phase takes on the GPUs that it got."""
        return paces(self._costs, self._pools[pin.rollout[0].node], self._pools[pin.training[0].node])

    def _left(self, command: RegroupJobs) -> None:
        self._regroup(command.group)
        self._has_changed(command.group)

    def _has_changed(self, group: Group) -> None:
        self._changed_groups[group.name] = None
        self._plan_now()

    def _queued(self, command: QueueJob) -> None:
        if self._makes_room:
            self._plan_now()

    def _plan_now(self) -> None:
        """Once for all that happens in this moment."""
        if not self._is_due:
            self.engine.at(self.engine.now, self._plan, None, TIMERS_LAST)
        self._is_due = True

    def _plan(self, _: None) -> None:
        changed, self._changed_groups, self._is_due = self._changed_groups, {}, False
        self._propose_near(changed)

    def _review(self, _: None) -> None:
        """Look at all promises from time to time, for as long as anything is to come."""
        if len(self.engine):
            self._propose_near((), self.engine.now - self._review_us)
            self.engine.at(self.engine.now + self._review_us, self._review, None, TIMERS_LAST)

    def _propose_near(self, changed: Collection[str], reviewed_at: int | None = None) -> None:
        plan = self._propose(changed, reviewed_at)
        if plan is not None:
            self._send(msgspec.structs.replace(plan, at=self.engine.now))

    def _move(self, job: str, *, planned: bool) -> None:
        self.runs[job].moving = planned

    def _regroup(self, group: Group) -> None:
        if self._recorder is not None:
            self._recorder.regrouped(group, self.engine.now)
        before = self._groups.pop(group.name, None)
        if before is not None:
            self._supply.given_back(before)
        if group.members:
            self._groups[group.name] = group
            self._supply.taken(group)

    def _start(self, command: StartRank) -> None:
        run = self.runs[command.rank.job]
        began, start_us = self.engine.now, run.job.cold_start_us
        if run.leaves:
            run.leaves, start_us = False, round(start_us * self._costs.moved_start)
        self.engine.at(began + start_us, self._register, (run, command.rank, command.node, began))

    def _register(self, started: tuple[Run, RankId, str, int]) -> None:
        run, rank, node, began = started
        if run.alive and run.attempt == rank.attempt:
            run.start(rank, node)
            if self._recorder is not None:
                self._recorder.loaded(run, began, self.engine.now)
            self._send(RankRegistered(at=self.engine.now, rank=rank, prepares=run.work.held_us is None))
            if run.work.start is None:
                self._phases.begin(run)
            else:
                self._loading.start(run, run.work.start)

    def _granted(self, command: GrantPermit) -> None:
        phases = self._loading if command.phase is PhaseKind.LOADING else self._phases
        phases.granted(self.runs[command.job], command)

    def _finished(self, run: Run) -> None:
        self._send(ProcessExited(at=self.engine.now, rank=run.rank, node=run.home, exit_code=0))

    def _kill(self, command: KillJob) -> None:
        run = self.runs[command.job]
        if self._recorder is not None:
            self._recorder.stopped(run, self.engine.now)
        run.syncing_since, run.present = NOT_DUE, False
        run.prepared.clear()
        run.stop()
        if command.node not in self._lost:
            self.engine.at(self.engine.now, self._confirm, command)

    def _confirm(self, command: KillJob) -> None:
        run = self.runs[command.job]
        if run.job.spec.max_retries or run.moving:
            self._report(self._supply.for_job(run.job.spec, len(self._lost)))
        self._send(DeathConfirmed(at=self.engine.now, job=command.job, attempt=command.attempt, node=command.node))

    def _nodes_that_work(self) -> list[Node]:
        nodes = self._supply.nodes if self._jobs_that_run() else []
        return [node for node in nodes if node.name not in self._lost]

    def _jobs_that_run(self) -> list[Run]:
        return [run for run in self.runs.values() if run.alive]

    def _lose(self, node: Node) -> None:
        for run in self.runs.values():
            if run.alive and any(slot.node == node.name for slot in run.pin.rollout + run.pin.training):
                run.stop()
        self._lost.add(node.name)
        self._send(NodeLost(at=self.engine.now, node=node.name, reason="a simulated fault"))
        repaired = self.engine.now + round(self._costs.node_repair_hours * 3600e6)
        self.engine.at(repaired, self._repaired, node)

    def _repaired(self, node: Node) -> None:
        self._lost.remove(node.name)
        self._report([node])

    def _crash(self, run: Run) -> None:
        if not run.loaded:
            return
        run.stop()
        self._send(ProcessExited(at=self.engine.now, rank=run.rank, node=run.home, exit_code=-9))

    def _refused(self, command: RefuseRequest) -> None:
        del self.runs[command.request]

    def _changed(self, command: ChangeJobState) -> None:
        if command.state is JobState.STOPPING:
            self.runs[command.job].leaves = command.final is JobState.QUEUED
        elif command.state in ENDED:
            del self.runs[command.job]

    def _timer(self, name: str) -> None:
        self._send(TimerFired(at=self.engine.now, name=name))
