"""A cluster for one command, in a directory of its own; it outlives neither the command nor its process."""

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from weaverl.cli.cluster import bring_up, take_down
from weaverl.control.client import Client, connect
from weaverl.control.home import Home
from weaverl.domain.cluster import Cluster


@contextmanager
def own_cluster(cluster: Cluster, prefix: str) -> Iterator[tuple[Home, Client]]:
    """A cluster in a directory of its own, which ends with this block, or with this process if it is killed."""
    directory = Path(tempfile.mkdtemp(prefix=prefix))
    home = Home(directory)
    try:
        with interrupts_later():
            bring_up(home, cluster, while_alive=os.getpid())
        yield home, Client(connect(home.require_head().access))
    finally:
        with interrupts_later():
            record = home.head()
            if record is not None:
                take_down(home, record, patience_seconds=5.0)
            shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def interrupts_later() -> Iterator[None]:
    """Ctrl-C within the block takes effect at its end: a cluster is not left half up or half down.

    Its effect is what it would have been before: none, if our starter has us ignore it.
    """
    interrupts: list[int] = []

    def keep(number: int, frame: FrameType | None) -> None:
        interrupts.append(number)

    before = signal.signal(signal.SIGINT, keep)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if interrupts:
        signal.raise_signal(signal.SIGINT)
