"""Bytes between the sender and the receivers of a sync: a gloo process group that can be closed and made anew."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Protocol

from torch import Tensor
from torch._C._distributed_c10d import PrefixStore, Store
from torch.distributed import ProcessGroupGloo

from weaverl.errors import WeightSyncError
from weaverl.sync.agreement import rank_name


class Link(Protocol):
    """One generation of connections. After an error it is closed and never used again."""

    def send(self, data: Tensor, ranks: Iterable[int]) -> None:
        """Send bytes to ranks; WeightSyncError names the first that does not take them in time."""

    def receive(self, data: Tensor) -> None:
        """Fill ``data`` with the next bytes from rank 0; WeightSyncError if they do not come in time."""

    def close(self) -> None:
        """Drop the connections, which wakes peers that wait on them."""


class GlooLink:
    """A gloo process group of its own, outside of torch.distributed's default group."""

    def __init__(self, store: Store, rank: int, size: int, generation: int, timeout_seconds: float) -> None:
        self._timeout = timedelta(seconds=timeout_seconds)
        own_keys = PrefixStore(f"link-{generation}", store)
        try:
            self._group: Any = ProcessGroupGloo(own_keys, rank, size, self._timeout)
        except RuntimeError as error:
            raise WeightSyncError(f"no connections between the {size} ranks of the sync: {error}") from error
        # The group closes its sockets when its last reference goes, pending works included: tracebacks keep
        # local variables alive, so works live here.
        self._works: dict[int, Any] = {}

    def send(self, data: Tensor, ranks: Iterable[int]) -> None:
        """Send bytes to ranks at the same time."""
        assert self._group is not None, "the link is closed"
        rank = 0
        try:
            for rank in ranks:
                self._works[rank] = self._group.send([data], rank, 0)
            for rank in self._works:
                self._works[rank].wait(self._timeout)
        except RuntimeError as error:
            raise WeightSyncError(f"{rank_name(rank)} takes no more bytes: {_first_line(error)}") from error
        self._works.clear()

    def receive(self, data: Tensor) -> None:
        """Fill ``data`` with the next bytes from rank 0."""
        assert self._group is not None, "the link is closed"
        try:
            self._works[0] = self._group.recv([data], 0, 0)
            self._works[0].wait(self._timeout)
        except RuntimeError as error:
            raise WeightSyncError(f"no more bytes come from {rank_name(0)}: {_first_line(error)}") from error
        self._works.clear()

    def close(self) -> None:
        """Drop the connections."""
        self._works.clear()
        self._group = None


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].partition(" This is typically")[0]
