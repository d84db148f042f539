"""Weights from the training role to the rollout role: ``push`` and ``pull``, on host memory, holding no device."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
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
        self._fetched: Future[tuple[Manifest, Tensor]] | None = None
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

    def fetch(self, model: object) -> None:
        """Begin to receive the next version into host memory, beside whatever the model does; ``pull`` writes it in.

        So a rollout that runs beside training does not hold up the sync of that training. Alone, in one process, there
        is nothing to wait for, and ``pull`` does all. UsageError if a version is being fetched already.
        """
        if self._fetched is not None:
            raise UsageError("the next weights are being fetched already: call pull() before the next fetch()")
        if not self._strategy.waits_for_sender:
            return
        named, fetched = name_tensors(model_tensors(model)), Future[tuple[Manifest, Tensor]]()
        self._check()
        self._fetched = fetched
        threading.Thread(target=self._receive_into, args=(fetched, named), name="weaverl-fetch", daemon=True).start()

    def pull(self, model: object, version: int | None = None) -> SyncReport:
        """Wait for the next version and write it into a model, wherever its tensors are.

        Args:
            model: as ``push`` takes it.
            version: the one that it has to be, so that no order of events can bring another.

        Raises:
            WeightSyncError: tensors sent and the model's do not agree or do not arrive, or it is another version; then
                nothing is applied.
        """
        started = time.perf_counter_ns()
        named = name_tensors(model_tensors(model))
        self._check()
        manifest, data = self._next(named)
        if version is not None and manifest.version != version:
            raise WeightSyncError(f"version {manifest.version} came where {version} is due: push and pull each in turn")
        self._check()
        self._apply(manifest, data, named)
        self.version = manifest.version
        return _report(manifest.entries, manifest.version, started)

    def _next(self, named: list[NamedTensor]) -> tuple[Manifest, Tensor]:
        """The next version, fetched or not."""
        if self._fetched is None:
            return self._receive(named)
        fetched, self._fetched = self._fetched, None
        return fetched.result()

    def _receive(self, named: list[NamedTensor]) -> tuple[Manifest, Tensor]:
        return self._strategy.receive(lambda manifest: self._accept(manifest, named))

    def _receive_into(self, fetched: "Future[tuple[Manifest, Tensor]]", named: list[NamedTensor]) -> None:
        try:
            fetched.set_result(self._receive(named))
        except BaseException as error:  # noqa: BLE001 - the thread's outermost loop: whoever pulls must learn of it
            fetched.set_exception(error)

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
