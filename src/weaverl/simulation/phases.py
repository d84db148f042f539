"""Phases of simulated jobs: permits, bodies, tails, sync; from one iteration to the next."""

from collections.abc import Callable

from weaverl.domain.cluster import PoolKind
from weaverl.domain.commands import GrantPermit, MoveTail, VacateSlot, WidenPermit
from weaverl.domain.events import (
    AnyEvent,
    CheckpointWritten,
    PermitRequested,
    PhaseEnded,
    PhaseReport,
    SlotVacated,
    TailMoved,
    TailReached,
    Token,
)
from weaverl.domain.jobs import PhaseKind
from weaverl.simulation.costs import Costs
from weaverl.simulation.engine import Engine
from weaverl.simulation.link import Link
from weaverl.simulation.run import NOT_DUE, ROLLOUT, TRAINING, Run
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
    ) -> None:
        self._engine, self._link = engine, link
        self._interference, self._send, self._finished = interference, send, finished
        self._recorder = recorder
        self._move_us = round(costs.tail_move_seconds * 1e6)
        self._stretch = costs.tail_stretch

    def begin(self, run: Run) -> None:
        """Go on with the next iteration, with a checkpoint for a job that is to move; with none left it is done."""
        if run.iteration == run.work.num_iterations:
            self._finished(run)
        else:
            if run.moving:
                self._send(CheckpointWritten(at=self._engine.now, rank=run.rank, iteration=run.iteration - 1))
            self._request(run, ROLLOUT)

    def granted(self, run: Run, command: GrantPermit) -> None:
        """Carry out a grant."""
        run.enter(command, self._engine.now, self._interference(run, command.phase))
        self._plan(run)

    def move_tail(self, run: Run, command: MoveTail) -> None:
        """Carry out the move of a tail: its other slots are clean once it is over."""
        moved_at = run.move_tail(self._engine.now, self._move_us, self._stretch)
        self._engine.at(moved_at, self._tail_moved, (run, command))
        self._plan(run)

    def widened(self, run: Run, command: WidenPermit) -> None:
        """Carry out the arrival of slots that were missing."""
        now = self._engine.now
        if self._recorder is not None:
            self._recorder.held(run, now)
        run.widen(command.slots, now)
        self._plan(run)
        if run.tail_late and run.speed == 1.0:
            run.tail_late = False
            self._engine.at(now, self._announce_late, (run, run.token))

    def vacate(self, run: Run, command: VacateSlot) -> None:
        """Carry out the demand to save lingering state: at once, as the hand-over is paid by the one who restores.

        In a measured run it takes as long as it took.
        """
        phase = ROLLOUT if command.slots[0] in run.pin.rollout else TRAINING
        saved_at = self._engine.now + run.late_saves.get(command.token, 0)
        self._engine.at(saved_at, self._vacated, (run, phase, command.token))

    def _request(self, run: Run, phase: PhaseKind) -> None:
        run.requested_at = self._engine.now
        self._send(
            PermitRequested(
                at=self._engine.now,
                job=run.name,
                attempt=run.attempt,
                role=run.rank.role,
                phase=phase,
                pool=POOLS[phase],
                iteration=run.iteration,
            )
        )

    def _plan(self, run: Run) -> None:
        self._engine.at(run.next_step(), self._step, run)

    def _step(self, run: Run) -> None:
        now = self._engine.now
        if run.due != now:
            return
        run.remaining, run.since = run.tail_left, now
        if run.tail_left:
            self._tail_reached(run)
        else:
            self._end(run)

    def _tail_reached(self, run: Run) -> None:
        run.tail_left = 0.0
        self._plan(run)
        if run.speed == 1.0:
            self._announce(run)
        else:
            run.tail_late = True

    def _announce(self, run: Run) -> None:
        keep = run.held[: run.job.tail_devices]
        self._send(TailReached(at=self._engine.now, rank=run.rank, token=run.token, iteration=run.iteration, keep=keep))

    def _announce_late(self, late: tuple[Run, Token]) -> None:
        run, token = late
        if run.due != NOT_DUE and run.token == token:
            self._announce(run)

    def _tail_moved(self, moved: tuple[Run, MoveTail]) -> None:
        run, command = moved
        if run.alive and run.due != NOT_DUE and run.token == command.token:
            if self._recorder is not None:
                self._recorder.held(run, self._engine.now)
            run.held = command.keep
            self._send(TailMoved(at=self._engine.now, rank=run.rank, token=command.token))

    def _end(self, run: Run) -> None:
        now = self._engine.now
        vacated = run.vacate
        if self._recorder is not None:
            self._recorder.ended(run, now)
        run.leave()
        self._send(
            PhaseEnded(
                at=now,
                rank=run.rank,
                token=run.token,
                phase=run.phase,
                iteration=run.iteration,
                vacated=vacated,
                report=PhaseReport(body_us=now - run.started, restore_us=run.restore_us),
            )
        )
        if run.phase is TRAINING:
            self._trained(run)
        elif run.work.between_us is None:
            self._request(run, TRAINING)
        else:
            self._engine.at(now + run.work.between_us[run.iteration], self._ask_to_train, (run, run.attempt))

    def _ask_to_train(self, turn: tuple[Run, int]) -> None:
        run, attempt = turn
        if run.alive and run.attempt == attempt:
            self._request(run, TRAINING)

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
        other_us = run.work.other_us[iteration]
        if other_us:
            self._engine.at(self._engine.now + other_us, self._next, (run, attempt))
        else:
            self._next((run, attempt))

    def _next(self, turn: tuple[Run, int]) -> None:
        run, attempt = turn
        if run.alive and run.attempt == attempt:
            self.begin(run)

    def _vacated(self, left: tuple[Run, PhaseKind, Token]) -> None:
        run, phase, token = left
        if run.alive:
            run.on_slots[phase] = False
            self._send(SlotVacated(at=self._engine.now, rank=run.rank, token=token, report=NO_REPORT))
