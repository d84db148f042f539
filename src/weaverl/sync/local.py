"""Weights from a training role to a rollout role in one process: staged by ``send``, taken by ``receive``."""

from collections.abc import Callable

from torch import Tensor

from weaverl.errors import WeightSyncError
from weaverl.sync.manifest import Manifest


class LocalSync:
    """The strategy of a script that runs alone, and of jobs placed in one process."""

    waits_for_sender = False

    def __init__(self) -> None:
        self._staged: tuple[Manifest, Tensor] | None = None

    def send(self, manifest: Manifest, data: Tensor) -> None:
        """Keep the version for ``receive``; there is nobody to wait for."""
        self._staged = (manifest, data)

    def receive(self, accept: Callable[[Manifest], None]) -> tuple[Manifest, Tensor]:
        """The version sent last, as often as asked; WeightSyncError if there was none."""
        if self._staged is None:
            raise WeightSyncError("no weights were pushed in this process: call push() before pull()")
        accept(self._staged[0])
        return self._staged
