"""All that the scheduler knows, and how events and commands change it; nothing is decided here.

``observe`` folds an event and ``apply`` a command. Deciding and replaying share both, so they cannot drift apart.
"""

from collections.abc import Callable, Mapping
from typing import Any

from weaverl.domain.commands import (
    AcceptJob,
    AcknowledgeRequest,
    AdmitJob,
    AnyCommand,
    ChangeJobState,
    Command,
    DropMove,
    GrantPermit,
    KillJob,
    LearnProfile,
    MoveTail,
    PlanMove,
    PrepareSlot,
    QueueJob,
    RefusePlan,
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
    CheckpointWritten,
    ControllerStarted,
    DeathConfirmed,
    Event,
    JobCancelled,
    JobSubmitted,
    NodeLost,
    PermitRequested,
    PhaseEnded,
    PhaseMeasured,
    PlanProposed,
    ProcessExited,
    RankRegistered,
    SlotPrepared,
    SlotVacated,
    StartFailed,
    TailMoved,
    TailReached,
    TimerFired,
)
from weaverl.domain.groups import Group, Pin
from weaverl.domain.jobs import JobState
from weaverl.scheduling import lifecycle, moves, placement, presence, prices, profiling, progress
from weaverl.scheduling.rotation import Rotation
from weaverl.scheduling.rotation_state import LOADING, ROLLOUT, SYNC, TRAINING, RotationState
from weaverl.scheduling.sharing import usage
from weaverl.scheduling.state import ClusterState, JobRecord


class Known:
    """The cluster's state and one rotation a group.

    ``touched``: rotations that may have something to decide since they were last asked. An event costs what its own
    job, node and group cost, however many others there are.
    """

    def __init__(self, state: ClusterState, rotations: dict[str, RotationState]) -> None:
        self.state = state
        prices.fold_missing(state)
        self.rotations = {
            name: Rotation(one, self._pins(one.group), self._ahead(one.group)) for name, one in rotations.items()
        }
        self.touched: list[Rotation] = []
        self._groups = {node: group.name for group in state.groups.values() for node in group.nodes}
        self._observers = self._events()
        self._appliers = self._commands()

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

    def observe(self, event: AnyEvent) -> None:
        """Fold an event. Time never falls."""
        assert event.at >= self.state.now, f"time went back from {self.state.now} to {event.at}"
        self.state.now = event.at
        self._observers[type(event)](event)

    def apply(self, command: AnyCommand, event: AnyEvent) -> None:
        """Fold a command that was decided on an event."""
        self._appliers[type(command)](command, event)

    def _events(self) -> dict[type[Event], Callable[[Any], None]]:
        return {
            ControllerStarted: lambda event: presence.observe_controller(self.state, event),
            AgentReported: self._observe_agent,
            NodeLost: lambda event: presence.observe_loss(self.state, event),
            JobSubmitted: _nothing,
            JobCancelled: _nothing,
            RankRegistered: self._observe_registration,
            PermitRequested: self._observe_request,
            PhaseEnded: self._observe_end,
            PhaseMeasured: self._observe_measurement,
            CheckpointWritten: lambda event: moves.observe_checkpoint(self.state, event),
            PlanProposed: _nothing,
            TailReached: lambda event: self._tell(event, Rotation.tail_reached, ending=False),
            TailMoved: lambda event: self._tell(event, Rotation.tail_moved),
            SlotVacated: lambda event: self._tell(event, Rotation.slot_vacated),
            SlotPrepared: lambda event: self._tell(event, Rotation.slot_prepared),
            ProcessExited: lambda event: lifecycle.observe_exit(self.state, event),
            StartFailed: _nothing,
            DeathConfirmed: self._observe_death,
            TimerFired: self._observe_timer,
        }

    def _commands(self) -> dict[type[Command], Callable[[Any, AnyEvent], None]]:
        return {
            AcceptJob: lambda _, event: lifecycle.fold_acceptance(self.state, event),
            RefuseRequest: _nothing,
            AcknowledgeRequest: _nothing,
            AdmitJob: self._admit,
            QueueJob: self._queue,
            LearnProfile: self._learn,
            StartRank: lambda command, _: placement.fold_start(self.state, command),
            GrantPermit: self._grant,
            MoveTail: lambda command, _: self._rotation_for(command).moving(command, self.state.now),
            WidenPermit: lambda command, _: self._rotation_for(command).widened(command, self.state.now),
            PlanMove: lambda command, _: moves.fold_plan(self.state, command),
            DropMove: lambda command, _: moves.fold_drop(self.state, command),
            RefusePlan: _nothing,
            VacateSlot: lambda command, _: self._rotation_for(command).vacating(command),
            PrepareSlot: self._prepare,
            RegroupJobs: self._shrink,
            KillJob: _nothing,
            ChangeJobState: self._change_state,
            SetTimer: self._set_timer,
        }

    def _observe_request(self, event: PermitRequested) -> None:
        living = self._living(event.job, event.attempt)
        if living is not None and living[0].ending is None:
            record, rotation = living
            rotation.request(event)
            progress.asked(record, event)
            if record.profiling:
                profiling.observe(record, event)
            if record.started_at is None and event.phase is ROLLOUT:
                moves.observe_start(record, event)
            if event.phase is ROLLOUT and event.job in self.state.moves:
                moves.observe_boundary(record, event)
            self.touched.append(rotation)

    def _observe_end(self, event: PhaseEnded) -> None:
        living = self._living(event.rank.job, event.rank.attempt)
        if living is None:
            return
        record, rotation = living
        permit = rotation.phase_ended(event)
        if permit is not None:
            progress.phase_ended(self.state, record, permit, event)
        if record.profiling:
            profiling.observe(record, event)
        is_last = event.iteration + 1 == record.spec.iterations and event.phase is not LOADING
        if is_last and permit is not None:
            rotation.last_turn_over(permit.grant)
        if event.phase is TRAINING and not event.failed:
            record.iterations_done = max(record.iterations_done, event.iteration + 1)
        self.touched.append(rotation)

    def _observe_measurement(self, event: PhaseMeasured) -> None:
        living = self._living(event.rank.job, event.rank.attempt)
        if living is not None:
            record, rotation = living
            profiling.observe(record, event)
            if record.spec.staleness and event.phase is SYNC:
                record.num_synced = max(record.num_synced, event.iteration + 1)
                self.touched.append(rotation)

    def _tell(
        self,
        event: TailReached | TailMoved | SlotVacated | SlotPrepared,
        fold: Callable[[Rotation, Any], None],
        *,
        ending: bool = True,
    ) -> None:
        """Let a rotation fold what a rank says of its slots."""
        living = self._living(event.rank.job, event.rank.attempt)
        if living is not None and (ending or living[0].ending is None):
            fold(living[1], event)
            self.touched.append(living[1])

    def _observe_registration(self, event: RankRegistered) -> None:
        lifecycle.observe_registration(self.state, event)
        self._touch(self.rotation_of(lifecycle.current(self.state, event.rank.job, event.rank.attempt)))

    def _observe_agent(self, event: AgentReported) -> None:
        if event.epoch == self.state.epoch:
            presence.observe_report(self.state, event)
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
        elif kind == "queue":
            self.state.shares.looks_at = None
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

    def _grant(self, command: GrantPermit, _: AnyEvent) -> None:
        self.state.tokens = command.token.counter
        self._rotation_for(command).granted(command, self.state.now)

    def _prepare(self, command: PrepareSlot, _: AnyEvent) -> None:
        self.state.tokens = command.token.counter
        self._rotation_for(command).preparing(command)

    def _set_timer(self, command: SetTimer, _: AnyEvent) -> None:
        kind, *names = command.name.split("/")
        if kind == "turn":
            self.rotations[names[0]].front_watched(names[1], int(names[2]))
        elif kind == "queue":
            self.state.shares.looks_at = command.at

    def _change_state(self, command: ChangeJobState, _: AnyEvent) -> None:
        rotation = self.rotation_of(self.state.jobs[command.job])
        if rotation is not None and command.state is JobState.STOPPING:
            rotation.silence(command.job)
        elif rotation is not None and command.state is not JobState.RUNNING:
            rotation.remove(command.job)
        self._touch(rotation)
        lifecycle.fold_state(self.state, command)

    def _queue(self, command: QueueJob, _: AnyEvent) -> None:
        self.state.jobs[command.job].verdicts = command.verdicts

    def _learn(self, command: LearnProfile, _: AnyEvent) -> None:
        record = self.state.jobs[command.job]
        record.profile, record.profiling, record.measured = command.profile, False, {}
        if (rotation := self.rotation_of(record)) is not None:
            rotation.rings.forget_times()
        self.state.changed.jobs[command.job] = None

    def _admit(self, command: AdmitJob, _: AnyEvent) -> None:
        progress.admitted(self.state.jobs[command.job], self.state.now)
        placement.fold_admission(self.state, command)
        self._regroup(command.group, command.predicted_slowdowns)

    def _shrink(self, command: RegroupJobs, _: AnyEvent) -> None:
        placement.fold_group(self.state, command.group)
        self._regroup(command.group, {})

    def _regroup(self, group: Group, foreseen: Mapping[str, float]) -> None:
        prices.fold_group(self.state, group)
        if self.state.cluster.sharing is not None:
            usage.fold_group(self.state, self.state.cluster.sharing, group)
        before = self.rotations.get(group.name)
        for node in before.state.group.nodes if before is not None else ():
            self._groups.pop(node, None)
        if not group.members:
            self.rotations.pop(group.name, None)
            return
        self._groups |= dict.fromkeys(group.nodes, group.name)
        for record in self.state.members(group):
            progress.new_company(record, foreseen.get(record.spec.name))
        if before is not None:
            before.regroup(group, self._pins(group), self._ahead(group))
        else:
            self.rotations[group.name] = Rotation(RotationState(group), self._pins(group), self._ahead(group))

    def _pins(self, group: Group) -> dict[str, Pin]:
        pins = ((name, self.state.jobs[name].pin) for name in group.members)
        return {name: pin for name, pin in pins if pin is not None}

    def _ahead(self, group: Group) -> list[str]:
        """The members whose next rollout may run beside training."""
        return [name for name in group.members if self.state.jobs[name].spec.staleness]

    def _living(self, job: str, attempt: int) -> tuple[JobRecord, Rotation] | None:
        """The record and rotation of a living attempt that is in a group: only those are listened to."""
        record = self.state.jobs.get(job)
        if record is None or record.group is None or record.attempt != attempt:
            return None
        return record, self.rotations[record.group]

    def _rotation_for(self, command: GrantPermit | VacateSlot | PrepareSlot | MoveTail | WidenPermit) -> Rotation:
        return self.rotations[self.state.jobs[command.job].group or ""]

    def _touch(self, rotation: Rotation | None) -> None:
        if rotation is not None:
            self.touched.append(rotation)


def _nothing(*_: object) -> None:
    """Facts of which nothing needs to be kept."""
