"""The state of one role: on its slots, or saved in host memory, whole in either place."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from torch.utils.hooks import RemovableHandle

from weaverl.domain.cluster import Slot
from weaverl.errors import DeviceMemoryError, HostMemoryError
from weaverl.runtime.device_memory import DeviceMemory
from weaverl.runtime.guards import guard_use
from weaverl.runtime.host_arena import HostArena, register_with_cuda, unregister_with_cuda
from weaverl.runtime.storages import (
    ALIGNMENT,
    Block,
    collect_blocks,
    copy_blocks,
    empty_storages,
    fill_storages,
    own_memory,
    refill_elsewhere,
    refuse_overlaps,
    storage_key,
    view_on,
)
from weaverl.runtime.tensors import Found, walk_state

_numbers = count(1)


class Move(NamedTuple):
    """What was moved, and how long it took."""

    bytes: int
    microseconds: int


class Residency:
    """Moves a role's state between its slots and host memory: whole storages, all or nothing.

    Args:
        memory: ledger of the host's device memory; ``save`` releases there, ``restore`` reserves first.
        accelerator: kind of the slots' devices. Storages of other kinds stay where they are: on a ``cuda`` node
            host tensors (such as AdamW's ``step``) are in host memory already, on a ``cpu`` node all state moves.
        host_limit_bytes: what the job reserved of host memory for cached state; a save beyond it is refused.

    While state is away its storages are empty: modules and optimizers refuse use then, and reading a bare tensor is
    undefined, except through ``reading``.
    Phase code and the runtime's own thread both take ``lock``.
    """

    def __init__(
        self, memory: DeviceMemory | None = None, *, accelerator: str = "cpu", host_limit_bytes: int | None = None
    ) -> None:
        self.lock = threading.RLock()
        self._memory = memory
        self._accelerator = accelerator
        self._host_limit_bytes = host_limit_bytes
        self._arena = self._new_arena()
        self._states: list[tuple[str, object]] = []
        self._away: dict[int, Block] | None = None
        self._guards: list[RemovableHandle] = []
        self._purpose = f"state-{next(_numbers)}"

    @property
    def resident(self) -> bool:
        """Whether state is on its slots."""
        return self._away is None

    @property
    def host_bytes(self) -> int:
        """Host memory that the arena takes."""
        return self._arena.capacity

    def add(self, state: object, name: str = "state") -> None:
        """Make something part of the state: a module, optimizer, tensor, container or object that has such.

        Tensors are looked for anew at each save, so what is created later moves too. Weights on memory that cannot
        be freed (mapped from a file, as many loaders do) are put on memory of their own here, before autograd
        or anybody else refers to them. Raises ResidencyError, and adds nothing, if that cannot be done.
        """
        with self.lock:
            if not any(known is state for _, known in self._states):
                self._own_memory(self._blocks(walk_state(state, name)))
                self._states.append((name, state))

    def nbytes(self) -> int:
        """Bytes of the state, wherever it is: each storage once."""
        with self.lock:
            blocks = self._blocks(self._found()) if self._away is None else list(self._away.values())
            return sum(block.nbytes for block in blocks)

    def settle(self, slots: Sequence[Slot]) -> int:
        """Charge resident state, as large as it is now, to slots, and return its bytes.

        To be called when state was built or has grown; DeviceMemoryError, and the charge stays as it was, if the
        budget does not hold it.
        """
        with self.lock:
            assert self.resident, "state that is away takes no device memory"
            nbytes = self.nbytes()
            self._charge(_shares(nbytes, slots))
            return nbytes

    def save(self) -> Move:
        """Move state to host memory and free its device memory; if it is away already, what was added since.

        Raises ResidencyError or HostMemoryError; state is then where it was.
        """
        with self.lock:
            started = time.perf_counter_ns()
            found = self._found()
            away = self._away or {}
            blocks = [block for block in self._blocks(found) if block.key not in away]
            if blocks or self.resident:
                self._own_memory(blocks)
                self._copy_to_host(list(away.values()), blocks)
                self._leave(blocks, found)
            self._charge({})
            return _move(blocks, started) if blocks else Move(0, 0)

    def restore(self, slots: Sequence[Slot] = (), devices: Mapping[torch.device, torch.device] | None = None) -> Move:
        """Bring state back from host memory onto slots, reserving their device memory first.

        ``devices`` says where state of one device goes if its slot is another device of this process. State that
        is resident follows to the slots too. Raises DeviceMemoryError or ResidencyError; state is then where it was.
        """
        with self.lock:
            moves = {old: new for old, new in (devices or {}).items() if old != new}
            if self.resident and not moves:
                self.settle(slots)
                return Move(0, 0)
            started = time.perf_counter_ns()
            self.save()
            assert self._away is not None
            blocks = list(self._away.values())
            self._charge(_shares(sum(block.nbytes for block in blocks), slots))
            try:
                self._return(blocks, moves)
            except torch.OutOfMemoryError as error:
                raise DeviceMemoryError(f"no room on the device for state that comes back: {error}") from error
            self._remove_guards()
            return _move(blocks, started)

    def host_view(self, tensor: Tensor) -> Tensor:
        """The tensor itself if it has its bytes; a tensor of the same layout on the host copy if they are away.

        Writing to the host copy changes what the next restore brings back. Valid while ``lock`` is held.
        """
        if self._away is None:
            return tensor.detach()
        if is_traceable_wrapper_subclass(tensor):
            return self._wrapper_view(tensor)
        block = self._away.get(storage_key(tensor.untyped_storage()))
        if block is None:
            return tensor.detach()
        assert block.host is not None, block.name
        return view_on(block.host.untyped_storage(), tensor)

    def _wrapper_view(self, tensor: Any) -> Tensor:
        names, context = tensor.__tensor_flatten__()
        inner = {name: getattr(tensor, name) for name in names}
        inner = {name: self.host_view(item) if isinstance(item, Tensor) else item for name, item in inner.items()}
        rebuilt: Tensor = type(tensor).__tensor_unflatten__(inner, context, tensor.size(), tensor.stride())
        return rebuilt

    @contextmanager
    def reading(self) -> Iterator[Callable[[Tensor], Tensor]]:
        """Hold state where it is and give access to its tensors there (``host_view``), without any device."""
        with self.lock:
            yield self.host_view

    def close(self) -> None:
        """Give back device memory accounted and host memory; the state must not be away."""
        with self.lock:
            assert self.resident, "closing would lose state that is away"
            self._charge({})
            self._arena.close()

    def _found(self) -> list[Found]:
        found = [item for name, state in self._states for item in walk_state(state, name)]
        return list({id(item.value): item for item in reversed(found)}.values())[::-1]

    def _blocks(self, found: list[Found]) -> list[Block]:
        return collect_blocks(found, self._accelerator)

    def _own_memory(self, blocks: list[Block]) -> None:
        refuse_overlaps(blocks)
        for block in blocks:
            own_memory(block)

    def _copy_to_host(self, away: list[Block], blocks: list[Block]) -> None:
        arena = self._new_arena() if away else self._arena
        together = [*away, *blocks]
        pieces = self._reserve_host(arena, together)
        for block, piece in zip(away, pieces, strict=False):
            assert block.host is not None, block.name
            piece.copy_(block.host)
        for block, piece in zip(together, pieces, strict=True):
            block.host = piece
        if arena is not self._arena:
            self._arena.close()
            self._arena = arena
        copy_blocks(blocks, to_host=True)

    def _reserve_host(self, arena: HostArena, blocks: Sequence[Block]) -> list[Tensor]:
        offsets, total = [], 0
        for block in blocks:
            offsets.append(total)
            total += -(-block.nbytes // ALIGNMENT) * ALIGNMENT
            if self._host_limit_bytes is not None and total > self._host_limit_bytes:
                raise HostMemoryError(
                    f"{block.name} ({block.nbytes} bytes) does not fit: saving the state needs more than the "
                    f"{self._host_limit_bytes} bytes of host memory reserved; raise the job's host_memory"
                )
        arena.ensure(total)
        return [arena.slice(offset, block.nbytes) for block, offset in zip(blocks, offsets, strict=True)]

    def _new_arena(self) -> HostArena:
        if self._accelerator == "cuda":
            return HostArena(register_with_cuda, unregister_with_cuda)
        return HostArena()

    def _leave(self, blocks: list[Block], found: list[Found]) -> None:
        before = self._away
        try:
            self._away = {**(before or {}), **{block.key: block for block in blocks}}
            self._guards += guard_use(found, lambda: self.resident)
            empty_storages(blocks)
        except BaseException:  # also a signal in the middle
            fill_storages([block for block in blocks if not block.storage.nbytes()])
            self._away = before
            raise

    def _return(self, blocks: list[Block], moves: dict[torch.device, torch.device]) -> None:
        try:
            fill_storages([block for block in blocks if block.device not in moves])
            refill_elsewhere([block for block in blocks if block.device in moves], moves)
            self._away = None
        except BaseException:  # also a signal in the middle
            self._away = {block.key: block for block in blocks}
            empty_storages(blocks)
            self._charge({})
            raise

    def _remove_guards(self) -> None:
        # Those left over by an interruption do no harm: they ask whether state is resident.
        while self._guards:
            self._guards.pop().remove()

    def _charge(self, wanted: dict[Slot, int]) -> None:
        if self._memory is not None:
            self._memory.hold(self._purpose, wanted)


def _shares(nbytes: int, slots: Sequence[Slot]) -> dict[Slot, int]:
    """Bytes over several slots: evenly, the rest on the first."""
    if not slots:
        return {}
    share, rest = divmod(nbytes, len(slots))
    return {slot: share + (rest if index == 0 else 0) for index, slot in enumerate(slots)}


def _move(blocks: Sequence[Block], started: int) -> Move:
    return Move(sum(block.nbytes for block in blocks), (time.perf_counter_ns() - started) // 1000)
