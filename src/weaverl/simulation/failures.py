"""Faults of nodes and jobs at random times, from one seed: a Poisson process each, off unless a mean time is given.

A lost node stops the jobs that are pinned to it; it is back after its repair, empty. A crashed job's process is gone.
Either way the scheduler gives up the attempt, and the job begins again after its last finished iteration.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weaverl.domain.units import HOUR_US
from weaverl.simulation.engine import Engine


class Faults:
    """Strikes one of the targets that there are at the time; each fails once in ``mtbf_hours`` on average.

    Without targets the clock stands still: a run in which nobody can run any more comes to its end.
    """

    def __init__(
        self,
        engine: Engine,
        mtbf_hours: float | None,
        seed: tuple[int, int],
        targets: Callable[[], Sequence[Any]],
        strike: Callable[[Any], None],
    ) -> None:
        self._engine, self._mtbf_us = engine, (mtbf_hours or 0.0) * HOUR_US
        self._targets, self._strike = targets, strike
        self._random = np.random.Generator(np.random.PCG64(seed))
        self._running = False

    def go_on(self) -> None:
        """There are targets: have the next fault come, if none is coming."""
        if self._mtbf_us and not self._running:
            self._running = True
            self._plan()

    def _plan(self) -> None:
        wait = self._random.exponential(self._mtbf_us / max(len(self._targets()), 1))
        self._engine.at(self._engine.now + round(wait), self._fail, None)

    def _fail(self, _: None) -> None:
        targets = self._targets()
        self._running = bool(targets)
        if targets:
            self._strike(targets[int(self._random.integers(len(targets)))])
            self._plan()
