"""What `weaverl trace show` prints of a trace."""

from pathlib import Path
from typing import TextIO

import msgspec
from rich.table import Table

from weaverl.reports.tables import console_for
from weaverl.simulation.costs import Costs
from weaverl.simulation.traces.read import Format, Reading, has_public_header, read_arrivals, read_trace
from weaverl.simulation.traces.summary import ArrivalsSummary, Summary, summarize, summarize_arrivals


def figures_of(source: Path, format_: Format | None, reading: Reading) -> Summary | ArrivalsSummary:
    """The figures of a trace of ours, or of a public one that is named or has its header."""
    if format_ is not None or has_public_header(source, reading.member):
        return summarize_arrivals(read_arrivals(source, format_, reading))
    return summarize(read_trace(source, member=reading.member), Costs())


def print_figures(figures: Summary | ArrivalsSummary, stream: TextIO) -> None:
    """A line a figure."""
    table = Table(box=None, show_header=False)
    table.add_column()
    table.add_column(overflow="fold")
    for name, value in msgspec.structs.asdict(figures).items():
        table.add_row(name.replace("_", " "), _shown(value))
    console_for(stream).print(table)


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{count} {name}" for name, count in value.items()) or "none"
    if isinstance(value, tuple):
        return "; ".join(map(str, value)) or "none"
    return f"{value:,.2f}" if isinstance(value, float) else str(value)
