"""The timeline of a simulated run, kept as whole numbers: who held what when, seen from the world and not from the log.

Metrics are made from events and commands, this from what the world did, so that one can be audited by the other.
"""

from array import array
from collections.abc import Iterator

import msgspec

from weaverl.domain.cluster import PoolKind, Slot
from weaverl.domain.events import Token
from weaverl.domain.groups import Group, Pin
from weaverl.domain.jobs import JobSpec, PhaseKind
from weaverl.domain.timeline import Interval, NodeSpan, Restore
from weaverl.simulation.phase_run import NOT_DUE, ROLLOUT, PhaseRun
from weaverl.simulation.run import Run

PHASES = (PhaseKind.LOADING, PhaseKind.ROLLOUT, PhaseKind.TRAINING, PhaseKind.SYNC)
CODES = {phase: code for code, phase in enumerate(PHASES)}
NUM_COLUMNS = 13
POOLS = tuple(PoolKind)
RESTORE_COLUMNS = 8
EPOCH_BITS = 40
NO_TOKEN = -1


class RecordedJob(msgspec.Struct):
    """A job that was admitted, where each of its attempts was pinned, and which of them were moved or paused."""

    spec: JobSpec
    pins: dict[int, Pin]
    moved: set[int] = set()


class Recorder:
    """Hears from the world what happens. Rows: job, attempt, phase, iteration, part, slots, five times, solo, token.

    ``restored_rows``: of what was restored ahead, job, attempt, pool, slots, token, and three times.
    """

    def __init__(self) -> None:
        self.rows = array("q")
        self.restored_rows = array("q")
        self.slots: list[tuple[Slot, ...]] = [()]
        self.jobs: dict[str, RecordedJob] = {}
        self.spans: list[NodeSpan] = []
        self._numbers: dict[str, int] = {}
        self._admitted_at: dict[str, int] = {}
        self._by_value: dict[tuple[Slot, ...], int] = {(): 0}
        self._by_identity: dict[int, int] = {}
        self._owned: dict[str, tuple[Group, dict[str, int]]] = {}

    def admitted(self, run: Run, now: int) -> None:
        """An attempt begins."""
        self._admitted_at[run.name] = now
        self._numbers.setdefault(run.name, len(self._numbers))
        self.jobs.setdefault(run.name, RecordedJob(run.job.spec, {})).pins[run.attempt] = run.pin

    def regrouped(self, group: Group, at: int) -> None:
        """A group's nodes are as given here from now on."""
        since = self._owned.pop(group.name, None)
        before = {} if since is None else since[1]
        kept = group.nodes if group.members else ()
        for node, taken_at in before.items():
            if node not in kept:
                self.spans.append(NodeSpan(node=node, group=group.name, taken_at=taken_at, given_back_at=at))
        if group.members:
            self._owned[group.name] = (group, {node: before.get(node, at) for node in kept})

    def loaded(self, run: Run, began: int, now: int) -> None:
        """A cold start is over."""
        self._row(run, CODES[PhaseKind.LOADING], run.iteration, (began, began, began, now), 0)

    def stopped(self, run: Run, now: int) -> None:
        """An attempt is over: its cold start that came to nothing, or one of no length that marks the end.

        A sync that is cut off is never made good: the next attempt begins with what the training had saved. The row's
        iteration is the one that was under way.
        """
        iteration = run.iteration
        if run.leaves:
            self.jobs[run.name].moved.add(run.attempt)
        for phase in run.prepared:
            self.restored(run, phase, now)
        if run.syncing_since != NOT_DUE:
            iteration -= 1
            self.synced(run, iteration, run.syncing_since, now)
        began = now if run.loaded else self._admitted_at[run.name]
        self._row(run, CODES[PhaseKind.LOADING], iteration, (began, began, began, now), 0)

    def restored(self, run: Run, phase: PhaseKind, now: int) -> None:
        """State that was restored ahead is used, or off the slots."""
        ahead = run.prepared[phase]
        pool = POOLS.index(PoolKind.ROLLOUT if phase is ROLLOUT else PoolKind.TRAINING)
        job, slots = self._numbers[run.name], self._slots_number(ahead.slots)
        times = (ahead.since, ahead.ready_at, now)
        self.restored_rows.extend((job, run.attempt, pool, slots, _number_of(ahead.token), *times))

    def synced(self, run: Run, iteration: int, began: int, now: int) -> None:
        """A sync is over."""
        solo = run.work.sync_us[iteration]
        self._row(run, CODES[PhaseKind.SYNC], iteration, (began, began, began, now), solo)

    def ended(self, phase: PhaseRun, now: int) -> None:
        """A phase is over: its parts belong to the timeline. One that is cut off by a fault never does."""
        self.held(phase, now)
        for part in phase.parts:
            self.rows.extend(part)

    def held(self, phase: PhaseRun, now: int) -> None:
        """The slots that a phase had are other ones from now on: that part of it is done."""
        run, began, part = phase.run, phase.part_since, len(phase.parts)
        requested = phase.requested_at if part == 0 else began
        times = (requested, began, min(max(phase.started, began), now), now)
        token = _number_of(phase.token)
        where, solo = self._slots_number(phase.held), phase.alone_us
        phase.parts.append(self._numbers_of(run, CODES[phase.kind], phase.iteration, part, where, times, solo, token))
        phase.part_since = now

    def intervals(self) -> Iterator[Interval]:
        """All rows as intervals of a timeline."""
        names, slots, rows = list(self._numbers), self.slots, self.rows
        for start in range(0, len(rows), NUM_COLUMNS):
            job, attempt, phase, iteration, part, where, asked, granted, began, end, released, solo, token = rows[
                start : start + NUM_COLUMNS
            ]
            yield Interval(
                job=names[job],
                attempt=attempt,
                phase=PHASES[phase],
                iteration=iteration,
                part=part,
                slots=slots[where],
                requested_at=asked,
                granted_at=granted,
                started_at=began,
                ended_at=end,
                released_at=released,
                solo_us=solo,
                token=_text_of(token),
            )

    def restores(self) -> Iterator[Restore]:
        """All that was restored ahead, as it stands in a timeline."""
        names, slots, rows = list(self._numbers), self.slots, self.restored_rows
        for start in range(0, len(rows), RESTORE_COLUMNS):
            job, attempt, pool, where, token, began, ready, left = rows[start : start + RESTORE_COLUMNS]
            yield Restore(
                restored=POOLS[pool],
                job=names[job],
                attempt=attempt,
                slots=slots[where],
                token=_text_of(token),
                began_at=began,
                ready_at=ready,
                left_at=left,
            )

    def _row(self, run: Run, phase: int, iteration: int, times: tuple[int, int, int, int], solo: int) -> None:
        self.rows.extend(self._numbers_of(run, phase, iteration, 0, 0, times, solo, NO_TOKEN))

    def _numbers_of(
        self,
        run: Run,
        phase: int,
        iteration: int,
        part: int,
        where: int,
        times: tuple[int, int, int, int],
        solo: int,
        token: int,
    ) -> tuple[int, ...]:
        job = self._numbers[run.name]
        return (job, run.attempt, phase, iteration, part, where, *times, times[3], solo, token)

    def _slots_number(self, slots: tuple[Slot, ...]) -> int:
        number = self._by_identity.get(id(slots))
        if number is not None and self.slots[number] is slots:
            return number
        number = self._by_value.get(slots)
        if number is None:
            number = self._by_value[slots] = len(self.slots)
            self.slots.append(slots)
            self._by_identity[id(slots)] = number
        return number


def _number_of(token: Token) -> int:
    return (token.epoch << EPOCH_BITS) + token.counter


def _text_of(token: int) -> str:
    return "" if token == NO_TOKEN else f"{token >> EPOCH_BITS}.{token & (1 << EPOCH_BITS) - 1}"
