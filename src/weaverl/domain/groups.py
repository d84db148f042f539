"""Where a job is pinned, and the co-execution group that it shares nodes with."""

from functools import lru_cache

import msgspec

from weaverl.domain.cluster import PoolKind, Slot
from weaverl.domain.jobs import PhaseKind


class Pin(msgspec.Struct, frozen=True, gc=False):
    """The slots of one job: fixed until it ends, so that its state can stay in the host memory of its nodes."""

    rollout: tuple[Slot, ...]
    training: tuple[Slot, ...]

    def slots(self, pool: PoolKind) -> tuple[Slot, ...]:
        """The slots in one pool."""
        return self.rollout if pool is PoolKind.ROLLOUT else self.training

    def nodes(self, pool: PoolKind) -> tuple[str, ...]:
        """Names of the nodes in one pool, each once, in slot order."""
        return _nodes(self.slots(pool))


@lru_cache(maxsize=4096)
def _nodes(slots: tuple[Slot, ...]) -> tuple[str, ...]:
    """Kept, since every weighing of a placement asks for it."""
    return tuple(dict.fromkeys(slot.node for slot in slots))


class Group(msgspec.Struct, frozen=True):
    """Nodes of both pools and the jobs pinned among them, in rotation order. Groups share no node.

    ``quantum_us`` above 0: whole jobs take turns of that length on all their slots at once, instead of phases
    (Gavel's time sharing). ``by_slack``: phases are granted as slots come free, in the order of what
    their jobs' promises leave room for, instead of in lockstep rounds.
    """

    name: str
    rollout_nodes: tuple[str, ...]
    training_nodes: tuple[str, ...]
    members: tuple[str, ...]
    quantum_us: int = 0
    by_slack: bool = False

    @property
    def nodes(self) -> tuple[str, ...]:
        """All nodes of the group."""
        return self.rollout_nodes + self.training_nodes


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """A running job's way to other slots: at the end of an iteration, through its checkpoint, as its next attempt.

    ``group`` is the one it joins; empty for one that is yet to come. ``saving_usd`` is what is expected to be saved,
    its own cost taken off. ``rescues`` is the job whose promise is in danger where it is, if that is why; such a move
    may cost something. So may one that makes room for a job that waits, ``makes_room_for``. ``paused_for``: it is a
    move to the queue, so that this job can start; then there is no group and no slot to go to. ``together``: it pays
    together with the moves of these jobs, its own among them; then ``saving_usd`` is that of all, and it waits for a
    boundary at which its place is to be had. ``joins`` is the one of them that opens the group that it joins.
    """

    job: str
    attempt: int
    group: str
    pin: Pin
    saving_usd: float = 0.0
    rescues: str = ""
    makes_room_for: str = ""
    paused_for: str = ""
    joins: str = ""
    together: tuple[str, ...] = ()

    @property
    def is_certain(self) -> bool:
        """Whether its job goes at its next boundary, if it goes: it does not wait for others."""
        return not self.together


def pool_of(phase: PhaseKind) -> PoolKind:
    """The pool whose slots a phase holds; a sync holds none and has no pool."""
    assert phase in (PhaseKind.ROLLOUT, PhaseKind.TRAINING), phase
    return PoolKind.ROLLOUT if phase is PhaseKind.ROLLOUT else PoolKind.TRAINING
