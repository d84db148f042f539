"""Phases of simulated jobs: permits, bodies, tails, sync; from one iteration to the next."""

from collections.abc import Callable

from weaverl.domain.cluster import PoolKind
from weaverl.domain.commands import GrantPermit, MoveTail, PrepareSlot, VacateSlot, WidenPermit
from weaverl.domain.events import (
    AnyEvent,
    CheckpointWritten,
    PermitRequested,
    PhaseEnded,
    PhaseMeasured,
    PhaseReport,
    SlotPrepared,
    SlotVacated,
    TailMoved,
    TailReached,
    Token,
)
from weaverl.domain.jobs import PhaseKind
from weaverl.simulation.costs import Costs
from weaverl.simulation.engine import Engine
from weaverl.simulation.link import Link
from weaverl.simulation.phase_run import NOT_DUE, ROLLOUT, TRAINING, PhaseRun
from weaverl.simulation.run import Run
from weaverl.simulation.timeline import Recorder

POOLS = {ROLLOUT: PoolKind.ROLLOUT, TRAINING: PoolKind.TRAINING}
NO_REPORT = PhaseReport()


class Phases:
    """Runs the phases that were granted, and asks for the next ones.

    ``send`` puts an event through the door, ``finished`` is called when a job has done its last iteration,
    ``interference`` says at a grant how many times as long the body takes.
    """

    def __init__(
        self,
        engine: Engine,
        link: Link,
        costs: Costs,
        interference: Callable[[Run, PhaseKind], float],
        send: Callable[[AnyEvent], None],
        finished: Callable[[Run], None],
        recorder: Recorder | None,
        says_saves: bool,
    ) -> None:
        self._engine, self._link = engine, link
        self._saves_every = costs.saves_every if says_saves else 0
        self._interference, self._send, self._finished = interference, send, finished
        self._recorder = recorder
        self._move_us = round(costs.tail_move_seconds * 1e6)
        self._stretch = costs.tail_stretch

    def begin(self, run: Run) -> None:
        """A job is loaded: it goes on with the next iteration; where jobs say so, the last is saved."""
        run.num_rolled = run.num_over = run.iteration
        if run.iteration == run.work.num_iterations:
            self._finished(run)
        else:
            self._save(run, run.iteration - 1)
            self._request(run.rollout, run.iteration)

    def granted(self, run: Run, command: GrantPermit) -> None:
        """Carry out a grant."""
        self._used(run, command.phase)
        phase = run.phase(command.phase)
        phase.enter(command, self._engine.now, self._interference(run, command.phase))
        self._plan(phase)

    def move_tail(self, run: Run, command: MoveTail) -> None:
        """Carry out the move of a tail: its other slots are clean once it is over."""
        moved_at = run.rollout.move_tail(self._engine.now, self._move_us, self._stretch)
        self._engine.at(moved_at, self._tail_moved, (run, command))
        self._plan(run.rollout)

    def widened(self, run: Run, command: WidenPermit) -> None:
        """Carry out the arrival of slots that were missing."""
        now, phase = self._engine.now, run.rollout
        if self._recorder is not None:
            self._recorder.held(phase, now)
        phase.widen(command.slots, now)
        self._plan(phase)
        if phase.tail_late and phase.speed == 1.0:
            phase.tail_late = False
            self._engine.at(now, self._announce_late, (run, phase.token))

    def vacate(self, run: Run, command: VacateSlot) -> None:
        """Carry out the demand to save lingering state: at once, as the hand-over is paid by the one who restores.

        In a measured run it takes as long as it took.
        """
        phase = ROLLOUT if command.slots[0] in run.pin.rollout else TRAINING
        saved_at = self._engine.now + run.late_saves.get(command.token, 0)
        ahead = run.prepared.get(phase)
        if ahead is not None and ahead.token == command.token:
            saved_at = max(saved_at, ahead.ready_at)
        self._engine.at(saved_at, self._vacated, (run, phase, command.token))

    def prepare(self, run: Run, command: PrepareSlot) -> None:
        """Carry out the demand to restore state ahead of a permit."""
        phase = ROLLOUT if command.pool is PoolKind.ROLLOUT else TRAINING
        ready_at = run.prepare(phase, command.token, command.slots, self._engine.now)
        self._engine.at(ready_at, self._prepared, (run, run.attempt, command.token))

    def _request(self, phase: PhaseRun, iteration: int) -> None:
        run = phase.run
        phase.requested_at, phase.iteration = self._engine.now, iteration
        self._send(
            PermitRequested(
                at=self._engine.now,
                job=run.name,
                attempt=run.attempt,
                role=run.rank.role,
                phase=phase.kind,
                pool=POOLS[phase.kind],
                iteration=iteration,
            )
        )

    def _plan(self, phase: PhaseRun) -> None:
        self._engine.at(phase.next_step(), self._step, phase)

    def _step(self, phase: PhaseRun) -> None:
        now = self._engine.now
        if phase.due != now:
            return
        phase.remaining, phase.since = phase.tail_left, now
        if phase.tail_left:
            self._tail_reached(phase)
        else:
            self._end(phase)

    def _tail_reached(self, phase: PhaseRun) -> None:
        phase.tail_left = 0.0
        self._plan(phase)
        if phase.speed == 1.0:
            self._announce(phase)
        else:
            phase.tail_late = True

    def _announce(self, phase: PhaseRun) -> None:
        rank, keep = phase.run.rank, phase.held[: phase.run.job.tail_devices]
        self._send(TailReached(at=self._engine.now, rank=rank, token=phase.token, iteration=phase.iteration, keep=keep))

    def _announce_late(self, late: tuple[Run, Token]) -> None:
        run, token = late
        if run.rollout.due != NOT_DUE and run.rollout.token == token:
            self._announce(run.rollout)

    def _tail_moved(self, moved: tuple[Run, MoveTail]) -> None:
        run, command = moved
        phase = run.rollout
        if run.alive and phase.due != NOT_DUE and phase.token == command.token:
            if self._recorder is not None:
                self._recorder.held(phase, self._engine.now)
            phase.held = command.keep
            self._send(TailMoved(at=self._engine.now, rank=run.rank, token=command.token))

    def _end(self, phase: PhaseRun) -> None:
        now, run = self._engine.now, phase.run
        vacated = phase.vacate
        if self._recorder is not None:
            self._recorder.ended(phase, now)
        phase.leave()
        self._send(
            PhaseEnded(
                at=now,
                rank=run.rank,
                token=phase.token,
                phase=phase.kind,
                iteration=phase.iteration,
                vacated=vacated,
                report=PhaseReport(body_us=now - phase.started, restore_us=phase.restore_us),
            )
        )
        if phase.kind is TRAINING:
            self._trained(run)
        elif run.job.spec.staleness:
            run.num_rolled += 1
            self._go_on(run)
        elif run.work.between_us is None:
            self._request(run.training, run.iteration)
        else:
            self._engine.at(now + run.work.between_us[run.iteration], self._ask_to_train, (run, run.attempt))

    def _go_on(self, run: Run) -> None:
        """A rollout, or an iteration, of a job that rolls out beside its training is over: both go on together.

        The next rollout needs the one before and the weights of the iteration before that, the training the same two.
        """
        if run.num_rolled != run.num_over + 1:
            return
        if run.num_rolled < run.work.num_iterations:
            self._request(run.rollout, run.num_rolled)
        if run.alive:
            self._request(run.training, run.num_over)

    def _ask_to_train(self, turn: tuple[Run, int]) -> None:
        run, attempt = turn
        if run.alive and run.attempt == attempt:
            self._request(run.training, run.iteration)

    def _trained(self, run: Run) -> None:
        iteration = run.iteration
        run.iteration += 1
        run.syncing_since = self._engine.now
        sync_us = 0 if run.colocated else run.work.sync_us[iteration]
        self._link.send(sync_us, self._synced, (run, run.attempt, iteration, self._engine.now))

    def _synced(self, synced: tuple[Run, int, int, int]) -> None:
        run, attempt, iteration, began = synced
        if not (run.alive and run.attempt == attempt):
            return
        run.syncing_since = NOT_DUE
        if self._recorder is not None:
            self._recorder.synced(run, iteration, began, self._engine.now)
        if run.job.spec.staleness:
            self._save(run, iteration)
            report = PhaseReport(body_us=self._engine.now - began)
            self._send(
                PhaseMeasured(
                    at=self._engine.now, rank=run.rank, phase=PhaseKind.SYNC, iteration=iteration, report=report
                )
            )
        other_us = run.work.other_us[iteration]
        if other_us:
            self._engine.at(self._engine.now + other_us, self._next, (run, attempt))
        else:
            self._next((run, attempt))

    def _save(self, run: Run, iteration: int) -> None:
        if self._saves_every and iteration >= 0 and (iteration + 1) % self._saves_every == 0:
            self._send(CheckpointWritten(at=self._engine.now, rank=run.rank, iteration=iteration))

    def _next(self, turn: tuple[Run, int]) -> None:
        run, attempt = turn
        if not (run.alive and run.attempt == attempt):
            return
        if run.job.spec.staleness and run.iteration < run.work.num_iterations:
            run.num_over = run.iteration
            self._go_on(run)
        else:
            self.begin(run)

    def _vacated(self, left: tuple[Run, PhaseKind, Token]) -> None:
        run, phase, token = left
        if run.alive:
            ahead = run.prepared.get(phase)
            if ahead is not None and ahead.token == token:
                self._used(run, phase)
                del run.prepared[phase]
            run.on_slots[phase] = False
            self._send(SlotVacated(at=self._engine.now, rank=run.rank, token=token, report=NO_REPORT))

    def _prepared(self, prepared: tuple[Run, int, Token]) -> None:
        run, attempt, token = prepared
        if run.alive and run.attempt == attempt:
            self._send(SlotPrepared(at=self._engine.now, rank=run.rank, token=token, report=NO_REPORT))

    def _used(self, run: Run, phase: PhaseKind) -> None:
        """State that was restored ahead is a permit's from now on, or off the slots."""
        if phase in run.prepared and self._recorder is not None:
            self._recorder.restored(run, phase, self._engine.now)
