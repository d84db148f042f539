"""State that was restored ahead of a permit: it lingers as after a phase, and everything that holds of that does of it.

It counts as being on the slots from the moment its owner is told to restore it, and until each rank has said that it
is off them (``SlotVacated``) or its death is confirmed: so nobody is granted a slot that a slow or frozen process may
still restore to. The job's next permit in the pool takes the state over.
"""

from weaverl.domain.cluster import PoolKind
from weaverl.domain.commands import GrantPermit, PrepareSlot
from weaverl.domain.events import SlotPrepared
from weaverl.scheduling.rotation_state import ROLLOUT, TRAINING, Lingering, RotationState, key_of

NO_ITERATION = -1


def lingering(command: PrepareSlot) -> Lingering:
    """The state that a job is told to restore."""
    grant = GrantPermit(
        job=command.job,
        attempt=command.attempt,
        role=command.role,
        token=command.token,
        phase=ROLLOUT if command.pool is PoolKind.ROLLOUT else TRAINING,
        pool=command.pool,
        iteration=NO_ITERATION,
        slots=command.slots,
        ranks=command.ranks,
        vacate=False,
    )
    ranks = list(range(command.ranks))
    return Lingering(grant, ranks, restoring=list(ranks))


def note_restored(state: RotationState, event: SlotPrepared) -> None:
    """Fold a rank's word that its state is there. A stale token changes nothing."""
    for left in state.lingering:
        if left.grant.job == event.rank.job and left.grant.token == event.token and left.restoring is not None:
            left.restoring = [rank for rank in left.restoring if rank != event.rank.rank]


def note_declined(state: RotationState, left: Lingering) -> None:
    """Fold that a rank is off slots without having been told: it could not restore, and is not asked again soon."""
    if left.restoring is not None and not left.vacating:
        key = key_of(left.grant.job, left.grant.pool)
        if key not in state.declined:
            state.declined.append(key)


def used(state: RotationState, grant: GrantPermit) -> None:
    """Fold a grant: what was restored for it is the permit's own. Who asked will be told to restore the next time."""
    key = key_of(grant.job, grant.pool)
    state.roles[key] = grant.role
    if key in state.declined:
        state.declined.remove(key)
    if any(left.restoring is not None for left in state.lingering):
        state.lingering = [left for left in state.lingering if not _is_for(left, grant)]


def forget(state: RotationState, job: str) -> None:
    """Fold that a job asks for nothing any more."""
    for pool in PoolKind:
        key = key_of(job, pool)
        state.roles.pop(key, None)
        if key in state.declined:
            state.declined.remove(key)


def _is_for(left: Lingering, grant: GrantPermit) -> bool:
    return left.restoring is not None and (left.grant.job, left.grant.pool) == (grant.job, grant.pool)
