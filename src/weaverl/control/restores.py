"""What was restored ahead of a permit, from the log of facts: from when to when state was on slots without a phase."""

from collections.abc import Iterator

import msgspec

from weaverl.domain.cluster import PoolKind
from weaverl.domain.commands import GrantPermit, PrepareSlot
from weaverl.domain.events import DeathConfirmed, SlotPrepared, SlotVacated
from weaverl.domain.facts import Fact
from weaverl.domain.timeline import Restore


class _Told(msgspec.Struct):
    """A demand to restore, and what came of it: reports of ranks, and the ranks that are off the slots again."""

    command: PrepareSlot
    began_at: int
    ready_at: int = 0
    restored_bytes: int = 0
    off: set[int] = set()
    left_at: int | None = None


class Restores:
    """Hears facts in their order. Nothing is told of a demand that no rank could meet, nor of one still open."""

    def __init__(self) -> None:
        self._told: list[_Told] = []
        self._open: dict[str, _Told] = {}

    def hear(self, fact: Fact) -> None:
        """Take a fact in."""
        event = fact.event
        match event:
            case SlotPrepared() if str(event.token) in self._open:
                told = self._open[str(event.token)]
                told.ready_at = event.at
                told.restored_bytes += event.report.restored_bytes
            case SlotVacated() if str(event.token) in self._open:
                told = self._open[str(event.token)]
                told.off.add(event.rank.rank)
                if len(told.off) == told.command.ranks:
                    self._left(told, event.at)
            case DeathConfirmed():
                self._end(event.job, event.attempt, None, event.at)
        for command in fact.commands:
            if isinstance(command, PrepareSlot):
                told = _Told(command, event.at)
                self._told.append(told)
                self._open[str(command.token)] = told
            elif isinstance(command, GrantPermit):
                self._end(command.job, command.attempt, command.pool, event.at)

    def ended(self) -> Iterator[Restore]:
        """All that were on slots and are not any more, or belong to a permit by now."""
        for told in self._told:
            command = told.command
            if told.left_at is not None and told.ready_at:
                yield Restore(
                    restored=command.pool,
                    job=command.job,
                    attempt=command.attempt,
                    slots=command.slots,
                    token=str(command.token),
                    began_at=told.began_at,
                    ready_at=told.ready_at,
                    left_at=told.left_at,
                    restored_bytes=told.restored_bytes,
                )

    def _end(self, job: str, attempt: int, pool: PoolKind | None, at: int) -> None:
        """A permit took the state over, or the attempt is dead; without a pool it is that of both."""
        for told in list(self._open.values()):
            command = told.command
            if (command.job, command.attempt) == (job, attempt) and pool in (None, command.pool):
                told.left_at = at if told.left_at is None else told.left_at
                if pool is None or told.ready_at:
                    self._left(told, at)

    def _left(self, told: _Told, at: int) -> None:
        told.left_at = at if told.left_at is None else told.left_at
        del self._open[str(told.command.token)]
