import os
import stat
from pathlib import Path

import pytest

from interrupts import let_children_be_interrupted


@pytest.fixture(scope="session", autouse=True)
def interruptible_children() -> None:
    """What any test starts."""
    let_children_be_interrupted()


@pytest.fixture
def full_device(tmp_path_factory) -> Path:
    """A device that has no room: our own if we could harm the machine's."""
    if os.geteuid() != 0:
        return Path("/dev/full")
    path = tmp_path_factory.mktemp("devices") / "full"
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 7))
        path.open("w").close()
    except OSError as error:
        pytest.skip(f"no device can be made: {error}")
    return path
