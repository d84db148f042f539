"""Where the ranks of all roles of a job meet. The agent bound the port, so nobody can take it in between."""

from datetime import timedelta
from functools import cached_property

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, TCPStore

from weaverl.errors import PhaseError
from weaverl.runtime.environment import RankEnvironment
from weaverl.sync.flat import FlatSync

_PATIENCE = timedelta(hours=1)
"""A rank that waits for another waits for its permit too."""


class Meeting:
    """The meeting of one attempt: a torch store that rank 0 of the first role serves, and what is built on it."""

    def __init__(self, environment: RankEnvironment) -> None:
        self._environment = environment

    @property
    def world_size(self) -> int:
        """Ranks of all roles together."""
        return sum(self._environment.role_sizes.values())

    @property
    def rank(self) -> int:
        """This process among all roles, in the order of the job file."""
        return self.rank_of(self._environment.rank.role, self._environment.rank.rank)

    def rank_of(self, role: str, rank: int = 0) -> int:
        """A rank of a role among all roles."""
        before = 0
        for name, size in self._environment.role_sizes.items():
            if name == role:
                return before + rank
            before += size
        raise PhaseError(f"the job has no role {role!r}: it has {', '.join(self._environment.role_sizes)}")

    @cached_property
    def store(self) -> TCPStore:
        """A key-value store that all ranks share."""
        host, port = self._environment.master
        descriptor = self._environment.master_fd
        return TCPStore(
            host,
            port,
            is_master=descriptor is not None,
            wait_for_workers=False,
            timeout=_PATIENCE,
            master_listen_fd=descriptor,
        )

    def join_process_group(self, backend: str = "gloo") -> None:
        """Make the default process group of torch.distributed out of all ranks of all roles."""
        dist.init_process_group(
            backend,
            store=PrefixStore("weaverl/world", self.store),
            rank=self.rank,
            world_size=self.world_size,
            timeout=_PATIENCE,
        )

    def flat_sync(self) -> FlatSync:
        """The weight sync of training rank 0 with all rollout ranks. PhaseError in any other rank."""
        rank = self._environment.rank
        if rank.role != "rollout" and (rank.role, rank.rank) != ("training", 0):
            raise PhaseError(f"{rank} has no part in the weight sync: push in training rank 0, pull in rollout ranks")
        place = rank.rank + 1 if rank.role == "rollout" else 0
        store = PrefixStore("weaverl/sync", self.store)
        return FlatSync(
            store, place, self._environment.role_sizes["rollout"], patience_seconds=_PATIENCE.total_seconds()
        )
