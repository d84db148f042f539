"""Makes runs in worker processes, in the order asked, whatever order they end in."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from types import TracebackType
from typing import Self

from weaverl.simulation.reproduction.records import Result, Task
from weaverl.simulation.reproduction.tasks import run_task

Progress = Callable[[str, int, int], None]
"""Called with a study, how many of its runs have ended, and how many there are."""


class Runner:
    """Runs simulations on ``workers`` processes; with one worker, in this one."""

    def __init__(self, workers: int, progress: Progress) -> None:
        self._pool = ProcessPoolExecutor(workers) if workers > 1 else None
        self._progress = progress

    def results(self, tasks: Sequence[Task]) -> list[Result]:
        """The results of the tasks, in their order."""
        found = []
        for task, result in zip(tasks, self._made(tasks), strict=True):
            found.append(result)
            self._progress(task.study, len(found), len(tasks))
        return found

    def _made(self, tasks: Sequence[Task]) -> Iterator[Result]:
        return map(run_task, tasks) if self._pool is None else self._pool.map(run_task, tasks)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
