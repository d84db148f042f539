"""All ranks that keep checkpoints resume from the same iteration: the newest that is whole at each of them.

Every rank says what it has, hears what the others have, and comes to the same iteration by the same rule. Under a
controller a rank says so in the store before it registers, and no permit is granted before all have registered: so
nobody waits for another while it holds slots. Without one the ranks of torch's process group tell each other.
"""

import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import msgspec

from weaverl.channel import names
from weaverl.channel.sender import Sender
from weaverl.channel.store import Put, Store
from weaverl.domain.events import RankId
from weaverl.errors import CheckpointError
from weaverl.runtime.checkpoint_files import Found, find_checkpoints
from weaverl.runtime.environment import RankEnvironment

PATIENCE_SECONDS = 600.0
"""How long a rank waits until all others have said what they have."""

_POLL_SECONDS = 0.05

Role = str
AllFound = Mapping[tuple[Role, int], Found | None]
"""What each rank of a job has, by role and number; None where there is no folder."""


def agreed_iteration(found: AllFound) -> int | None:
    """The iteration that all resume from, None for the start.

    Where a rank of a role has none while others do, as when it was killed before its first, all begin at the start. A
    role of which no rank has any keeps none and has no say; while the others have but their first it may have been
    about to write its own, if it resumed before (its folders are there), so then too all begin at the start.

    Raises CheckpointError if all have some and none is whole everywhere.
    """
    concerned = _concerned(found)
    ever = frozenset[int]().union(*(one.all for one in concerned.values()))
    is_new = len(ever) == 1 and any(one is not None and rank not in concerned for rank, one in found.items())
    if is_new or any(not one.all for one in concerned.values()):
        return None
    everywhere = [{*one.whole, *one.unread} for one in concerned.values()]
    common = set.intersection(*everywhere) if everywhere else set()
    if everywhere and not common:
        raise CheckpointError(
            f"no checkpoint is whole at all ranks ({describe_found(found)}): to begin at the start, remove them"
        )
    return max(common, default=None)


def describe_found(found: AllFound) -> str:
    """What every rank has, in a line."""
    return "; ".join(f"{role}-{rank} has {one}" for (role, rank), one in sorted(_concerned(found).items()))


def _concerned(found: AllFound) -> dict[tuple[Role, int], Found]:
    roles = {role for (role, _), one in found.items() if one is not None and one.all}
    return {(role, rank): one or Found() for (role, rank), one in found.items() if role in roles}


class StoreExchange:
    """Ranks that agents started tell each other through the cluster's store."""

    def __init__(self, store: Store, environment: RankEnvironment) -> None:
        self._store = store
        self._environment = environment
        self._ranks = tuple(
            RankId(environment.rank.job, environment.rank.attempt, role, number)
            for role, size in environment.role_sizes.items()
            for number in range(size)
        )
        self._is_asked = False

    @property
    def is_alone(self) -> bool:
        """Whether this is the only rank of its job."""
        return len(self._ranks) == 1

    def publish(self) -> None:
        """Say what this rank has; to be called before it registers."""
        folder = self._environment.checkpoint_folder
        if folder is None or self.is_alone:
            return
        found = msgspec.json.encode(find_checkpoints(folder))
        rank = names.rank_name(self._environment.rank)
        Sender(self._store, rank).commit([Put(names.checkpoints(self._environment.rank), found)])

    def gather(self, check: Callable[[], None], patience_seconds: float = PATIENCE_SECONDS) -> AllFound:
        """What all ranks of the attempt have. ``check`` raises once the attempt is given up, as when a rank died.

        Raises CheckpointError with the ranks that say nothing for longer than the patience, and when it is asked twice:
        what was said at the start need not be true any more.
        """
        if self._is_asked:
            raise CheckpointError("weave.resume was called a second time in this process: call it once, at its start")
        self._is_asked = True
        deadline = time.monotonic() + patience_seconds
        said: dict[RankId, bytes] = {}
        while True:
            said |= self._said_by([rank for rank in self._ranks if rank not in said])
            silent = [f"{rank.role}-{rank.rank}" for rank in self._ranks if rank not in said]
            if not silent:
                break
            check()
            if time.monotonic() > deadline:
                problem = f"{', '.join(silent)} did not say in {patience_seconds:.0f} s what checkpoints it has"
                raise CheckpointError(f"{problem}: see that every process calls weave.init()")
            time.sleep(_POLL_SECONDS)
        return {(rank.role, rank.rank): msgspec.json.decode(one, type=Found | None) for rank, one in said.items()}

    def _said_by(self, ranks: list[RankId]) -> dict[RankId, bytes]:
        answers = ((rank, self._store.get(names.checkpoints(rank))) for rank in ranks)
        return {rank: answer for rank, answer in answers if answer is not None}


def gather_in_process_group(role: Role, rank: int, own: Found, patience_seconds: float = PATIENCE_SECONDS) -> AllFound:
    """What all ranks of torch's default process group have; each of them must call this.

    Raises CheckpointError if one has died, or stays away for longer than the patience (or the group's own, for gloo).
    """
    import torch.distributed as dist

    gathered: list[Any] = [None] * dist.get_world_size()
    try:
        # Over the group's own connections the death of a peer shows at once; others cannot carry host memory.
        is_gloo = dist.get_backend() == "gloo"
        patience = timedelta(seconds=patience_seconds)
        group = dist.group.WORLD if is_gloo else dist.new_group(backend="gloo", timeout=patience)
        dist.all_gather_object(gathered, (role, rank, own.whole, own.unread, own.damaged), group=group)
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        raise CheckpointError(
            f"the ranks could not agree on a checkpoint ({reason}): see that all of them live and call weave.resume"
        ) from error
    return {(role, rank): Found(*found) for role, rank, *found in gathered}
