"""Permits and turns of one co-execution group: a pure machine that folds events and commands.

Round robin as published: every slot has a ring of the jobs that use it, in the group's order, and only the front
of the ring may have the slot. What is due is decided in ``turns``; here is what events and commands change.
"""

from collections.abc import Container, Iterable, Mapping

import msgspec

from weaverl.domain.commands import GrantPermit, MoveTail, PrepareSlot, VacateSlot, WidenPermit
from weaverl.domain.events import PermitRequested, PhaseEnded, SlotPrepared, SlotVacated, TailMoved, TailReached, Token
from weaverl.domain.groups import Group, Pin
from weaverl.scheduling import passes, prepared, tails
from weaverl.scheduling.rings import Member, Rings
from weaverl.scheduling.rotation_state import (
    LOADING,
    ROLLOUT,
    Lane,
    Lingering,
    Permit,
    RotationState,
    is_answered,
    permit_keys,
    permits_of,
)


class Rotation:
    """One group's permits and rings.

    Derived from the state, as bits: the slots that are ``held``, those promised for ``later``, those that tails are
    ``keeping`` or would keep, and those that state ``lingers`` on; the jobs that are ``holding`` a permit and those
    that are ``asking`` for one.
    """

    def __init__(self, state: RotationState, pins: Mapping[str, Pin], ahead: Container[str] = ()) -> None:
        self.state = state
        self.rings = Rings(state.lanes)
        self.held = self.later = self.keeping = self.lingers = self.holding = self.asking = 0
        self.regroup(state.group, pins, ahead)

    def regroup(self, group: Group, pins: Mapping[str, Pin], ahead: Container[str] = ()) -> None:
        """Fold the group's new shape; members that run ``ahead`` may hold a permit in each pool."""
        self.state.group = group
        self.rings.regroup(group, pins, ahead)
        self._recount()

    def request(self, event: PermitRequested) -> None:
        """Fold a request: the job waits, and takes its place in the rings of its slots.

        A job may ask for both pools at once (a driver that is a step ahead); it is granted one after the other, unless
        its next rollout may run beside training.
        """
        state, member = self.state, self.rings.members[event.job]
        _queue(state.waiting, event)
        self.asking |= member.bit
        state.stalled.pop(event.job, None)
        if event.phase is not LOADING or state.group.quantum_us:
            self.rings.join(event.job, member.seat(event.pool), state.waiting)
        if state.group.quantum_us:
            self._end_quantum(event, member)

    def granted(self, grant: GrantPermit, at: int) -> None:
        """Fold a grant: the job has had its turn on these slots."""
        state, member = self.state, self.rings.members[grant.job]
        if state.group.by_slack:
            passes.count(state, self.rings.members, self.holding, grant)
            prepared.used(state, grant)
            if member.lingers:
                self._count_lingering()
        state.waiting = [one for one in state.waiting if one.job != grant.job or not is_answered(one, grant)]
        seat = member.seat(grant.pool)
        state.permits[seat.key] = Permit(grant, list(range(grant.ranks)), since=at)
        member.holds |= seat.mask
        if grant.later:
            member.later = self.rings.mask(grant.later)
            member.holds &= ~member.later
            self.later |= member.later
        self.held |= member.holds
        self.holding |= seat.bit
        self._count_asking()
        if state.group.quantum_us:
            state.turn_began = at if state.turn_began is None else state.turn_began
        elif grant.phase is not LOADING:
            self.rings.turn_taken(grant.job, seat)

    def phase_ended(self, event: PhaseEnded) -> Permit | None:
        """Fold one rank's end of a phase; the permit, if this was its last rank. A stale token changes nothing."""
        permit = self._permit(event.rank.job, event.token)
        rank = event.rank.rank
        if permit is None or rank not in permit.open_ranks:
            return None
        permit.open_ranks.remove(rank)
        permit.body_us = max(permit.body_us, event.report.body_us)
        if not event.vacated:
            permit.dirty_ranks.append(rank)
        elif permit.tail is not None:
            self._rank_moved(permit, rank)
        if permit.open_ranks:
            return None
        if permit.grant.later:
            tails.book(permit, event.at)
        tails.book_move(permit, event.at)
        held = self._give_back(permit)
        if permit.dirty_ranks or self.lingers:
            self._leave_lingering(permit, held)
        return permit

    def slot_vacated(self, event: SlotVacated) -> None:
        """Fold one rank's report that its state is off the slots."""
        for left in list(self.state.lingering):
            if left.grant.job == event.rank.job and left.grant.token == event.token:
                prepared.note_declined(self.state, left)
                left.dirty_ranks = [rank for rank in left.dirty_ranks if rank != event.rank.rank]
                if not left.dirty_ranks:
                    self.state.lingering.remove(left)
                    self._recount()

    def preparing(self, command: PrepareSlot) -> None:
        """Fold the demand to restore state ahead of a permit: it lingers from now on."""
        self.state.lingering.append(prepared.lingering(command))
        self._count_lingering()

    def slot_prepared(self, event: SlotPrepared) -> None:
        """Fold one rank's report that its state is there."""
        prepared.note_restored(self.state, event)

    def vacating(self, command: VacateSlot) -> None:
        """Fold the demand to vacate."""
        for left in self.state.lingering:
            if left.grant.job == command.job and left.grant.token == command.token:
                left.vacating = True

    def tail_reached(self, event: TailReached) -> None:
        """Fold that a rollout could go on on fewer slots: a true part of those that it holds."""
        permit = self._permit(event.rank.job, event.token)
        if permit is None or permit.tail is not None:
            return
        member, keeps = self.rings.members[event.rank.job], self.rings.mask(event.keep)
        held = member.holds & member.rollout.mask
        if permit.grant.phase is ROLLOUT and keeps and keeps | held == held != keeps:
            tails.reached(permit, event)
            self.later &= ~member.later
            self.keeping |= keeps
            member.keeps, member.later = keeps, 0

    def moving(self, command: MoveTail, at: int) -> None:
        """Fold the demand to move a tail."""
        tails.told(self._rollout_of(command.job), at)

    def tail_moved(self, event: TailMoved) -> None:
        """Fold one rank's report that it is off the slots that its tail does not keep."""
        permit = self._permit(event.rank.job, event.token)
        if permit is not None:
            self._rank_moved(permit, event.rank.rank)

    def widened(self, command: WidenPermit, at: int) -> None:
        """Fold that a permit has got slots that it was promised."""
        tails.widened(self._rollout_of(command.job), command, at)
        member, gained = self.rings.members[command.job], self.rings.mask(command.slots)
        self.held |= gained
        self.later &= ~gained
        member.holds |= gained
        member.later &= ~gained

    def last_turn_over(self, grant: GrantPermit) -> None:
        """Fold the end of a job's last phase in a pool: nobody needs to wait for it there, unless it asks again."""
        member = self.rings.members[grant.job]
        trains_yet = grant.phase is ROLLOUT and member.is_in_one_ring
        if not trains_yet and not any(one.job == grant.job and one.pool is grant.pool for one in self.state.waiting):
            self._leave(grant.job, member.seat(grant.pool).lanes)

    def silence(self, job: str) -> None:
        """Fold a job's end: it asks for nothing and has no turn. What it occupies stays until death is confirmed."""
        self.state.waiting = [request for request in self.state.waiting if request.job != job]
        self.state.stalled.pop(job, None)
        passes.forget(self.state, job)
        prepared.forget(self.state, job)
        self._leave(job)
        for left in self.state.lingering:
            if left.grant.job == job:
                left.vacating = True
        for permit in permits_of(self.state, job):
            tails.silenced(permit)
        self._recount()

    def forget(self, job: str, node: str) -> None:
        """Fold a confirmed death: nothing of the job is left on the node's slots."""
        for permit in permits_of(self.state, job):
            permit.grant = _without_node(permit.grant, node)
            if not permit.grant.slots:
                del self.state.permits[self.rings.members[job].seat(permit.grant.pool).key]
        for left in list(self.state.lingering):
            if left.grant.job == job:
                left.grant = _without_node(left.grant, node)
                if not left.grant.slots:
                    self.state.lingering.remove(left)
        self._recount()

    def remove(self, job: str) -> None:
        """Fold the end of an attempt: nothing of it is left, or it is on nodes that are gone."""
        for key in permit_keys(job):
            self.state.permits.pop(key, None)
        self.state.lingering = [left for left in self.state.lingering if left.grant.job != job]
        self.silence(job)

    def front_watched(self, job: str, since: int) -> None:
        """Fold the start of a front's patience."""
        self.state.stalled[job] = since

    def pass_turn(self, job: str, since: int) -> None:
        """Fold an expired patience: a front that has asked nothing since leaves the rings until it asks again."""
        if self.state.stalled.get(job) == since:
            del self.state.stalled[job]
            self._leave(job)

    def _leave(self, job: str, lanes: Iterable[Lane] | None = None) -> None:
        if self.state.turn_began is not None and self.state.lanes[0].ring[0] == job:
            self.state.turn_began = None
        self.rings.leave(job, lanes)

    def _end_quantum(self, request: PermitRequested, member: Member) -> None:
        """A front that asks after its quantum gives the turn to those who wait."""
        state, began = self.state, self.state.turn_began
        if began is None or state.lanes[0].ring[0] != request.job or request.at - began < state.group.quantum_us:
            return
        if any(one.job != request.job for one in state.waiting):
            self.rings.turn_taken(request.job, member.seat(request.pool))
            state.turn_began = None

    def _rank_moved(self, permit: Permit, rank: int) -> None:
        if tails.rank_moved(permit, rank):
            member = self.rings.members[permit.grant.job]
            left = member.holds & member.rollout.mask & ~member.keeps
            self.held &= ~left
            member.holds &= ~left

    def _give_back(self, permit: Permit) -> int:
        """Fold the end of a permit; the bits of the slots that it held."""
        member = self.rings.members[permit.grant.job]
        seat = member.seat(permit.grant.pool)
        del self.state.permits[seat.key]
        held = member.holds & seat.mask
        self.held &= ~held
        self.holding &= ~seat.bit
        member.holds &= ~held
        if permit.grant.phase is ROLLOUT:
            self.later &= ~member.later
            self.keeping &= ~member.keeps
            member.later = member.keeps = 0
        return held

    def _permit(self, job: str, token: Token) -> Permit | None:
        """The permit that a job holds under a token."""
        member = self.rings.members[job]
        for seat in (member.rollout, member.training):
            permit = self.state.permits.get(seat.key)
            if permit is not None and permit.grant.token == token:
                return permit
        return None

    def _rollout_of(self, job: str) -> Permit:
        """The permit of a rollout that is under way."""
        return self.state.permits[self.rings.members[job].rollout.key]

    def _leave_lingering(self, permit: Permit, held: int) -> None:
        """What lingered from the job's earlier phase on the same slots is the same state, now under a newer token."""
        grant, member = permit.grant, self.rings.members[permit.grant.job]
        if member.lingers:
            self.state.lingering = [
                left
                for left in self.state.lingering
                if left.grant.job != grant.job or (left.grant.pool is not grant.pool and not member.is_on_one_pool)
            ]
        lingers = member.lingers & ~member.seat(grant.pool).mask
        if permit.dirty_ranks:
            self.state.lingering.append(Lingering(grant, permit.dirty_ranks))
            lingers |= held
        member.lingers = lingers
        self.lingers = 0
        for other in self.rings.members.values():
            self.lingers |= other.lingers

    def _recount(self) -> None:
        """Work out anew what is derived from permits and requests. No slot is in two permits, so no bit is."""
        self.held = self.later = self.keeping = self.holding = 0
        for member in self.rings.members.values():
            member.holds = member.later = member.keeps = 0
        for permit in self.state.permits.values():
            if permit.grant.job not in self.rings.members:
                continue
            member = self.rings.members[permit.grant.job]
            member.holds |= self.rings.mask(permit.grant.slots)
            member.later |= self.rings.mask(permit.grant.later)
            member.keeps |= 0 if permit.tail is None else self.rings.mask(permit.tail.keep)
            self.holding |= member.seat(permit.grant.pool).bit
            self.held |= member.holds
            self.later |= member.later
            self.keeping |= member.keeps
        self._count_lingering()
        self._count_asking()

    def _count_lingering(self) -> None:
        self.lingers = 0
        for member in self.rings.members.values():
            member.lingers = 0
        for left in self.state.lingering:
            if (found := self.rings.members.get(left.grant.job)) is not None:
                found.lingers |= self.rings.mask_of(left.grant)
                self.lingers |= found.lingers

    def _count_asking(self) -> None:
        self.asking = 0
        for request in self.state.waiting:
            self.asking |= self.rings.members[request.job].bit


def _queue(waiting: list[PermitRequested], request: PermitRequested) -> None:
    """Put a request in its place: cold starts first, then the longest waiting."""
    place = len(waiting)
    if request.phase is LOADING or (place and waiting[-1].at >= request.at):
        while place and _urgency(waiting[place - 1]) > _urgency(request):
            place -= 1
    waiting.insert(place, request)


def _urgency(request: PermitRequested) -> tuple[bool, int, str]:
    return request.phase is not LOADING, request.at, request.job


def _without_node(grant: GrantPermit, node: str) -> GrantPermit:
    return msgspec.structs.replace(
        grant,
        slots=tuple(slot for slot in grant.slots if slot.node != node),
        later=tuple(slot for slot in grant.later if slot.node != node),
    )
