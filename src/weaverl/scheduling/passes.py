"""How often requests in a group by slack were passed: slots that they wait for were granted to a younger request."""

from collections.abc import Mapping

from weaverl.domain.cluster import PoolKind
from weaverl.domain.commands import GrantPermit
from weaverl.scheduling.rings import Member
from weaverl.scheduling.rotation_state import RotationState, is_answered, key_of


def count(state: RotationState, members: Mapping[str, Member], holding: int, grant: GrantPermit) -> None:
    """Fold that all who could have been granted, and asked before the one that is, are passed once more."""
    mask = members[grant.job].seat(grant.pool).mask
    state.passed.pop(key_of(grant.job, grant.pool), None)
    for one in state.waiting:
        if one.job == grant.job and is_answered(one, grant):
            break
        other = members[one.job]
        if one.job != grant.job and other.seat(one.pool).mask & mask and not holding & other.seat(one.pool).bit:
            key = key_of(one.job, one.pool)
            state.passed[key] = state.passed.get(key, 0) + 1


def forget(state: RotationState, job: str) -> None:
    """Fold that a job waits for nothing any more."""
    for pool in PoolKind:
        state.passed.pop(key_of(job, pool), None)
