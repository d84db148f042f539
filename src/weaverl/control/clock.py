"""The controller's clock: integer microseconds that never fall, also across restarts and jumps of the wall clock."""

import time


class Clock:
    """Wall time at the start, monotonic from there on, and never before what the log has seen."""

    def __init__(self, not_before: int = 0) -> None:
        self._base = max(time.time_ns() // 1000, not_before) - time.monotonic_ns() // 1000

    def now(self) -> int:
        """Microseconds."""
        return self._base + time.monotonic_ns() // 1000
