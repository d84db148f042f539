"""The slow link between the pools: to itself for each pair of nodes, or shared by all syncs that run."""

from collections.abc import Callable
from typing import Any, Protocol

from weaverl.simulation.engine import Engine


class Link(Protocol):
    """What carries the weights of a sync."""

    def send(self, alone_us: int, done: Callable[[Any], None], argument: Any) -> None:
        """Call ``done(argument)`` when a transfer that takes ``alone_us`` alone is over."""


class PrivateLink:
    """Every sync has the full rate."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def send(self, alone_us: int, done: Callable[[Any], None], argument: Any) -> None:
        """Call ``done(argument)`` when a transfer that takes ``alone_us`` alone is over."""
        self._engine.at(self._engine.now + alone_us, done, argument)


class SharedLink:
    """All transfers share the rate equally (egalitarian processor sharing).

    Kept in virtual time: it passes at 1/n of the clock's rate with n transfers under way, so that each of them ends
    at a virtual time that is known from its start.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._virtual = 0.0
        self._since = 0
        self._due = -1
        self._sequence = 0
        self._transfers: list[tuple[float, int, Callable[[Any], None], Any]] = []

    def send(self, alone_us: int, done: Callable[[Any], None], argument: Any) -> None:
        """Call ``done(argument)`` when a transfer that takes ``alone_us`` alone is over."""
        self._advance()
        self._sequence += 1
        self._transfers.append((self._virtual + alone_us, self._sequence, done, argument))
        self._plan()

    def _advance(self) -> None:
        now = self._engine.now
        if self._transfers:
            self._virtual += (now - self._since) / len(self._transfers)
        self._since = now

    def _plan(self) -> None:
        if self._transfers:
            left = min(self._transfers)[0] - self._virtual
            self._due = self._engine.now + max(round(left * len(self._transfers)), 0)
            self._engine.at(self._due, self._arrived, self._due)

    def _arrived(self, due: int) -> None:
        if due != self._due:
            return  # another transfer began or ended since this was planned
        self._advance()
        first = min(self._transfers)
        self._transfers.remove(first)
        self._due = -1
        self._plan()
        first[2](first[3])
