"""Makes runs in worker processes, in the order asked, whatever order they end in."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from threading import Thread
from types import TracebackType
from typing import Self

from weaverl.simulation.reproduction.records import Result, Task

Progress = Callable[[str, int, int], None]
"""Called with a study, how many of its runs have ended, and how many there are."""


class Runner:
    """Makes runs with ``make`` on ``workers`` processes; with one worker, in this one.

    ``confirmed`` counts the runs that the auditor agrees with, ``refuted`` names those that it does not.
    """

    def __init__(self, make: Callable[[Task], Result], workers: int, progress: Progress) -> None:
        self._make = make
        # Threads of this process, such as a progress bar's, do not survive a fork.
        self._pool = ProcessPoolExecutor(workers, get_context("spawn"), end_with_parent) if workers > 1 else None
        self._progress = progress
        self.confirmed = 0
        self.refuted: list[str] = []

    def results(self, tasks: Sequence[Task]) -> list[Result]:
        """The results of the tasks, in their order."""
        found = []
        for task, result in zip(tasks, self._made(tasks), strict=True):
            found.append(result)
            self._book(result)
            self._progress(task.study, len(found), len(tasks))
        return found

    def _book(self, result: Result) -> None:
        """Count what the auditor said; a run that nobody audited is in neither."""
        outcome = result.outcome
        self.confirmed += outcome.audited is True
        if outcome.audited is False:
            self.refuted.append(f"{outcome.trace}, {outcome.policy}")

    def _made(self, tasks: Sequence[Task]) -> Iterator[Result]:
        return map(self._make, tasks) if self._pool is None else self._pool.map(self._make, tasks)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


def end_with_parent() -> None:
    """Have this worker end when its parent has been killed: nobody will read its results."""
    parent = parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    Thread(target=wait, daemon=True).start()
