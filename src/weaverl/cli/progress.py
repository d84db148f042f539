"""Bars on standard error that say how far a command is; nothing where that is no terminal."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from weaverl.reports.tables import console_for


@contextmanager
def progress_bars(*, stay: bool = False) -> Iterator[Progress]:
    """A place for bars, with their steps and times; ``stay`` leaves them there at the end."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    is_seen = sys.stderr.isatty()
    with Progress(*columns, console=console_for(sys.stderr), transient=not stay, disable=not is_seen) as bars:
        yield bars
