"""All that the scheduler knows, and how events and commands change it; nothing is decided here.

``observe`` folds an event and ``apply`` a command. Deciding and replaying share both, so they cannot drift apart.
"""

from typing import assert_never

from weaverl.domain.commands import (
    AcceptJob,
    AcknowledgeRequest,
    AdmitJob,
    AnyCommand,
    ChangeJobState,
    GrantPermit,
    KillJob,
    LearnProfile,
    MoveTail,
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
    TailMoved,
    TailReached,
    TimerFired,
)
from weaverl.domain.groups import Group, Pin
from weaverl.domain.jobs import JobState, PhaseKind
from weaverl.scheduling import lifecycle, placement, profiling
from weaverl.scheduling.rotation import Rotation
from weaverl.scheduling.rotation_state import RotationState
from weaverl.scheduling.state import ClusterState, JobRecord, NodeRecord


class Known:
    """The cluster's state and one rotation a group.

    ``touched``: rotations that may have something to decide since they were last asked. An event costs what its own
    job, node and group cost, however many others there are.
    """

    def __init__(self, state: ClusterState, rotations: dict[str, RotationState]) -> None:
        self.state = state
        self.rotations = {name: Rotation(one, self._pins(one.group)) for name, one in rotations.items()}
        self.touched: list[Rotation] = []
        self._groups = {node: group.name for group in state.groups.values() for node in group.nodes}

    def rotation_of(self, record: JobRecord | None) -> Rotation | None:
        """The rotation of a pinned job."""
        return None if record is None or record.group is None else self.rotations.get(record.group)

    def rotation_on(self, node: str) -> Rotation | None:
        """The rotation of the group that a node is in."""
        return self.rotations.get(self._groups.get(node, ""))

    def pinned_on(self, node: str) -> list[JobRecord]:
        """The jobs with slots on a node, in rotation order."""
        rotation = self.rotation_on(node)
        records = self.state.members(rotation.state.group) if rotation is not None else []
        return [record for record in records if node in lifecycle.nodes_of(record)]

    def observe(self, event: AnyEvent) -> None:  # noqa: C901 - a table of events
        """Fold an event. Time never falls."""
        assert event.at >= self.state.now, f"time went back from {self.state.now} to {event.at}"
        self.state.now = event.at
        match event:
            case PermitRequested():
                self._observe_request(event)
            case PhaseEnded():
                self._observe_end(event)
            case TailReached() | TailMoved() | SlotVacated() | PhaseMeasured():
                self._observe_phase(event)
            case TimerFired():
                self._observe_timer(event)
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
                self._touch(self.rotation_of(lifecycle.current(self.state, event.rank.job, event.rank.attempt)))
            case ProcessExited():
                lifecycle.observe_exit(self.state, event)
            case DeathConfirmed():
                self._observe_death(event)
            case JobSubmitted() | JobCancelled() | StartFailed():
                pass
            case _:
                assert_never(event)

    def apply(self, command: AnyCommand, event: AnyEvent) -> None:  # noqa: C901 - a table of commands
        """Fold a command that was decided on an event."""
        match command:
            case GrantPermit():
                self.state.tokens = command.token.counter
                self._rotation_for(command).granted(command, self.state.now)
            case SetTimer():
                kind, *names = command.name.split("/")
                if kind == "turn":
                    self.rotations[names[0]].front_watched(names[1], int(names[2]))
            case VacateSlot():
                self._rotation_for(command).vacating(command)
            case MoveTail():
                self._rotation_for(command).moving(command)
            case WidenPermit():
                self._rotation_for(command).widened(command)
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
                self._change_state(command)
            case KillJob() | RefuseRequest() | AcknowledgeRequest():
                pass
            case _:
                assert_never(command)

    def _observe_request(self, event: PermitRequested) -> None:
        living = self._living(event.job, event.attempt)
        if living is not None and living[0].ending is None:
            record, rotation = living
            rotation.request(event)
            if record.profiling:
                profiling.observe(record, event)
            self.touched.append(rotation)

    def _observe_end(self, event: PhaseEnded) -> None:
        living = self._living(event.rank.job, event.rank.attempt)
        if living is None:
            return
        record, rotation = living
        permit = rotation.phase_ended(event)
        if record.profiling:
            profiling.observe(record, event)
        is_last = event.phase is not PhaseKind.LOADING and event.iteration + 1 == record.spec.iterations
        if permit is not None and is_last:
            rotation.last_turn_over(permit.grant)
        if event.phase is PhaseKind.TRAINING and not event.failed:
            record.iterations_done = max(record.iterations_done, event.iteration + 1)
        self.touched.append(rotation)

    def _observe_phase(self, event: TailReached | TailMoved | SlotVacated | PhaseMeasured) -> None:
        living = self._living(event.rank.job, event.rank.attempt)
        if living is None:
            return
        record, rotation = living
        match event:
            case PhaseMeasured():
                profiling.observe(record, event)
                return
            case SlotVacated():
                rotation.slot_vacated(event)
            case TailReached() if record.ending is None:
                rotation.tail_reached(event)
            case TailMoved():
                rotation.tail_moved(event)
        self.touched.append(rotation)

    def _observe_agent(self, event: AgentReported) -> None:
        if event.epoch == self.state.epoch:
            attempts = dict.fromkeys((rank.job, rank.attempt) for rank in event.alive)
            strangers = [one for one in attempts if lifecycle.current(self.state, *one) is None]
            self.state.nodes[event.node.name] = NodeRecord(event.node, ready=True, strangers=strangers)
            self.state.changed.nodes[event.node.name] = None
            self._touch(self.rotation_on(event.node.name))

    def _observe_death(self, event: DeathConfirmed) -> None:
        record = lifecycle.current(self.state, event.job, event.attempt)
        rotation = self.rotation_of(record)
        if rotation is not None and record is not None and record.ending is not None:
            rotation.forget(event.job, event.node)
        lifecycle.observe_death(self.state, event)
        self._touch(self.rotation_on(event.node))

    def _observe_timer(self, event: TimerFired) -> None:
        kind, *names = event.name.split("/")
        if kind == "turn" and names[0] in self.rotations:
            self.rotations[names[0]].pass_turn(names[1], int(names[2]))
            self.touched.append(self.rotations[names[0]])
        if kind == "node" and self.state.nodes[names[0]].lost_at == int(names[1]):
            self._give_up(names[0])

    def _give_up(self, node: str) -> None:
        """Jobs need not wait for a node that stays away: it is in quarantine until its agent is back."""
        self.state.nodes[node].gone = True
        rotation = self.rotation_on(node)
        for record in self.pinned_on(node):
            if rotation is not None and record.ending is not None and node in record.ending.unconfirmed:
                rotation.forget(record.spec.name, node)
                record.ending.unconfirmed.remove(node)
        self._touch(rotation)

    def _change_state(self, command: ChangeJobState) -> None:
        rotation = self.rotation_of(self.state.jobs[command.job])
        if rotation is not None and command.state is JobState.STOPPING:
            rotation.silence(command.job)
        elif rotation is not None and command.state is not JobState.RUNNING:
            rotation.remove(command.job)
        self._touch(rotation)
        lifecycle.fold_state(self.state, command)

    def _accept(self, event: AnyEvent) -> None:
        assert isinstance(event, JobSubmitted)
        before = self.state.jobs.pop(event.spec.name, None)
        attempt = 1 if before is None else before.attempt + 1
        record = JobRecord(event.spec, event.at, attempt=attempt, profile=event.spec.profile)
        self.state.jobs[event.spec.name] = record
        self.state.changed.jobs[event.spec.name] = None

    def _regroup(self, group: Group) -> None:
        before = self.rotations.get(group.name)
        for node in before.state.group.nodes if before is not None else ():
            self._groups.pop(node, None)
        if not group.members:
            self.rotations.pop(group.name, None)
            return
        self._groups |= dict.fromkeys(group.nodes, group.name)
        if before is not None:
            before.regroup(group, self._pins(group))
        else:
            self.rotations[group.name] = Rotation(RotationState(group), self._pins(group))

    def _pins(self, group: Group) -> dict[str, Pin]:
        pins = ((name, self.state.jobs[name].pin) for name in group.members)
        return {name: pin for name, pin in pins if pin is not None}

    def _living(self, job: str, attempt: int) -> tuple[JobRecord, Rotation] | None:
        """The record and rotation of a living attempt that is in a group: only those are listened to."""
        record = self.state.jobs.get(job)
        if record is None or record.group is None or record.attempt != attempt:
            return None
        return record, self.rotations[record.group]

    def _rotation_for(self, command: GrantPermit | VacateSlot | MoveTail | WidenPermit) -> Rotation:
        rotation = self.rotation_of(self.state.jobs[command.job])
        assert rotation is not None
        return rotation

    def _touch(self, rotation: Rotation | None) -> None:
        if rotation is not None:
            self.touched.append(rotation)
