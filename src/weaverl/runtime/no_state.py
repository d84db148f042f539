"""The residency of a process without state to move, and without torch: drivers, workers before their first model."""

import threading
from collections.abc import Sequence
from threading import RLock
from typing import NamedTuple, Protocol

from weaverl.domain.cluster import Slot


class Moved(Protocol):
    """What a move came to."""

    @property
    def bytes(self) -> int:
        """Bytes moved."""

    @property
    def microseconds(self) -> int:
        """How long it took."""


class StateMover(Protocol):
    """What permits ask of a residency."""

    lock: RLock

    def save(self) -> Moved:
        """Move state off its slots."""

    def restore(self, slots: Sequence[Slot] = ()) -> Moved:
        """Bring state onto slots."""

    def settle(self, slots: Sequence[Slot]) -> int:
        """Charge resident state to slots."""


class _Nothing(NamedTuple):
    bytes: int = 0
    microseconds: int = 0


class NoState:
    """Nothing to move."""

    def __init__(self) -> None:
        self.lock = threading.RLock()

    def save(self) -> _Nothing:
        """Nothing leaves."""
        return _Nothing()

    def restore(self, slots: Sequence[Slot] = ()) -> _Nothing:
        """Nothing comes."""
        return _Nothing()

    def settle(self, slots: Sequence[Slot]) -> int:
        """Nothing is there."""
        return 0
