"""Tables that are never cut: numbers stay whole, words are folded into the width that is left.

Print them with ``crop=False``: where even the numbers do not fit, the terminal wraps the line.
"""

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

Cell = str | Text


def sheet(
    heads: Sequence[str], rows: Iterable[Sequence[Cell]], console: Console, words: Sequence[str] | None = None
) -> Table:
    """A row a line; plain if the console is no terminal. ``words``: heads of columns to fold, by default the first."""
    found = [[Text(cell) if isinstance(cell, str) else cell for cell in row] for row in rows]
    folded = heads[:1] if words is None else words
    terminal = console.is_terminal
    table = Table(box=box.SIMPLE_HEAD if terminal else None, padding=(0, 1 if terminal else 2, 0, 0), show_edge=False)
    for place, head in enumerate(heads):
        cells = [row[place].plain for row in found]
        wanted = _longest_word(head) if head in folded else max([_longest_word(head), *map(len, cells)])
        left = place == 0 or head in folded
        table.add_column(Text(head), justify="left" if left else "right", overflow="fold", min_width=wanted)
    for row in found:
        table.add_row(*row)
    return table


def _longest_word(head: str) -> int:
    return max(map(len, head.split()), default=0)
