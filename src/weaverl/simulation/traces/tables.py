"""Strict tables: every row has the header's columns, every fault has its line, every number is a plain finite one."""

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from weaverl.errors import TraceError
from weaverl.simulation.traces.stamps import Stamps, clock_seconds

# No quantity of a trace is larger: 1e10 s are three centuries, and the clock's microseconds stay exact integers.
LARGEST = 1e10
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_MAX_SHOWN = 40


class Row:
    """One line of a table; every cell is read through it, so that a fault names file, line and column."""

    __slots__ = ("cells", "line", "source")

    def __init__(self, source: str, line: int, cells: Mapping[str, str]) -> None:
        self.source = source
        self.line = line
        self.cells = cells

    def fault(self, column: str, problem: str) -> TraceError:
        """An error that names the cell."""
        return TraceError(f"{self.source}, line {self.line}, column {column}: {problem}")

    def text(self, column: str) -> str:
        """A name: not empty, printable, no blanks around it."""
        value = self.cells[column]
        if not value or not value.isprintable() or value != value.strip():
            raise self.fault(column, f"{shown(value)} is not a name: give printable text without blanks around it")
        return value

    def number(self, column: str, *, above: float | None = None, at_least: float | None = None) -> float:
        """A finite number within bounds, never beyond ``LARGEST``. Minus zero is zero."""
        cell = self.cells[column]
        if not _NUMBER.fullmatch(cell):
            raise self.fault(column, f"{shown(cell)} is not a finite number: write it like 12.5 or 1e3")
        value = float(cell) + 0.0
        if abs(value) > LARGEST:
            raise self.fault(column, f"{cell} is out of range: at most {LARGEST:g} can be meant")
        if above is not None and value <= above:
            raise self.fault(column, f"{cell} must be over {above:g}")
        if at_least is not None and value < at_least:
            raise self.fault(column, f"{cell} must be at least {at_least:g}")
        return value

    def integer(self, column: str, *, at_least: int) -> int:
        """A whole number, also where it is written like ``1.0``."""
        value = self.number(column, at_least=at_least)
        if not value.is_integer():
            raise self.fault(column, f"{self.cells[column]} must be a whole number")
        return int(value)

    def seconds(self, column: str) -> float:
        """A duration: plain seconds, or spelled out like ``1-02:03:04`` or ``1 day, 6:00:00``."""
        spelled = clock_seconds(self.cells[column])
        return self.number(column, at_least=0) if spelled is None else spelled

    def stamp(self, column: str, stamps: Stamps) -> float:
        """A wall-clock stamp as seconds since 1970."""
        return stamps.seconds(self.cells[column], lambda problem: self.fault(column, problem))


def shown(value: str) -> str:
    """A cell for a message: quoted, cut if it is long."""
    return repr(value if len(value) <= _MAX_SHOWN else value[:_MAX_SHOWN] + "...")


def read_rows(lines: Iterable[str], source: str, *, delimiter: str = ",") -> Iterator[tuple[int, list[str]]]:
    """The cells of each line with its number. Blank lines may only end the file.

    Raises:
        TraceError: a quote that its line does not close, text after a closing quote, a blank line in between.
    """
    reader = csv.reader((line.rstrip("\n") for line in lines), delimiter=delimiter, strict=True)
    blank = number = 0
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise _bad_quotes(source, number + 1, str(error)) from error
        number += 1
        if reader.line_num != number:
            raise _bad_quotes(source, number, "it is not closed there")
        if not cells:
            blank = blank or number
        elif blank:
            raise TraceError(f"{source}, line {blank} is empty, and rows follow: remove it")
        else:
            yield number, cells


class Table:
    """A header and the rows under it, read as they are asked for."""

    def __init__(
        self, lines: Iterable[str], source: str, columns: Sequence[str] | None = None, *, delimiter: str = ","
    ) -> None:
        """``columns`` is the header of a file that has none.

        Raises:
            TraceError: a repeated column, or what ``read_rows`` raises.
        """
        self.source = source
        self._rows = read_rows(lines, source, delimiter=delimiter)
        self.header = tuple(columns) if columns is not None else tuple(next(self._rows, (1, []))[1])
        repeated = sorted({name for name in self.header if self.header.count(name) > 1})
        if repeated:
            raise TraceError(f"{source}, line 1: column {repeated[0]} is there twice: rename one, or add the header")

    def require(self, columns: Sequence[str]) -> None:
        """Refuse a header that lacks one of ``columns``."""
        missing = [name for name in columns if name not in self.header]
        if not missing:
            return
        if len(self.header) <= 1:
            raise TraceError(
                f"{self.source}: 1 column found, expected {len(columns)} ({', '.join(columns[:3])}, ...), "
                f"with commas between"
            )
        raise TraceError(f"{self.source} lacks column {', '.join(missing)}: its header must have {','.join(columns)}")

    def rows(self) -> Iterator[Row]:
        """All rows.

        Raises:
            TraceError: a row with more or fewer cells than columns, or what ``read_rows`` raises.
        """
        for line, cells in self._rows:
            if len(cells) != len(self.header):
                found = f"{len(cells)} cell{'' if len(cells) == 1 else 's'}"
                raise TraceError(f"{self.source}, line {line}: {found} where {len(self.header)} are expected")
            yield Row(self.source, line, dict(zip(self.header, cells, strict=True)))


def _bad_quotes(source: str, line: int, why: str) -> TraceError:
    return TraceError(f"{source}, line {line}: a quote is opened that is not closed in its cell ({why}): close it")
