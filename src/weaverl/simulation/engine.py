"""A deterministic event engine: a clock in whole microseconds and a heap.

After SimPy's kernel (``simpy/core.py``), without its processes: an entry is (time, priority, sequence, action,
argument). At one moment the lower priority goes first, then what was scheduled first; so equal runs are equal to the
last tie.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

CLUSTER_FIRST, ARRIVALS_NEXT, TIMERS_LAST = 0, 1, 2
"""Priorities of one moment: what the cluster reports is heard before who arrives, and a timer strikes after both."""


class Engine:
    """The clock, and what is still to happen."""

    def __init__(self) -> None:
        self.now = 0
        self._sequence = 0
        self._heap: list[tuple[int, int, int, Callable[[Any], None], Any]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def at(self, time: int, action: Callable[[Any], None], argument: Any, priority: int = CLUSTER_FIRST) -> None:
        """Have ``action(argument)`` happen at a time that has not passed."""
        assert time >= self.now, f"{time} is before {self.now}"
        self._sequence += 1
        heappush(self._heap, (time, priority, self._sequence, action, argument))

    def run(self) -> None:
        """Let everything happen, until nothing is left."""
        heap = self._heap
        while heap:
            self.now, _, _, action, argument = heappop(heap)
            action(argument)
