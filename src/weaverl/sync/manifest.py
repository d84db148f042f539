"""What a weight sync carries, agreed before any byte moves: names, shapes, dtypes, version, checksums."""

from collections.abc import Iterable, Sequence

import msgspec

from weaverl.errors import WeightSyncError

ALIGNMENT = 64
"""Tensors begin at multiples of this in the packed bytes, enough for every dtype."""

_MOST_NAMES = 8

_EXACT_IN = {"bfloat16": ("float32", "float64"), "float16": ("float32", "float64"), "float32": ("float64",)}
"""Dtypes that hold every value of another: a receiver may keep its own."""


class TensorEntry(msgspec.Struct, frozen=True):
    """One tensor. ``names`` are all names of it: a tied tensor travels once and has several."""

    names: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    checksum: int = 0

    @property
    def name(self) -> str:
        """Its first name."""
        return self.names[0]


class Manifest(msgspec.Struct, frozen=True):
    """All tensors of one version, in the order in which they are packed."""

    version: int
    entries: tuple[TensorEntry, ...]


def packed_offsets(entries: Iterable[TensorEntry]) -> tuple[list[int], int]:
    """Where each tensor begins in the packed bytes, and the length of all."""
    offsets, total = [], 0
    for entry in entries:
        offsets.append(total)
        total += -(-entry.nbytes // ALIGNMENT) * ALIGNMENT
    return offsets, total


def entry_at(entries: Sequence[TensorEntry], offset: int) -> str:
    """Name of the tensor that a byte of the packed bytes belongs to."""
    offsets, _ = packed_offsets(entries)
    index = max((i for i, begin in enumerate(offsets) if begin <= offset), default=0)
    return entries[index].name if entries else "(no tensor)"


def match_entries(sent: Sequence[TensorEntry], wanted: Sequence[TensorEntry]) -> list[int]:
    """For each wanted tensor the index of the sent one that fills it.

    A tied tensor of the sender fills several untied ones; a tied one of the receiver may be filled from several
    sent ones if they are equal; a receiver's wider float dtype takes a narrower one, whose values it holds exactly.
    Raises WeightSyncError that lists all names missing, unexpected and differing.
    """
    by_name = {name: index for index, entry in enumerate(sent) for name in entry.names}
    sources = [sorted({by_name[name] for name in entry.names if name in by_name}) for entry in wanted]
    known = {name for entry in wanted for name in entry.names}
    missing = [entry.name for entry, found in zip(wanted, sources, strict=True) if not found]
    unexpected = [entry.name for entry in sent if known.isdisjoint(entry.names)]
    differing = [
        difference
        for entry, found in zip(wanted, sources, strict=True)
        if found and (difference := _difference([sent[index] for index in found], entry))
    ]
    if missing or unexpected or differing:
        raise WeightSyncError(
            f"tensors sent and wanted do not agree: missing {_listing(missing)}; unexpected {_listing(unexpected)}; "
            f"differing {_listing(differing)}; nothing was applied"
        )
    return [found[0] for found in sources]


def _difference(found: Sequence[TensorEntry], wanted: TensorEntry) -> str:
    first = found[0]
    if first.shape != wanted.shape or wanted.dtype not in (first.dtype, *_EXACT_IN.get(first.dtype, ())):
        sent = f"{first.dtype} {list(first.shape)}"
        return f"{wanted.name} (sent {sent}, wanted {wanted.dtype} {list(wanted.shape)})"
    for other in found[1:]:
        if (other.shape, other.dtype, other.checksum) != (first.shape, first.dtype, first.checksum):
            return f"{wanted.name} (tied here, but the sender has different {first.name} and {other.name})"
    return ""


def _listing(names: Sequence[str]) -> str:
    if not names:
        return "none"
    rest = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {rest} more" if rest > 0 else "")
