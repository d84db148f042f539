"""Whole storages: what a role's tensors lie on, and how the bytes get to host memory and back.

A storage is emptied and filled in place, so every tensor, view and alias on it, known or not, stays what it is.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import TracebackType
from typing import Self

import torch
from torch import Tensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from weaverl.errors import ResidencyError
from weaverl.runtime.tensors import Found

ALIGNMENT = 64
"""Blocks begin at multiples of this in host memory, enough for every dtype."""


@dataclass(slots=True)
class Block:
    """One storage with the tensors found on it, and the bytes that it has in host memory while it is away."""

    name: str
    storage: torch.UntypedStorage
    nbytes: int
    tensors: list[Tensor]
    host: Tensor | None = None

    @property
    def key(self) -> int:
        """Identity of the storage; it does not change when the storage is emptied."""
        return storage_key(self.storage)

    @property
    def device(self) -> torch.device:
        """Where the storage is, or was before it was emptied."""
        return torch.device(self.storage.device)


def storage_key(storage: torch.UntypedStorage) -> int:
    """Identity of a storage, the same for all tensors on it."""
    return int(storage._cdata)


def collect_blocks(found: Iterable[Found], accelerator: str) -> list[Block]:
    """The storages of one kind of device under the tensors, each once, in the order found.

    Raises ResidencyError for a tensor whose bytes cannot be reached through a plain storage.
    """
    blocks: dict[int, Block] = {}
    for name, tensor in found:
        if not isinstance(tensor, Tensor) or tensor.device.type != accelerator or _is_shell(tensor):
            continue
        storage = _storage_of(name, tensor)
        block = blocks.get(storage_key(storage))
        if block is not None:
            block.tensors.append(tensor)
        elif storage.nbytes():
            blocks[storage_key(storage)] = Block(name, storage, storage.nbytes(), [tensor])
    return list(blocks.values())


def _is_shell(tensor: Tensor) -> bool:
    return tensor.layout is torch.sparse_coo or is_traceable_wrapper_subclass(tensor)


def _storage_of(name: str, tensor: Tensor) -> torch.UntypedStorage:
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError) as error:
        raise ResidencyError(
            f"{name} ({type(tensor).__name__}, {tensor.layout}) has no plain storage and cannot be moved: "
            "keep it out of the state, or convert it to a dense tensor"
        ) from error


def storage_bytes(storage: torch.UntypedStorage) -> Tensor:
    """All bytes of a storage as a one-dimensional uint8 tensor on it."""
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def view_on(storage: torch.UntypedStorage, like: Tensor) -> Tensor:
    """A tensor on ``storage`` with the offset, shape, stride and dtype of another."""
    empty = torch.empty(0, dtype=like.dtype, device=storage.device)
    return empty.set_(storage, like.storage_offset(), like.size(), like.stride())


def refuse_overlaps(blocks: Iterable[Block]) -> None:
    """ResidencyError if two storages share memory, as two tensors made from one numpy array do."""
    foreign = [block for block in blocks if not block.storage.resizable()]
    foreign.sort(key=lambda block: block.storage.data_ptr())
    for block, following in pairwise(foreign):
        if block.storage.data_ptr() + block.nbytes > following.storage.data_ptr():
            raise _immovable(block, f"shares memory with {following.name} through two storages")


def own_memory(block: Block) -> None:
    """Put a block on memory that can be freed, if it is not (a file mapping, a numpy array).

    All tensors on it must be known, since they are rebound; ResidencyError if there are others.
    """
    # torch calls every CUDA storage shared.
    if block.device.type == "cpu" and block.storage.is_shared():
        raise _immovable(block, "is shared with other processes")
    if block.storage.resizable():
        return
    fresh = torch.empty(block.nbytes, dtype=torch.uint8, device=block.device).untyped_storage()
    storage_bytes(fresh).copy_(storage_bytes(block.storage))
    rebind(block, fresh)


def rebind(block: Block, storage: torch.UntypedStorage) -> None:
    """Make all tensors of a block views of another storage. Objects and aliasing stay; all or nothing.

    Raises ResidencyError if somebody holds a tensor on the old storage that is not among the block's.
    """
    known = len(block.tensors) + 1
    if torch._C._storage_Use_Count(block.storage._cdata) > known:
        raise _immovable(block, "is also held by a tensor outside of the state")
    try:
        for tensor in block.tensors:
            tensor.data = view_on(storage, tensor)
    except BaseException as error:  # also a signal in the middle
        for tensor in block.tensors:
            tensor.data = view_on(block.storage, tensor)
        if isinstance(error, RuntimeError):
            raise _immovable(block, f"cannot be rebound ({error})") from error
        raise
    block.storage = storage


def _immovable(block: Block, why: str) -> ResidencyError:
    return ResidencyError(
        f"{block.name} ({block.nbytes} bytes) {why}, so its memory cannot be freed: clone() it before it "
        "becomes part of the state"
    )


def empty_storages(blocks: Sequence[Block]) -> None:
    """Free the memory of all blocks, whose bytes are in host memory."""
    for block in blocks:
        block.storage.resize_(0)
    for device in _cuda_devices(blocks):
        with torch.cuda.device(device):
            torch.cuda.empty_cache()


def fill_storages(blocks: Sequence[Block]) -> None:
    """Give all blocks their memory back and copy their bytes in.

    Raises ResidencyError that names the tensor and the bytes; some blocks may have memory then.
    """
    for block in blocks:
        try:
            block.storage.resize_(block.nbytes)
        except (RuntimeError, MemoryError) as error:
            raise ResidencyError(f"{block.name} ({block.nbytes} bytes) could not be restored: {error}") from error
    copy_blocks(blocks, to_host=False)


def refill_elsewhere(blocks: Sequence[Block], devices: dict[torch.device, torch.device]) -> None:
    """Restore blocks onto other devices of the same kind: new storages, all tensors rebound.

    On failure every tensor is on its old, empty storage and nothing was allocated.
    """
    done: list[tuple[Block, torch.UntypedStorage]] = []
    try:
        for block in blocks:
            old, fresh = block.storage, _allocate(block, devices[block.device])
            rebind(block, fresh)
            done.append((block, old))
        copy_blocks(blocks, to_host=False)
    except BaseException:  # also a signal in the middle
        for block, old in reversed(done):
            rebind(block, old)
        raise


def _allocate(block: Block, device: torch.device) -> torch.UntypedStorage:
    try:
        return torch.empty(block.nbytes, dtype=torch.uint8, device=device).untyped_storage()
    except RuntimeError as error:
        raise ResidencyError(f"{block.name} ({block.nbytes} bytes) does not fit on {device}: {error}") from error


def copy_blocks(blocks: Sequence[Block], *, to_host: bool) -> None:
    """Copy all blocks to host memory or back; every byte has arrived when this returns, else ResidencyError."""
    try:
        with _Copies(_cuda_devices(blocks)) as copies:
            for block in blocks:
                assert block.host is not None, block.name
                there = storage_bytes(block.storage)
                pair = (block.host, there) if to_host else (there, block.host)
                copies.copy(*pair, block.device)
    except RuntimeError as error:
        direction = "to" if to_host else "from"
        raise ResidencyError(f"{len(blocks)} storages could not be copied {direction} host memory: {error}") from error


def _cuda_devices(blocks: Iterable[Block]) -> list[torch.device]:
    return sorted({block.device for block in blocks if block.device.type == "cuda"}, key=str)


class _Copies:
    """Copies in flight: on CUDA asynchronous on one side stream a device, proved complete at the end."""

    def __init__(self, devices: Iterable[torch.device]) -> None:
        self._streams = {
            device: torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            for device in devices
        }

    def __enter__(self) -> Self:
        # Work of any other stream on these bytes, or on memory just handed out by the allocator, comes first.
        for device in self._streams:
            torch.cuda.synchronize(device)
        return self

    def copy(self, destination: Tensor, source: Tensor, device: torch.device) -> None:
        """Start one copy from or to a device."""
        stream = self._streams.get(device)
        if stream is None:
            destination.copy_(source)
            return
        with torch.cuda.stream(stream):
            destination.copy_(source, non_blocking=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for stream in self._streams.values():
            stream.synchronize()
