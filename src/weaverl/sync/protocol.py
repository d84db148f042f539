"""What the runtime asks of a way to carry weights from training to rollout ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from weaverl.sync.manifest import Manifest

if TYPE_CHECKING:
    from torch import Tensor


class SyncStrategy(Protocol):
    """Carries packed tensors in host memory; it needs no device on either side.

    Both methods raise WeightSyncError within a set time, naming the rank and the tensor; the next sync works again.
    ``waits_for_sender``: whether ``receive`` may be called before a version was sent, and waits for it.
    """

    @property
    def waits_for_sender(self) -> bool:
        """Whether sender and receiver are different processes."""

    def send(self, manifest: Manifest, data: Tensor) -> None:
        """Carry ``data`` (uint8, packed as the manifest says) to all receivers.

        Returns when every receiver has every tensor and the version is committed.
        """

    def receive(self, accept: Callable[[Manifest], None]) -> tuple[Manifest, Tensor]:
        """Wait for the next version and return it whole.

        ``accept`` sees the manifest before any byte moves; what it raises refuses the sync on both sides. The bytes
        are valid until the next call.
        """
