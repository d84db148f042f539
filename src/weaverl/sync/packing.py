"""Tensors into packed host bytes and out of them: contiguous, cast once, on the sending side."""

import zlib
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from weaverl.errors import WeightSyncError
from weaverl.sync.manifest import TensorEntry, packed_offsets

_NAN_DTYPES = frozenset(
    {torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2}
)


class NamedTensor:
    """A tensor with all of its names and the dtype in which it travels."""

    def __init__(self, names: Sequence[str], tensor: Tensor, cast_dtype: torch.dtype | None) -> None:
        self.tensor = tensor
        self.dtype = cast_dtype if cast_dtype is not None and _is_castable(tensor.dtype) else tensor.dtype
        self.entry = TensorEntry(
            names=tuple(names),
            shape=tuple(tensor.shape),
            dtype=str(self.dtype).removeprefix("torch."),
            nbytes=tensor.numel() * self.dtype.itemsize,
        )


def _is_castable(dtype: torch.dtype) -> bool:
    # One-byte floats are quantised: a cast would lose what their scales mean.
    return dtype.is_floating_point and dtype.itemsize > 1


def name_tensors(tensors: Mapping[str, Tensor], cast_dtype: torch.dtype | None = None) -> list[NamedTensor]:
    """Group names of the same tensor (same storage, offset, shape, strides, dtype); each tensor comes once.

    Raises WeightSyncError for a sharded tensor.
    """
    groups: dict[tuple[object, ...], tuple[list[str], Tensor]] = {}
    for name, tensor in tensors.items():
        if is_traceable_wrapper_subclass(tensor):
            raise WeightSyncError(
                f"{name} is a {type(tensor).__name__}, of which this rank has a part: gather the full tensor first"
            )
        key = (
            (tensor.untyped_storage()._cdata, tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype)
            if tensor.numel()
            else (id(tensor),)
        )
        groups.setdefault(key, ([], tensor))[0].append(name)
    return [NamedTensor(names, tensor, cast_dtype) for names, tensor in groups.values()]


def pack(
    named: Sequence[NamedTensor], view: Callable[[Tensor], Tensor], buffer: Tensor | None = None
) -> tuple[tuple[TensorEntry, ...], Tensor]:
    """Copy tensors to host memory as they travel: entries with checksums, and the packed bytes.

    ``view`` says where a tensor's bytes are now. ``buffer`` is used again if its length fits. Raises
    WeightSyncError for a tensor that holds NaN.
    """
    offsets, total = packed_offsets([item.entry for item in named])
    data = buffer if buffer is not None and buffer.numel() == total else torch.zeros(total, dtype=torch.uint8)
    entries = []
    for item, offset in zip(named, offsets, strict=True):
        source = view(item.tensor).detach().to(item.dtype)
        if item.dtype in _NAN_DTYPES and bool(torch.isnan(source).any()):
            raise WeightSyncError(f"{item.entry.name} holds NaN: these weights are not sent, the old version serves on")
        unpack(data, item.entry, offset).copy_(source)
        entries.append(
            TensorEntry(
                item.entry.names,
                item.entry.shape,
                item.entry.dtype,
                item.entry.nbytes,
                checksum(data, item.entry, offset),
            )
        )
    return tuple(entries), data


def unpack(data: Tensor, entry: TensorEntry, offset: int) -> Tensor:
    """One tensor as a contiguous view on packed bytes."""
    dtype: torch.dtype = getattr(torch, entry.dtype)
    return data[offset : offset + entry.nbytes].view(dtype).reshape(entry.shape)


def checksum(data: Tensor, entry: TensorEntry, offset: int) -> int:
    """CRC-32 of one tensor's packed bytes."""
    return zlib.crc32(data[offset : offset + entry.nbytes].numpy().data)


def damaged_tensor(data: Tensor, entries: Sequence[TensorEntry]) -> str | None:
    """Name of the first tensor whose bytes are not those that were sent."""
    offsets, _ = packed_offsets(entries)
    for entry, offset in zip(entries, offsets, strict=True):
        if checksum(data, entry, offset) != entry.checksum:
            return entry.name
    return None


def assign(target: Tensor, source: Tensor) -> None:
    """Copy values into a tensor whatever its strides; one that repeats values (stride 0) is written once."""
    for dimension, stride in enumerate(target.stride()):
        if stride == 0 and target.shape[dimension] > 1:
            target, source = target.narrow(dimension, 0, 1), source.narrow(dimension, 0, 1)
    target.copy_(source)
