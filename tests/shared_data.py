"""Where the data shared by all checkouts lie; tests that need them skip where they are absent."""

from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[1]
SHARED = _ROOT.parent / "shared"
TRACES = SHARED / "data" / "traces"


def shared_file(relative: str) -> Path:
    """A file under ``../shared``, or a skipped test."""
    path = SHARED / relative
    if not path.is_file():
        pytest.skip(f"{path} is absent: it is not committed to the project")
    return path
