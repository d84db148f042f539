"""The one door to scheduler state: events in, commands out.

``handle`` folds the event, then decides; every command is folded the moment it is decided, so that the next decision
sees it. ``replay`` folds an event and the commands that were once decided on it and decides nothing: recovery from
the log of facts. What is known and how it changes is in ``known``; what follows from an event, in ``reactions``; who
gets a permit, in ``turns``.
"""

import msgspec

from weaverl.domain.cluster import Cluster
from weaverl.domain.commands import AnyCommand, GrantPermit, SetTimer
from weaverl.domain.events import AnyEvent
from weaverl.scheduling import by_slack, turns
from weaverl.scheduling.known import Known
from weaverl.scheduling.protection import is_behind
from weaverl.scheduling.reactions import react
from weaverl.scheduling.rotation import Rotation
from weaverl.scheduling.rotation_state import RotationState
from weaverl.scheduling.state import ClusterState, NodeRecord, Parameters


class Snapshot(msgspec.Struct):
    """Everything the scheduler knows, ready to be written."""

    cluster: ClusterState
    rotations: dict[str, RotationState]


class Scheduler:
    """Co-schedules jobs: placement behind the door, and one rotation a group."""

    def __init__(self, cluster: Cluster, parameters: Parameters = Parameters()) -> None:
        nodes = {node.name: NodeRecord(node) for node in cluster.nodes}
        self._known = Known(ClusterState(cluster, parameters, nodes), {})

    @classmethod
    def from_snapshot(cls, snapshot: Snapshot) -> "Scheduler":
        """The scheduler as it was when the snapshot was taken."""
        scheduler = cls(snapshot.cluster.cluster, snapshot.cluster.parameters)
        scheduler._known = Known(snapshot.cluster, snapshot.rotations)
        return scheduler

    @property
    def state(self) -> ClusterState:
        """Nodes, jobs and groups."""
        return self._known.state

    def snapshot(self) -> Snapshot:
        """Everything the scheduler knows; shares its records, so encode it before the next event."""
        return Snapshot(self.state, {name: one.state for name, one in self._known.rotations.items()})

    def rotation(self, group: str) -> RotationState:
        """A group's turns, to be read only."""
        return self._known.rotations[group].state

    def is_late(self, job: str) -> bool:
        """Whether slots are kept free for a job, since it has lost much of what its promise leaves room for."""
        rotation = self._known.rotation_of(self.state.jobs[job])
        if rotation is None or not rotation.state.group.by_slack:
            return False
        return is_behind(rotation, self.state, rotation.rings.members[job])

    def handle(self, event: AnyEvent) -> list[AnyCommand]:
        """Fold an event and decide on it. ``event.at`` never falls; the same events give the same commands."""
        known = self._known
        known.observe(event)
        commands: list[AnyCommand] = []
        for command in react(known, event):
            known.apply(command, event)
            commands.append(command)
        touched = known.touched
        if touched:
            known.touched = []
            for rotation in touched if len(touched) == 1 else dict.fromkeys(touched):
                if rotation.asking or rotation.later or self._may_prepare(rotation):
                    self._take_turns(rotation, event, commands)
        return commands

    def replay(self, event: AnyEvent, commands: tuple[AnyCommand, ...]) -> None:
        """Fold an event and what was decided on it then."""
        self._known.observe(event)
        for command in commands:
            self._known.apply(command, event)
        self._known.touched.clear()

    def _may_prepare(self, rotation: Rotation) -> bool:
        """Whether state may be restored though nobody asks."""
        return self.state.parameters.restores_ahead and rotation.state.group.by_slack and rotation.rings.shared > 0

    def _take_turns(self, rotation: Rotation, event: AnyEvent, commands: list[AnyCommand]) -> None:
        known = self._known
        discipline = by_slack if rotation.state.group.by_slack else turns
        for command in discipline.decide(rotation, known.state):
            known.apply(command, event)
            commands.append(command)
            if type(command) is GrantPermit:
                limit = known.state.jobs[command.job].spec.max_phase_seconds
                if limit is not None:
                    due = known.state.now + round(limit * 1e6)
                    timer = SetTimer(name=f"phase/{command.token}/{command.job}", at=due)
                    known.apply(timer, event)
                    commands.append(timer)
