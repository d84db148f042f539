"""Host memory that a role's state lies in while it is off its device: one arena, kept from cycle to cycle."""

import mmap
import resource
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from weaverl.errors import HostMemoryError

_GRANULE = 2 << 20


class HostArena:
    """One anonymous mapping, grown when it must and never given back while the role lives.

    Its pages are the cached state that admission reserved host memory for; keeping them makes each save after
    the first a copy into warm memory. With ``pin`` the arena is page-locked, so that copies from a device are
    asynchronous; if that is refused it is pageable, with one warning.
    """

    def __init__(
        self, pin: Callable[[Tensor], bool] | None = None, unpin: Callable[[Tensor], None] | None = None
    ) -> None:
        self._pin = pin
        self._unpin = unpin
        self._pinned: Tensor | None = None
        self._mapping: mmap.mmap | None = None

    @property
    def capacity(self) -> int:
        """Bytes of the mapping."""
        return len(self._mapping) if self._mapping is not None else 0

    def ensure(self, nbytes: int) -> None:
        """Make room for so many bytes; what was in the arena is lost if it must grow. HostMemoryError if it cannot."""
        if nbytes <= self.capacity:
            return
        self.close()
        capacity = -(-nbytes // _GRANULE) * _GRANULE
        try:
            self._mapping = mmap.mmap(-1, capacity, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except (OSError, ValueError, OverflowError) as error:
            raise HostMemoryError(f"no {capacity} bytes of host memory to save state in: {error}") from error
        if hasattr(mmap, "MADV_HUGEPAGE"):
            self._advise_huge_pages(self._mapping)
        self._lock_pages()

    def slice(self, offset: int, nbytes: int) -> Tensor:
        """Part of the arena as a uint8 tensor with a storage of its own."""
        assert self._mapping is not None, "an empty arena has no slices"
        return torch.frombuffer(self._mapping, dtype=torch.uint8, count=nbytes, offset=offset)

    def close(self) -> None:
        """Give the pages back once no slice of them is left."""
        if self._pinned is not None and self._unpin is not None:
            self._unpin(self._pinned)
        self._pinned = None
        self._mapping = None

    def _advise_huge_pages(self, mapping: mmap.mmap) -> None:
        try:
            mapping.madvise(mmap.MADV_HUGEPAGE)
        except OSError:
            return  # a kernel without them serves small pages

    def _lock_pages(self) -> None:
        if self._pin is None:
            return
        whole = self.slice(0, self.capacity)
        if self._pin(whole):
            self._pinned = whole
            return
        self._pin = None
        soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
        limit = "unlimited" if soft == resource.RLIM_INFINITY else f"{soft} bytes"
        warnings.warn(
            f"host memory could not be page-locked: needs {self.capacity} bytes, the memlock limit of this process "
            f"is {limit}; copies go through pageable memory and are slower (raise `ulimit -l`)",
            RuntimeWarning,
            stacklevel=2,
        )


def register_with_cuda(memory: Tensor) -> bool:
    """Page-lock host memory in place for CUDA; False if the driver refuses.

    torch's own pinned allocator rounds up to a power of two, which host memory admission could not account for.
    """
    return int(_cudart().cudaHostRegister(memory.data_ptr(), memory.nbytes, 0)) == 0


def unregister_with_cuda(memory: Tensor) -> None:
    """Undo ``register_with_cuda``."""
    _cudart().cudaHostUnregister(memory.data_ptr())


def _cudart() -> Any:
    return torch.cuda.cudart()  # type: ignore[no-untyped-call]
