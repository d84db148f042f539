"""A simulated job that has yet to end: where it stands, and the phase that it is in."""

from weaverl.domain.cluster import Slot
from weaverl.domain.commands import AdmitJob, GrantPermit
from weaverl.domain.events import RankId, Token
from weaverl.domain.jobs import PhaseKind
from weaverl.simulation.workload import SimulatedJob, Work

ROLLOUT, TRAINING = PhaseKind.ROLLOUT, PhaseKind.TRAINING
NOT_DUE = -1


class Run:
    """One job's progress. Microseconds; ``iteration`` counts from 0 and is the next that has yet to be trained.

    In a phase: ``remaining`` is the work left at ``since``, at full speed; ``tail_left`` of it is the tail, 0 once
    that was reached; ``speed`` below 1 while slots are missing, and ``tail_late`` if the tail was reached so: it is
    announced when they have come, since a job in its tail gets no more. ``due`` is when the phase's next step comes:
    whatever was planned for another time is out of date. ``moving``: it is to move at the end of an iteration.
    ``leaves``: it has been stopped to be moved, until it is admitted anew.
    ``present``: from its admission until it is told to stop its processes are on its ``nodes``, those of each phase.
    ``late_saves``: of a measured run, how long it takes to save what lingers after a permit, by its token.
    """

    __slots__ = (
        "alive",
        "attempt",
        "colocated",
        "due",
        "group",
        "held",
        "home",
        "iteration",
        "job",
        "late_saves",
        "leaves",
        "loaded",
        "moved",
        "moving",
        "name",
        "nodes",
        "num_devices",
        "on_slots",
        "paces",
        "part_since",
        "parts",
        "phase",
        "pin",
        "present",
        "rank",
        "remaining",
        "requested_at",
        "restore_us",
        "since",
        "speed",
        "started",
        "syncing_since",
        "tail_late",
        "tail_left",
        "token",
        "vacate",
        "work",
    )

    def __init__(self, job: SimulatedJob, work: Work) -> None:
        self.job, self.work, self.name = job, work, job.spec.name
        self.iteration = 0
        self.attempt = 0
        self.alive = self.present = self.loaded = self.moving = self.leaves = False
        self.due = NOT_DUE
        self.requested_at = 0
        self.syncing_since = NOT_DUE
        self.late_saves: dict[Token, int] = {}

    def admit(self, command: AdmitJob, paces: dict[PhaseKind, float]) -> None:
        """A new attempt begins. Alone in its group, the job is loaded right where it will run."""
        self.attempt, self.pin, self.paces = command.attempt, command.pin, paces
        self.alive, self.present, self.loaded, self.moving = True, True, False, False
        self.group = command.group.name
        self.nodes = {
            phase: frozenset(slot.node for slot in slots)
            for phase, slots in ((ROLLOUT, command.pin.rollout), (TRAINING, command.pin.training))
        }
        self.colocated = command.pin.rollout == command.pin.training
        alone = len(command.group.members) == 1
        self.on_slots = {ROLLOUT: alone, TRAINING: alone}

    def start(self, rank: RankId, home: str) -> None:
        """The job's process runs on a node."""
        self.rank, self.home, self.loaded = rank, home, True

    def enter(self, grant: GrantPermit, now: int, interference: float) -> None:
        """A phase begins: state is restored first if it is not on the slots.

        ``interference``: how many times as long the body takes beside its neighbours.
        """
        phase = grant.phase
        self.token, self.phase, self.vacate = grant.token, phase, grant.vacate
        self.moved = self.tail_late = False
        held_us = self.work.held_us
        self.restore_us = self._switch_us(phase) if held_us is None else held_us[phase][self.iteration]
        if self.work.late_save_us is not None:
            self.late_saves[grant.token] = self.work.late_save_us[phase][self.iteration]
        self.started = self.since = now + self.restore_us
        self.parts: list[tuple[int, ...]] = []
        self.part_since = now
        work = self.work.rollout_us if phase is ROLLOUT else self.work.training_us
        pace = self.paces[phase] * interference
        self.remaining: float = work[self.iteration] if pace == 1.0 else round(work[self.iteration] * pace)
        self.held = grant.slots
        self.num_devices = len(self.pin.rollout if phase is ROLLOUT else self.pin.training)
        self.speed = 1.0
        if grant.later:
            self.speed = len(self.held) / self.num_devices
        self.tail_left = 0.0
        if phase is ROLLOUT and self.job.tail_from < 1.0 and not self.colocated:
            self.tail_left = round(self.remaining * (1.0 - self.job.tail_from))

    def settle(self, now: int) -> None:
        """Book the work done so far."""
        if now > self.since:
            self.remaining -= (now - self.since) * self.speed
            self.since = now

    def next_step(self) -> int:
        """When the tail, or the end of the phase, will be reached."""
        left = self.remaining - self.tail_left
        self.due = self.since + (round(left / self.speed) if self.speed != 1.0 else round(left))
        return self.due

    def widen(self, slots: tuple[Slot, ...], now: int) -> None:
        """More slots: the work goes on faster, unless only the tail is left on few."""
        self.settle(now)
        self.held += slots
        if not self.moved:
            self.speed = len(self.held) / self.num_devices

    def move_tail(self, now: int, move_us: int, stretch: float) -> int:
        """The tail goes on elsewhere after the move; when that is."""
        self.settle(now)
        self.since = now + move_us
        self.speed, self.tail_left, self.moved = 1.0 / stretch, 0.0, True
        return self.since

    def stop(self) -> None:
        """The attempt is over; nothing that it was about to do happens."""
        self.alive, self.due = False, NOT_DUE

    def leave(self) -> None:
        """The phase is over."""
        self.due = NOT_DUE
        if self.vacate or self.moved:
            self.on_slots[self.phase] = False

    def _switch_us(self, phase: PhaseKind) -> int:
        if self.colocated:
            self.on_slots[TRAINING if phase is ROLLOUT else ROLLOUT] = False
        if self.on_slots[phase]:
            return 0
        self.on_slots[phase] = True
        return self.job.rollout_switch_us if phase is ROLLOUT else self.job.training_switch_us
