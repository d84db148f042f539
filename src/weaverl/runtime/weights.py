"""Weights from the training role to the rollout role: ``push`` and ``pull``, on host memory, holding no device."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from weaverl.errors import UsageError, WeightSyncError
from weaverl.runtime.residency import Residency
from weaverl.sync.manifest import Manifest, TensorEntry, match_entries, packed_offsets
from weaverl.sync.packing import NamedTensor, assign, name_tensors, pack, unpack
from weaverl.sync.protocol import SyncStrategy

View = Callable[[Tensor], Tensor]


class SyncReport(NamedTuple):
    """What one sync moved, how long it took, and the version that is served after it."""

    bytes: int
    microseconds: int
    version: int


class Weights:
    """One role's end of the weight sync.

    Args:
        strategy: carries packed tensors from push to pull.
        residency: of the state that the models belong to; away, they are read and written in host memory. Without
            one, tensors are used as they are.
        check: called before each side effect; it raises FencedError if a newer holder has taken over.
        cast_dtype: dtype that floating tensors travel in, cast on the sending side; None sends them as they are.
        on_push: is told of each push that succeeded.
    """

    def __init__(
        self,
        strategy: SyncStrategy,
        residency: Residency | None = None,
        check: Callable[[], None] = lambda: None,
        *,
        cast_dtype: torch.dtype | None = None,
        on_push: Callable[[SyncReport], None] = lambda report: None,
    ) -> None:
        self._strategy = strategy
        self._residency = residency
        self._check = check
        self._cast_dtype = cast_dtype
        self._on_push = on_push
        self._staging: Tensor | None = None
        self.version = 0

    def push(self, model: object, version: int | None = None) -> SyncReport:
        """Send a model's weights as a new version (one more than the last, if not given).

        Returns when every rollout rank has them; WeightSyncError, and the old version serves on, otherwise. State is
        only held still while it is copied to the staging memory, not while bytes travel.
        """
        started = time.perf_counter_ns()
        version = self.version + 1 if version is None else version
        named = name_tensors(model_tensors(model), self._cast_dtype)
        self._check()
        with self._reading() as view, torch.no_grad():
            entries, self._staging = pack(named, view, self._staging)
        self._check()
        self._strategy.send(Manifest(version, entries), self._staging)
        self.version = version
        report = _report(entries, version, started)
        self._on_push(report)
        return report

    def pull(self, model: object) -> SyncReport:
        """Wait for the next version and write it into a model, wherever its tensors are.

        WeightSyncError, with nothing applied, if tensors sent and the model's do not agree or do not arrive.
        """
        started = time.perf_counter_ns()
        named = name_tensors(model_tensors(model))
        self._check()
        manifest, data = self._strategy.receive(lambda manifest: self._accept(manifest, named))
        self._check()
        self._apply(manifest, data, named)
        self.version = manifest.version
        return _report(manifest.entries, manifest.version, started)

    def _accept(self, manifest: Manifest, named: list[NamedTensor]) -> None:
        if manifest.version < self.version:
            raise WeightSyncError(f"version {manifest.version} is older than {self.version}, which is served")
        match_entries(manifest.entries, [item.entry for item in named])

    def _apply(self, manifest: Manifest, data: Tensor, named: list[NamedTensor]) -> None:
        sources = match_entries(manifest.entries, [item.entry for item in named])
        offsets, _ = packed_offsets(manifest.entries)
        with self._reading() as view, torch.no_grad():
            for item, source in zip(named, sources, strict=True):
                assign(view(item.tensor), unpack(data, manifest.entries[source], offsets[source]))

    def _reading(self) -> AbstractContextManager[View]:
        return _as_they_are() if self._residency is None else self._residency.reading()


@contextmanager
def _as_they_are() -> Iterator[View]:
    yield torch.Tensor.detach


def model_tensors(model: object) -> dict[str, Tensor]:
    """Parameters and persistent buffers by name, tied ones under each of their names.

    Takes a module, an object whose ``model`` is one, or a mapping of names to tensors; wrappers made by DDP and
    torch.compile are looked through. Raises UsageError for anything else.
    """
    if isinstance(model, Mapping):
        return dict(model)
    module = model if isinstance(model, nn.Module) else getattr(model, "model", None)
    if not isinstance(module, nn.Module):
        raise UsageError(
            f"weights of a {type(model).__name__} cannot be named: give a torch module, an object whose .model is one, "
            "or a mapping of names to tensors"
        )
    values = _unwrapped(module).state_dict(keep_vars=True)
    return {name: value for name, value in values.items() if isinstance(value, Tensor)}


def _unwrapped(module: nn.Module) -> nn.Module:
    while True:
        inner = module._modules.get("_orig_mod")
        if inner is None and isinstance(module, nn.parallel.DistributedDataParallel):
            inner = module._modules["module"]
        if inner is None:
            return module
        module = inner


def _report(entries: Iterable[TensorEntry], version: int, started: int) -> SyncReport:
    """Bytes are those of the tensors; padding between them is not counted."""
    nbytes = sum(entry.nbytes for entry in entries)
    return SyncReport(nbytes, (time.perf_counter_ns() - started) // 1000, version)
