"""Cold starts of measured jobs: what their processes load onto slots, under permits, before the first rollout."""

from collections.abc import Callable

from weaverl.domain.commands import GrantPermit
from weaverl.domain.events import AnyEvent, PermitRequested, PhaseEnded, PhaseReport
from weaverl.domain.jobs import PhaseKind
from weaverl.simulation.engine import Engine
from weaverl.simulation.run import Run
from weaverl.simulation.workload import Start


class Loading:
    """Asks for what a job loads, holds it as long as it was held, and then lets the job ``begin``.

    One process stands for all that load, so the loads of a job are told apart as iterations.
    """

    def __init__(self, engine: Engine, send: Callable[[AnyEvent], None], begin: Callable[[Run], None]) -> None:
        self._engine, self._send, self._begin = engine, send, begin
        self._awaited: dict[str, int] = {}

    def start(self, run: Run, start: Start) -> None:
        """The job has registered: each load is asked for in its time."""
        self._awaited[run.name] = start.awaited
        for place, load in enumerate(start.loads):
            self._engine.at(self._engine.now + load.asked_us, self._ask, (run, start, place))
        if not start.awaited:
            self._engine.at(self._engine.now + start.rollout_us, self._begin, run)

    def granted(self, run: Run, command: GrantPermit) -> None:
        """Carry out a grant."""
        assert run.work.start is not None
        load = run.work.start.loads[command.iteration]
        run.late_saves[command.token] = load.late_save_us
        self._engine.at(self._engine.now + load.held_us, self._loaded, (run, run.work.start, command))

    def _ask(self, asking: tuple[Run, Start, int]) -> None:
        run, start, place = asking
        self._send(
            PermitRequested(
                at=self._engine.now,
                job=run.name,
                attempt=run.attempt,
                role=run.rank.role,
                phase=PhaseKind.LOADING,
                pool=start.loads[place].pool,
                iteration=place,
            )
        )

    def _loaded(self, loaded: tuple[Run, Start, GrantPermit]) -> None:
        run, start, command = loaded
        self._send(
            PhaseEnded(
                at=self._engine.now,
                rank=run.rank,
                token=command.token,
                phase=PhaseKind.LOADING,
                iteration=command.iteration,
                vacated=command.vacate,
                report=PhaseReport(),
            )
        )
        self._awaited[run.name] -= 1
        if self._awaited[run.name] == 0:
            self._engine.at(self._engine.now + start.rollout_us, self._begin, run)
