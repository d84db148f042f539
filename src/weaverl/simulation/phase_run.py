"""A phase that a simulated job is in, or asks for: the work that is left, on which slots, and how fast it goes."""

from typing import TYPE_CHECKING

from weaverl.domain.cluster import Slot
from weaverl.domain.commands import GrantPermit
from weaverl.domain.jobs import PhaseKind

if TYPE_CHECKING:
    from weaverl.simulation.run import Run

ROLLOUT, TRAINING = PhaseKind.ROLLOUT, PhaseKind.TRAINING
NOT_DUE = -1


class PhaseRun:
    """A job's rollouts, or its trainings, one after the other. Microseconds.

    ``iteration`` is the one that was asked for last. In a phase: ``remaining`` is the work left at ``since``, at full
    speed; ``tail_left`` of it is the tail, 0 once that was reached; ``speed`` below 1 while slots are missing, and
    ``tail_late`` if the tail was reached so: it is announced when they have come, since a job in its tail gets no more.
    ``due`` is when the phase's next step comes: whatever was planned for another time is out of date.
    """

    __slots__ = (
        "due",
        "held",
        "iteration",
        "kind",
        "moved",
        "num_devices",
        "part_since",
        "parts",
        "remaining",
        "requested_at",
        "restore_us",
        "run",
        "since",
        "speed",
        "started",
        "tail_late",
        "tail_left",
        "token",
        "vacate",
    )

    def __init__(self, run: "Run", kind: PhaseKind) -> None:
        self.run, self.kind = run, kind
        self.due = NOT_DUE
        self.requested_at = self.iteration = 0

    def enter(self, grant: GrantPermit, now: int, interference: float) -> None:
        """A phase begins: state is restored first if it is not on the slots.

        ``interference``: how many times as long the body takes beside its neighbours.
        """
        run, kind = self.run, self.kind
        self.token, self.vacate = grant.token, grant.vacate
        self.moved = self.tail_late = False
        held_us = run.work.held_us
        ahead = run.prepared.pop(kind, None)
        if held_us is not None:
            self.restore_us = held_us[kind][self.iteration]
        elif ahead is not None:
            self.restore_us = max(ahead.ready_at - now, 0)
        else:
            self.restore_us = run.switch_us(kind)
        if run.work.late_save_us is not None:
            run.late_saves[grant.token] = run.work.late_save_us[kind][self.iteration]
        self.started = self.since = now + self.restore_us
        self.parts: list[tuple[int, ...]] = []
        self.part_since = now
        pace = run.paces[kind] * interference
        self.remaining: float = self.alone_us if pace == 1.0 else round(self.alone_us * pace)
        self.held = grant.slots
        self.num_devices = len(run.pin.rollout if kind is ROLLOUT else run.pin.training)
        self.speed = 1.0
        if grant.later:
            self.speed = len(self.held) / self.num_devices
        self.tail_left = 0.0
        if kind is ROLLOUT and run.job.tail_from < 1.0 and not run.colocated:
            self.tail_left = round(self.remaining * (1.0 - run.job.tail_from))

    @property
    def alone_us(self) -> int:
        """What the phase takes on slots of its own."""
        work = self.run.work
        return (work.rollout_us if self.kind is ROLLOUT else work.training_us)[self.iteration]

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

    def leave(self) -> None:
        """The phase is over."""
        self.due = NOT_DUE
        if self.vacate or self.moved:
            self.run.on_slots[self.kind] = False
