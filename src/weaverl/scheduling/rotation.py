"""Turns and permits of one co-execution group: a pure machine that folds events and commands, and decides grants.

Round robin as published: every slot keeps a ring of the jobs that use it, in the group's order, and only the front
of the ring may have the slot. A permit covers all of a job's slots in a pool, or is not granted. A front that is busy
elsewhere is waited for; one that has nothing to ask within ``turn_patience_us`` leaves the ring until it asks again,
and where every member waits for a turn that cannot come, the longest waiting goes first: no ring ever stalls.
"""

from collections.abc import Callable, Iterator

import msgspec

from weaverl.domain.cluster import PoolKind, Slot
from weaverl.domain.commands import AnyCommand, GrantPermit, SetTimer, VacateSlot
from weaverl.domain.events import PermitRequested, PhaseEnded, SlotVacated, Token
from weaverl.domain.groups import Group
from weaverl.domain.jobs import PhaseKind


class Permit(msgspec.Struct):
    """A granted phase. ``open_ranks`` have yet to end it; ``dirty_ranks`` ended it and left state on the slots."""

    grant: GrantPermit
    open_ranks: list[int]
    dirty_ranks: list[int] = []


class Lingering(msgspec.Struct):
    """State left on slots after a phase; ``vacating`` once its owner has been told to save it."""

    grant: GrantPermit
    dirty_ranks: list[int]
    vacating: bool = False


class RotationState(msgspec.Struct):
    """Everything one group's rotation knows. Occupants of slots are looked up by job, so each fact is kept once."""

    group: Group
    rings: dict[str, list[str]] = {}
    waiting: list[PermitRequested] = []
    permits: dict[str, Permit] = {}
    lingering: list[Lingering] = []
    stalled: dict[str, int] = {}


class Rotation:
    """One group's turns."""

    def __init__(self, state: RotationState) -> None:
        self.state = state

    def request(self, event: PermitRequested, slots: tuple[Slot, ...]) -> None:
        """Fold a request: the job waits, and takes its place in the rings of its slots.

        A job may ask for both pools at once (a driver that is a step ahead); it is granted one after the other.
        """
        self.state.waiting.append(event)
        self.state.stalled.pop(event.job, None)
        if event.phase is not PhaseKind.LOADING:
            for slot in slots:
                self._join(str(slot), event)

    def phase_ended(self, event: PhaseEnded) -> Permit | None:
        """Fold one rank's end of a phase; the permit, if this was its last rank. A stale token changes nothing."""
        permit = self.state.permits.get(event.rank.job)
        if permit is None or permit.grant.token != event.token or event.rank.rank not in permit.open_ranks:
            return None
        permit.open_ranks.remove(event.rank.rank)
        if not event.vacated:
            permit.dirty_ranks.append(event.rank.rank)
        if permit.open_ranks:
            return None
        del self.state.permits[event.rank.job]
        self._forget_lingering(permit.grant)
        if permit.dirty_ranks:
            self.state.lingering.append(Lingering(permit.grant, permit.dirty_ranks))
        return permit

    def slot_vacated(self, event: SlotVacated) -> None:
        """Fold one rank's report that its state is off the slots."""
        for left in list(self.state.lingering):
            if left.grant.job == event.rank.job and left.grant.token == event.token:
                left.dirty_ranks = [rank for rank in left.dirty_ranks if rank != event.rank.rank]
                if not left.dirty_ranks:
                    self.state.lingering.remove(left)

    def granted(self, grant: GrantPermit) -> None:
        """Fold a grant: the job has had its turn on these slots."""
        asked = (grant.job, grant.role, grant.phase, grant.iteration)
        self.state.waiting = [r for r in self.state.waiting if (r.job, r.role, r.phase, r.iteration) != asked]
        self.state.permits[grant.job] = Permit(grant, list(range(grant.ranks)))
        for slot in grant.slots:
            ring = self.state.rings.get(str(slot), [])
            if grant.phase is not PhaseKind.LOADING and grant.job in ring:
                place = ring.index(grant.job)
                self.state.rings[str(slot)] = ring[place + 1 :] + ring[: place + 1]

    def vacating(self, command: VacateSlot) -> None:
        """Fold the demand to vacate."""
        for left in self.state.lingering:
            if left.grant.job == command.job and left.grant.token == command.token:
                left.vacating = True

    def last_turn_over(self, grant: GrantPermit) -> None:
        """Fold the end of a job's last phase in a pool: nobody needs to wait for it there, unless it asks again."""
        if not any(one.job == grant.job and one.pool is grant.pool for one in self.state.waiting):
            for slot in grant.slots:
                _leave(self.state.rings.get(str(slot), []), grant.job)

    def silence(self, job: str) -> None:
        """Fold a job's end: it asks for nothing and has no turn. What it occupies stays until death is confirmed."""
        self.state.waiting = [request for request in self.state.waiting if request.job != job]
        self.state.stalled.pop(job, None)
        self._leave_rings(job)
        for left in self.state.lingering:
            if left.grant.job == job:
                left.vacating = True

    def forget(self, job: str, node: str) -> None:
        """Fold a confirmed death: nothing of the job is left on the node's slots."""
        if job in self.state.permits:
            permit = self.state.permits[job]
            permit.grant = _without_node(permit.grant, node)
            if not permit.grant.slots:
                del self.state.permits[job]
        for left in list(self.state.lingering):
            if left.grant.job == job:
                left.grant = _without_node(left.grant, node)
                if not left.grant.slots:
                    self.state.lingering.remove(left)

    def remove(self, job: str) -> None:
        """Fold the end of an attempt: nothing of it is left, or it is on nodes that are gone."""
        self.silence(job)
        self.state.permits.pop(job, None)
        self.state.lingering = [left for left in self.state.lingering if left.grant.job != job]

    def front_watched(self, job: str, since: int) -> None:
        """Fold the start of a front's patience."""
        self.state.stalled[job] = since

    def pass_turn(self, job: str, since: int) -> None:
        """Fold an expired patience: a front that has asked nothing since leaves the rings until it asks again."""
        if self.state.stalled.get(job) == since:
            del self.state.stalled[job]
            self._leave_rings(job)

    def has_permit(self, token: Token) -> str | None:
        """The job that holds the token's permit, if it is still held."""
        return next((job for job, held in self.state.permits.items() if held.grant.token == token), None)

    def is_lingering(self, token: Token) -> str | None:
        """The job whose state still lingers from the token's phase."""
        return next((left.grant.job for left in self.state.lingering if left.grant.token == token), None)

    def decide(
        self,
        slots_of: Callable[[PermitRequested], tuple[Slot, ...]],
        ranks_of: Callable[[PermitRequested], int | None],
        slots_ready: Callable[[tuple[Slot, ...]], bool],
        next_token: Callable[[], Token],
        now: int,
        patience_us: tuple[int, int],
    ) -> Iterator[AnyCommand]:
        """Grants and demands to vacate that are due now; the caller folds each before it asks for the next.

        Args:
            slots_of: the slots that a request is for.
            ranks_of: number of ranks of the role, None while one of them has yet to register.
            slots_ready: whether the nodes' agents are there.
            next_token: the token that the next grant would bear.
            now: time of the event.
            patience_us: to vacate, and for a turn to be taken.
        """
        for request in self._in_order():
            slots, ranks = slots_of(request), ranks_of(request)
            if ranks is None or request.job in self.state.permits or not slots_ready(slots):
                continue
            if self._held_by_other(request.job, slots):
                continue
            if not self._has_turn(request, slots):
                yield from self._watch_fronts(slots, now, patience_us[1])
                continue
            blocking = self._lingering_of_others(request.job, slots)
            if blocking:
                yield from _vacate(blocking, now + patience_us[0])
                continue
            yield self._grant(request, slots, ranks, next_token())

    def _grant(self, request: PermitRequested, slots: tuple[Slot, ...], ranks: int, token: Token) -> GrantPermit:
        return GrantPermit(
            job=request.job,
            attempt=request.attempt,
            role=request.role,
            token=token,
            phase=request.phase,
            pool=request.pool,
            iteration=request.iteration,
            slots=slots,
            ranks=ranks,
            vacate=self._wanted_by_others(request.job, slots),
        )

    def _in_order(self) -> list[PermitRequested]:
        """Cold starts first (they happen once), then the longest waiting."""
        return sorted(self.state.waiting, key=lambda r: (r.phase is not PhaseKind.LOADING, r.at, r.job))

    def _join(self, slot: str, request: PermitRequested) -> None:
        ring = self.state.rings.setdefault(slot, [])
        if request.job not in ring:
            ring.insert(self._place(ring, request), request.job)

    def _place(self, ring: list[str], request: PermitRequested) -> int:
        """Where a newcomer goes, so that all rings keep the group's cyclic order: after its nearest predecessor.

        A predecessor that has just had its turn stands at the end of the ring: then it is the newcomer's turn.
        """
        order = self.state.group.members
        place = order.index(request.job)
        before = next((name for name in reversed(order[:place]) if name in ring), None)
        if before is None:
            return next((ring.index(name) for name in order[place + 1 :] if name in ring), len(ring))
        behind = ring.index(before) + 1
        is_next = not any(one.job == before and one.pool is request.pool for one in self.state.waiting)
        return 0 if behind == len(ring) and is_next else behind

    def _has_turn(self, request: PermitRequested, slots: tuple[Slot, ...]) -> bool:
        if request.phase is PhaseKind.LOADING:
            return True
        fronts = {self.state.rings[str(slot)][0] for slot in slots}
        return fronts == {request.job} or self._everybody_waits(request)

    def _everybody_waits(self, request: PermitRequested) -> bool:
        """No turn can come among jobs linked by shared rings: none holds a permit, and all wait.

        Rings of jobs with several slots can come to contradict one another; then the longest waiting goes first.
        """
        linked = self._linked(request.job)
        if linked & self.state.permits.keys() or linked - self._waiting_jobs():
            return False
        asking = [one for one in self._in_order() if one.job in linked and one.phase is not PhaseKind.LOADING]
        fronts_can_go = any(
            all(self.state.rings[slot][0] == one.job for slot in self._ring_slots(one.job, one.pool)) for one in asking
        )
        return not fronts_can_go and asking[0] == request

    def _linked(self, job: str) -> set[str]:
        """The job and all that it shares a ring with, also through others."""
        linked = {job}
        while True:
            more = {name for ring in self.state.rings.values() if linked & set(ring) for name in ring}
            if more <= linked:
                return linked
            linked |= more

    def _ring_slots(self, job: str, pool: PoolKind) -> list[str]:
        nodes = self.state.group.rollout_nodes if pool is PoolKind.ROLLOUT else self.state.group.training_nodes
        return [slot for slot, ring in self.state.rings.items() if job in ring and slot.rsplit(":", 1)[0] in nodes]

    def _watch_fronts(self, slots: tuple[Slot, ...], now: int, patience_us: int) -> Iterator[AnyCommand]:
        for front in sorted({self.state.rings[str(slot)][0] for slot in slots}):
            if self._idle(front) and front not in self.state.stalled:
                yield SetTimer(name=f"turn/{self.state.group.name}/{front}/{now}", at=now + patience_us)

    def _leave_rings(self, job: str) -> None:
        for ring in self.state.rings.values():
            _leave(ring, job)

    def _idle(self, job: str) -> bool:
        return job not in self.state.permits and job not in self._waiting_jobs()

    def _waiting_jobs(self) -> set[str]:
        return {request.job for request in self.state.waiting}

    def _held_by_other(self, job: str, slots: tuple[Slot, ...]) -> bool:
        wanted = set(slots)
        return any(wanted & set(held.grant.slots) for other, held in self.state.permits.items() if other != job)

    def _lingering_of_others(self, job: str, slots: tuple[Slot, ...]) -> list[Lingering]:
        wanted = set(slots)
        return [left for left in self.state.lingering if left.grant.job != job and wanted & set(left.grant.slots)]

    def _wanted_by_others(self, job: str, slots: tuple[Slot, ...]) -> bool:
        return any(other != job for slot in slots for other in self.state.rings.get(str(slot), ()))

    def _forget_lingering(self, grant: GrantPermit) -> None:
        """What lingered from the job's earlier phase on the same slots is the same state, now under a newer token."""
        self.state.lingering = [
            left
            for left in self.state.lingering
            if not (left.grant.job == grant.job and set(left.grant.slots) & set(grant.slots))
        ]


def _leave(ring: list[str], job: str) -> None:
    if job in ring:
        ring.remove(job)


def _vacate(blocking: list[Lingering], deadline: int) -> Iterator[AnyCommand]:
    for left in blocking:
        if not left.vacating:
            grant = left.grant
            yield VacateSlot(
                job=grant.job,
                attempt=grant.attempt,
                role=grant.role,
                token=grant.token,
                slots=grant.slots,
                ranks=grant.ranks,
            )
            yield SetTimer(name=f"vacate/{grant.token}", at=deadline)


def _without_node(grant: GrantPermit, node: str) -> GrantPermit:
    return msgspec.structs.replace(grant, slots=tuple(slot for slot in grant.slots if slot.node != node))
