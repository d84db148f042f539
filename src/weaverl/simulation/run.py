"""A simulated job that has yet to end: where it stands, and the phases that it is in."""

from weaverl.domain.cluster import Slot
from weaverl.domain.commands import AdmitJob
from weaverl.domain.events import RankId, Token
from weaverl.domain.jobs import PhaseKind
from weaverl.simulation.phase_run import NOT_DUE, ROLLOUT, TRAINING, PhaseRun
from weaverl.simulation.workload import SimulatedJob, Work


class Prepared:
    """State that is restored ahead of a permit, under a token, from ``since`` on, and there at ``ready_at``."""

    __slots__ = ("ready_at", "since", "slots", "token")

    def __init__(self, token: Token, slots: tuple[Slot, ...], since: int, ready_at: int) -> None:
        self.token, self.slots, self.since, self.ready_at = token, slots, since, ready_at


class Run:
    """One job's progress. Microseconds; ``iteration`` counts from 0 and is the next that has yet to be trained.

    ``rollout`` and ``training`` are its phases: one at a time, or a rollout beside the training before it.
    Where they run so ``num_rolled`` counts the rollouts that have ended, and ``num_over`` the iterations that are over,
    sync and rest included. ``moving``: it is to move at the end of an iteration.
    ``leaves``: it has been stopped to be moved, until it is admitted anew.
    ``present``: from its admission until it is told to stop its processes are on its ``nodes``, those of each phase.
    ``prepared``: its states that were restored ahead and not used yet, by phase.
    ``late_saves``: of a measured run, how long it takes to save what lingers after a permit, by its token.
    """

    __slots__ = (
        "alive",
        "attempt",
        "colocated",
        "group",
        "home",
        "iteration",
        "job",
        "late_saves",
        "leaves",
        "loaded",
        "moving",
        "name",
        "nodes",
        "num_over",
        "num_rolled",
        "on_slots",
        "paces",
        "pin",
        "prepared",
        "present",
        "rank",
        "rollout",
        "syncing_since",
        "training",
        "work",
    )

    def __init__(self, job: SimulatedJob, work: Work) -> None:
        self.job, self.work, self.name = job, work, job.spec.name
        self.rollout, self.training = PhaseRun(self, ROLLOUT), PhaseRun(self, TRAINING)
        self.iteration = self.num_rolled = self.num_over = 0
        self.attempt = 0
        self.alive = self.present = self.loaded = self.moving = self.leaves = False
        self.syncing_since = NOT_DUE
        self.late_saves: dict[Token, int] = {}
        self.prepared: dict[PhaseKind, Prepared] = {}

    def phase(self, kind: PhaseKind) -> PhaseRun:
        """Its phases of a kind."""
        return self.rollout if kind is ROLLOUT else self.training

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

    def prepare(self, phase: PhaseKind, token: Token, slots: tuple[Slot, ...], now: int) -> int:
        """State of a phase is restored ahead; when it is there."""
        ready_at = now + self.switch_us(phase)
        self.prepared[phase] = Prepared(token, slots, now, ready_at)
        return ready_at

    def stop(self) -> None:
        """The attempt is over; nothing that it was about to do happens."""
        self.alive, self.rollout.due, self.training.due = False, NOT_DUE, NOT_DUE

    def switch_us(self, phase: PhaseKind) -> int:
        """What it takes to have the state of a phase on its slots; it is there from now on."""
        if self.colocated:
            self.on_slots[TRAINING if phase is ROLLOUT else ROLLOUT] = False
        if self.on_slots[phase]:
            return 0
        self.on_slots[phase] = True
        return self.job.rollout_switch_us if phase is ROLLOUT else self.job.training_switch_us
