"""Clusters of real processes for the control plane's tests."""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]

from live import ROOT, Live, cluster  # noqa: E402 - found through the path above

from weaverl.control.processes import kill_marked  # noqa: E402
from weaverl.scheduling.state import Parameters  # noqa: E402


@pytest.fixture
def directory() -> Iterator[Path]:
    """A directory that leaves room for a socket path."""
    path = Path(tempfile.mkdtemp(prefix="wv-", dir=ROOT))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def shared() -> Iterator[Live]:
    """A cluster that tests share; each brings jobs of its own names."""
    path = Path(tempfile.mkdtemp(prefix="wv-", dir=ROOT))
    of_all = Live(path, cluster(), Parameters(exit_patience_us=500_000))
    of_all.up()
    yield of_all
    of_all.down()
    assert not of_all.home.processes()
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def live(shared: Live) -> Live:
    """The shared cluster; a module that harms it has its own."""
    return shared


@pytest.fixture
def own(directory: Path) -> Iterator[Live]:
    """A cluster of the test's own, not brought up yet; whatever the test leaves is ended."""
    mine = Live(directory, cluster())
    yield mine
    mine.down()
    kill_marked(mine.home.instance, grace_seconds=0.0)
