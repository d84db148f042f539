"""Tests that interrupt what they start mean it also where the tests run in a script's background."""

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from interrupts import let_children_be_interrupted


@pytest.fixture
def in_background() -> Iterator[None]:
    """Ctrl-C is ignored, as a shell without job control has it for what it starts with `&`."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_child_is_interrupted_where_we_are_not(in_background):
    let_children_be_interrupted()
    child = [sys.executable, "-c", "import signal; signal.raise_signal(signal.SIGINT)"]
    assert subprocess.run(child, stderr=subprocess.DEVNULL, check=False).returncode == -signal.SIGINT
    signal.raise_signal(signal.SIGINT)


def test_where_interrupts_are_not_ignored_nothing_changes():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        let_children_be_interrupted()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
