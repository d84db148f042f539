"""Ctrl-C in tests: what they start can be interrupted, however the tests themselves were started."""

import signal


def let_children_be_interrupted() -> None:
    """Have children take SIGINT as under a terminal, where our starter ignores it, as shells do for `make test &`.

    An ignored signal is inherited through exec, a handled one is not; ours does nothing, so we go on ignoring it.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda number, frame: None)
