"""The one door to scheduler state: events in, commands out.

``handle`` folds the event, then decides; every command is folded the moment it is decided, so that the next decision
sees it. ``replay`` folds an event and the commands that were once decided on it and decides nothing: recovery from
the log of facts. The two paths share every fold, so they cannot drift apart.
"""

from collections.abc import Iterator

import msgspec

from weaverl.domain.cluster import Cluster, Slot
from weaverl.domain.commands import (
    AcceptJob,
    AcknowledgeRequest,
    AdmitJob,
    AnyCommand,
    ChangeJobState,
    GrantPermit,
    KillJob,
    LearnProfile,
    QueueJob,
    RefuseRequest,
    RegroupJobs,
    SetTimer,
    StartRank,
    VacateSlot,
)
from weaverl.domain.events import (
    AgentReported,
    AnyEvent,
    ControllerStarted,
    DeathConfirmed,
    JobCancelled,
    JobSubmitted,
    NodeLost,
    PermitRequested,
    PhaseEnded,
    PhaseMeasured,
    ProcessExited,
    RankRegistered,
    SlotVacated,
    StartFailed,
    TimerFired,
    Token,
)
from weaverl.domain.groups import Group
from weaverl.domain.jobs import JobState, PhaseKind
from weaverl.scheduling import lifecycle, placement, profiling
from weaverl.scheduling.rotation import Rotation, RotationState
from weaverl.scheduling.state import ClusterState, JobRecord, NodeRecord, Parameters


class Snapshot(msgspec.Struct):
    """Everything the scheduler knows, ready to be written."""

    cluster: ClusterState
    rotations: dict[str, RotationState]


class Scheduler:
    """Co-schedules jobs: placement behind the door, and one rotation a group."""

    def __init__(self, cluster: Cluster, parameters: Parameters = Parameters()) -> None:
        nodes = {node.name: NodeRecord(node) for node in cluster.nodes}
        self.state = ClusterState(cluster, parameters, nodes)
        self._rotations: dict[str, Rotation] = {}

    @classmethod
    def from_snapshot(cls, snapshot: Snapshot) -> "Scheduler":
        """The scheduler as it was when the snapshot was taken."""
        scheduler = cls(snapshot.cluster.cluster, snapshot.cluster.parameters)
        scheduler.state = snapshot.cluster
        scheduler._rotations = {name: Rotation(state) for name, state in snapshot.rotations.items()}
        return scheduler

    def snapshot(self) -> Snapshot:
        """Everything the scheduler knows; shares its records, so encode it before the next event."""
        return Snapshot(self.state, {name: rotation.state for name, rotation in self._rotations.items()})

    def rotation(self, group: str) -> RotationState:
        """A group's turns, to be read only."""
        return self._rotations[group].state

    def handle(self, event: AnyEvent) -> list[AnyCommand]:
        """Fold an event and decide on it. ``event.at`` never falls; the same events give the same commands."""
        self._observe(event)
        commands: list[AnyCommand] = []
        for command in self._decide(event):
            self._apply(command, event)
            commands.append(command)
        return commands

    def replay(self, event: AnyEvent, commands: tuple[AnyCommand, ...]) -> None:
        """Fold an event and what was decided on it then."""
        self._observe(event)
        for command in commands:
            self._apply(command, event)

    def _observe(self, event: AnyEvent) -> None:  # noqa: C901 - a table of events
        assert event.at >= self.state.now, f"time went back from {self.state.now} to {event.at}"
        self.state.now = event.at
        match event:
            case ControllerStarted():
                self.state.epoch = event.epoch
                for name, known in self.state.nodes.items():
                    known.ready = False
                    self.state.changed.nodes[name] = None
            case AgentReported():
                self._observe_agent(event)
            case NodeLost():
                node = self.state.nodes[event.node]
                node.ready, node.lost_at = False, event.at
                self.state.changed.nodes[event.node] = None
            case RankRegistered():
                lifecycle.observe_registration(self.state, event)
            case ProcessExited():
                lifecycle.observe_exit(self.state, event)
            case DeathConfirmed():
                self._observe_death(event)
            case PermitRequested() | PhaseEnded() | PhaseMeasured() | SlotVacated():
                self._observe_phase(event)
            case TimerFired():
                self._observe_timer(event)
            case JobSubmitted() | JobCancelled() | StartFailed():
                pass

    def _observe_agent(self, event: AgentReported) -> None:
        if event.epoch == self.state.epoch:
            attempts = dict.fromkeys((rank.job, rank.attempt) for rank in event.alive)
            strangers = [one for one in attempts if lifecycle.current(self.state, *one) is None]
            self.state.nodes[event.node.name] = NodeRecord(event.node, ready=True, strangers=strangers)
            self.state.changed.nodes[event.node.name] = None

    def _observe_death(self, event: DeathConfirmed) -> None:
        record = lifecycle.current(self.state, event.job, event.attempt)
        rotation = self._rotation_of(record)
        if rotation is not None and record is not None and record.ending is not None:
            rotation.forget(event.job, event.node)
        lifecycle.observe_death(self.state, event)

    def _observe_phase(self, event: PermitRequested | PhaseEnded | PhaseMeasured | SlotVacated) -> None:
        job, attempt = _sender(event)
        record = lifecycle.current(self.state, job, attempt)
        rotation = self._rotation_of(record)
        if record is None or rotation is None:
            return
        match event:
            case PermitRequested():
                if record.ending is None:
                    rotation.request(event, self._slots_of(event))
                    profiling.observe(record, event)
            case PhaseEnded():
                permit = rotation.phase_ended(event)
                profiling.observe(record, event)
                is_last = event.phase is not PhaseKind.LOADING and event.iteration + 1 == record.spec.iterations
                if permit is not None and is_last:
                    rotation.last_turn_over(permit.grant)
                if event.phase is PhaseKind.TRAINING and not event.failed:
                    record.iterations_done = max(record.iterations_done, event.iteration + 1)
            case PhaseMeasured():
                profiling.observe(record, event)
            case SlotVacated():
                rotation.slot_vacated(event)

    def _observe_timer(self, event: TimerFired) -> None:
        kind, *names = event.name.split("/")
        if kind == "turn" and names[0] in self._rotations:
            self._rotations[names[0]].pass_turn(names[1], int(names[2]))
        if kind == "node" and self.state.nodes[names[0]].lost_at == int(names[1]):
            self._give_up(names[0])

    def _give_up(self, node: str) -> None:
        """Jobs need not wait for a node that stays away: it is in quarantine until its agent is back."""
        self.state.nodes[node].gone = True
        for record in self.state.jobs.values():
            rotation = self._rotation_of(record)
            if rotation is not None and record.ending is not None and node in record.ending.unconfirmed:
                rotation.forget(record.spec.name, node)
                record.ending.unconfirmed.remove(node)

    def _decide(self, event: AnyEvent) -> Iterator[AnyCommand]:
        match event:
            case JobSubmitted():
                yield from self._arrival(event)
            case JobCancelled():
                yield from self._cancellation(event)
            case AgentReported():
                yield from self._strangers(event)
                yield from placement.place_queue(self.state)
            case NodeLost():
                due = event.at + self.state.parameters.node_patience_us
                yield SetTimer(name=f"node/{event.node}/{event.at}", at=due)
            case TimerFired():
                yield from self._due(event)
            case PermitRequested():
                yield from self._learn(event)
            case RankRegistered() | ProcessExited() | StartFailed() | DeathConfirmed():
                yield from self._life(event)
            case ControllerStarted() | PhaseEnded() | PhaseMeasured() | SlotVacated():
                pass
        for rotation in self._concerned(event):
            yield from self._turns(rotation)

    def _arrival(self, event: JobSubmitted) -> Iterator[AnyCommand]:
        known = self.state.jobs.get(event.spec.name)
        if known is not None and known.live:
            reason = f"job {event.spec.name} is {known.state} already: choose another name, or cancel it first"
            yield RefuseRequest(request=event.request, reason=reason)
        elif impossible := placement.impossible(self.state, event.spec):
            yield RefuseRequest(request=event.request, reason=f"job {event.spec.name} {impossible}")
        else:
            yield AcceptJob(job=event.spec.name, request=event.request)
            yield from placement.place_queue(self.state)

    def _cancellation(self, event: JobCancelled) -> Iterator[AnyCommand]:
        record = self.state.jobs.get(event.job)
        if record is None or not record.live:
            what = f"is {record.state} already" if record else "is not known here; `weaverl status` lists the jobs"
            yield RefuseRequest(request=event.request, reason=f"job {event.job} {what}")
            return
        yield AcknowledgeRequest(request=event.request)
        if record.state is JobState.QUEUED:
            name, attempt = record.spec.name, record.attempt
            yield ChangeJobState(job=name, attempt=attempt, state=JobState.CANCELLED, reason="cancelled in the queue")
            yield from placement.place_queue(self.state)
        elif record.ending is not None:
            yield lifecycle.change_of_end(record, JobState.CANCELLED, "cancelled")
        else:
            yield from lifecycle.end(record, JobState.CANCELLED, "cancelled")

    def _strangers(self, event: AgentReported) -> Iterator[AnyCommand]:
        """Processes that belong to no living attempt are stopped."""
        attempts = dict.fromkeys((rank.job, rank.attempt) for rank in event.alive)
        for job, attempt in attempts:
            if lifecycle.current(self.state, job, attempt) is None:
                yield KillJob(job=job, attempt=attempt, node=event.node.name, reason="no such attempt is alive")

    def _life(self, event: RankRegistered | ProcessExited | StartFailed | DeathConfirmed) -> Iterator[AnyCommand]:
        job, attempt = _sender(event)
        record = lifecycle.current(self.state, job, attempt)
        if record is None or record.pin is None:
            if isinstance(event, DeathConfirmed):
                yield from placement.place_queue(self.state)
            return
        match event:
            case RankRegistered():
                yield from lifecycle.react_registration(record)
            case ProcessExited():
                yield from lifecycle.react_exit(self.state, record, event)
            case StartFailed():
                yield from lifecycle.end(record, JobState.FAILED, f"{event.rank} did not start: {event.reason}")
            case DeathConfirmed():
                ended = list(lifecycle.react_death(self.state, record))
                yield from ended
                if ended:
                    yield from placement.place_queue(self.state)

    def _learn(self, event: PermitRequested) -> Iterator[AnyCommand]:
        record = lifecycle.current(self.state, event.job, event.attempt)
        profile = profiling.learned(record, event) if record is not None else None
        if profile is not None:
            yield LearnProfile(job=event.job, profile=profile)
            yield from placement.place_queue(self.state)

    def _due(self, event: TimerFired) -> Iterator[AnyCommand]:
        kind, *names = event.name.split("/")
        match kind:
            case "vacate":
                yield from self._overdue(names[0], "did not clear its slots in time", lingering=True)
            case "phase":
                yield from self._overdue(names[0], "ran a phase past max_phase", lingering=False)
            case "exit":
                record = lifecycle.current(self.state, names[0], int(names[1]))
                if record is not None:
                    left = [key for key, rank in record.ranks.items() if not rank.exited]
                    reason = f"{', '.join(left)} still ran after the others had ended"
                    yield from lifecycle.end(record, JobState.FINISHED, reason)
            case "node":
                yield from self._node_gone(names[0], int(names[1]))

    def _overdue(self, token_text: str, what: str, *, lingering: bool) -> Iterator[AnyCommand]:
        epoch, counter = token_text.split(".")
        token = Token(int(epoch), int(counter))
        for rotation in self._rotations.values():
            job = rotation.is_lingering(token) if lingering else rotation.has_permit(token)
            if job is not None:
                yield from lifecycle.end(self.state.jobs[job], JobState.FAILED, what)

    def _node_gone(self, node: str, since: int) -> Iterator[AnyCommand]:
        if not self.state.nodes[node].gone or self.state.nodes[node].lost_at != since:
            return
        for record in list(self.state.jobs.values()):
            if record.live and node in lifecycle.nodes_of(record):
                yield from lifecycle.end(record, JobState.FAILED, f"node {node} is lost")
                yield from lifecycle.react_death(self.state, record)
        yield from placement.place_queue(self.state)

    def _concerned(self, event: AnyEvent) -> list[Rotation]:
        """The rotations that an event may let go on: one group's, or all after a change of nodes or jobs."""
        if isinstance(event, PermitRequested | PhaseEnded | SlotVacated | RankRegistered):
            job, attempt = _sender(event)
            rotation = self._rotation_of(lifecycle.current(self.state, job, attempt))
            return [] if rotation is None else [rotation]
        return [] if isinstance(event, PhaseMeasured) else list(self._rotations.values())

    def _turns(self, rotation: Rotation) -> Iterator[AnyCommand]:
        parameters = self.state.parameters
        for command in rotation.decide(
            self._slots_of,
            self._ranks_of,
            self.state.slots_ready,
            lambda: Token(self.state.epoch, self.state.tokens + 1),
            self.state.now,
            (parameters.vacate_patience_us, parameters.turn_patience_us),
        ):
            yield command
            if isinstance(command, GrantPermit):
                limit = self.state.jobs[command.job].spec.max_phase_seconds
                if limit is not None:
                    yield SetTimer(name=f"phase/{command.token}", at=self.state.now + round(limit * 1e6))

    def _slots_of(self, request: PermitRequested) -> tuple[Slot, ...]:
        pin = self.state.jobs[request.job].pin
        assert pin is not None
        return pin.slots(request.pool)

    def _ranks_of(self, request: PermitRequested) -> int | None:
        ranks = [r for r in self.state.jobs[request.job].ranks.values() if r.rank.role == request.role]
        return len(ranks) if all(rank.registered for rank in ranks) else None

    def _rotation_of(self, record: JobRecord | None) -> Rotation | None:
        return None if record is None or record.group is None else self._rotations.get(record.group)

    def _apply(self, command: AnyCommand, event: AnyEvent) -> None:  # noqa: C901 - a table of commands
        match command:
            case AcceptJob():
                self._accept(event)
            case AdmitJob():
                placement.fold_admission(self.state, command)
                self._regroup(command.group)
            case RegroupJobs():
                placement.fold_group(self.state, command.group)
                self._regroup(command.group)
            case QueueJob():
                self.state.jobs[command.job].verdicts = command.verdicts
            case LearnProfile():
                record = self.state.jobs[command.job]
                record.profile, record.profiling, record.measured = command.profile, False, {}
                self.state.changed.jobs[command.job] = None
            case StartRank():
                placement.fold_start(self.state, command)
            case ChangeJobState():
                rotation = self._rotation_of(self.state.jobs[command.job])
                if rotation is not None and command.state is JobState.STOPPING:
                    rotation.silence(command.job)
                elif rotation is not None and command.state is not JobState.RUNNING:
                    rotation.remove(command.job)
                lifecycle.fold_state(self.state, command)
            case GrantPermit():
                self.state.tokens = command.token.counter
                self._rotations[self._group_of(command.job)].granted(command)
            case VacateSlot():
                self._rotations[self._group_of(command.job)].vacating(command)
            case SetTimer():
                kind, *names = command.name.split("/")
                if kind == "turn":
                    self._rotations[names[0]].front_watched(names[1], int(names[2]))
            case KillJob() | RefuseRequest() | AcknowledgeRequest():
                pass

    def _accept(self, event: AnyEvent) -> None:
        assert isinstance(event, JobSubmitted)
        before = self.state.jobs.pop(event.spec.name, None)
        attempt = 1 if before is None else before.attempt + 1
        record = JobRecord(event.spec, event.at, attempt=attempt, profile=event.spec.profile)
        self.state.jobs[event.spec.name] = record
        self.state.changed.jobs[event.spec.name] = None

    def _regroup(self, group: Group) -> None:
        if not group.members:
            self._rotations.pop(group.name, None)
        elif group.name in self._rotations:
            self._rotations[group.name].state.group = group
        else:
            self._rotations[group.name] = Rotation(RotationState(group))

    def _group_of(self, job: str) -> str:
        group = self.state.jobs[job].group
        assert group is not None
        return group


_FromJob = PermitRequested | DeathConfirmed
_FromRank = PhaseEnded | PhaseMeasured | SlotVacated | RankRegistered | ProcessExited | StartFailed


def _sender(event: _FromJob | _FromRank) -> tuple[str, int]:
    """Job and attempt that an event speaks of."""
    if isinstance(event, PermitRequested | DeathConfirmed):
        return event.job, event.attempt
    return event.rank.job, event.rank.attempt
