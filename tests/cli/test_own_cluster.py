"""Ctrl-C while a command's own cluster comes up or goes down."""

import signal

import pytest

from weaverl.cli.own_cluster import interrupts_later


@pytest.fixture(autouse=True)
def handler_restored():
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_takes_effect_at_the_end_of_the_block():
    signal.signal(signal.SIGINT, signal.default_int_handler)
    seen = []
    with pytest.raises(KeyboardInterrupt), interrupts_later():
        signal.raise_signal(signal.SIGINT)
        seen.append("the rest of the block")
    assert seen == ["the rest of the block"]


def test_an_interrupt_that_our_starter_has_us_ignore_stays_ignored():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with interrupts_later():
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_an_error_of_the_block_is_not_hidden_by_an_interrupt():
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with pytest.raises(ZeroDivisionError), interrupts_later():
        signal.raise_signal(signal.SIGINT)
        raise ZeroDivisionError
