"""Lets the tests import the examples' plain modules as the example scripts do, as siblings."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "grpo"))


@pytest.fixture(autouse=True)
def denormals() -> Iterator[None]:
    """The example flushes denormal numbers, process-wide; other tests of the same process want them."""
    yield
    import torch

    torch.set_flush_denormal(False)
