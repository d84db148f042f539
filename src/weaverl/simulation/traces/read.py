"""Reading traces: our own schema as jobs, public cluster traces as arrivals. Formats are named, not guessed.

Without a name, a header that is exactly a format's own tells it. To add a format: a module that fills a ``Sieve``,
its name in ``Format``, and a case in ``_sift``.
"""

import itertools
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime, tzinfo
from enum import StrEnum
from pathlib import Path
from typing import TextIO, assert_never

import msgspec

from weaverl.errors import TraceError
from weaverl.simulation.traces import alibaba, gavel, helios, instances, philly
from weaverl.simulation.traces.files import open_text
from weaverl.simulation.traces.records import Arrivals, Trace
from weaverl.simulation.traces.schema import COLUMNS, read_jobs
from weaverl.simulation.traces.sieve import Sieve
from weaverl.simulation.traces.stamps import Stamps, zone_named
from weaverl.simulation.traces.tables import Table

_PACKING = (".gz", ".tgz", ".zip", ".tar", ".csv", ".json")
_MAX_SHOWN = 60


class Format(StrEnum):
    """Public traces that we read."""

    PHILLY = "philly"
    PHILLY_JSON = "philly-json"
    HELIOS = "helios"
    PAI_2020 = "pai-2020"
    PAI_2023 = "pai-2023"
    DLRM_2025 = "dlrm-2025"
    GAVEL = "gavel"


_HEADERS = {
    philly.CSV_COLUMNS: Format.PHILLY,
    helios.COLUMNS: Format.HELIOS,
    instances.POD_COLUMNS: Format.PAI_2023,
    instances.INSTANCE_COLUMNS: Format.DLRM_2025,
}


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What a file does not say of itself.

    ``zone`` names the time zone of wall-clock stamps; ``member`` a file of an archive; ``tasks`` the task table of
    PAI 2020, if it is not beside the job table; ``steps_per_second`` the speed of Gavel's jobs.
    """

    zone: str | None = None
    member: str | None = None
    tasks: Path | None = None
    steps_per_second: float | None = None


_NOTHING_TO_ADD = Reading()


def read_trace(path: Path, *, member: str | None = None) -> Trace:
    """The jobs of a trace in our own schema (also gzip, or ``member`` of an archive), sorted stably by arrival.

    Raises:
        TraceError: anything that is wrong with the file, with line and column; nothing is read then.
    """
    with open_text(path, member) as lines:
        first = lines.readline()
        found = _HEADERS.get(_cells(first))
        if found is not None:
            raise TraceError(
                f"{path} is a {found} trace, which has arrivals but no phases: first "
                f"`weaverl trace convert {path} --format {found} --out FILE`"
            )
        jobs = read_jobs(itertools.chain([first], lines), str(path))
    return Trace(name=trace_name(path), jobs=tuple(jobs))


def read_arrivals(path: Path, format_: Format | None = None, reading: Reading = _NOTHING_TO_ADD) -> Arrivals:
    """The usable jobs of a public trace; all others are counted by reason.

    Raises:
        TraceError: anything that is wrong with the file, with line and column; nothing is read then.
        UsageError: there is no such time zone.
    """
    stamps = Stamps(zone_named(reading.zone))
    if format_ is None:
        format_ = _told_by_header(path, reading.member)
    with open_text(path, reading.member) as lines:
        sieve = _sift(path, format_, lines, reading, stamps)
    if format_ in (Format.PHILLY, Format.PHILLY_JSON, Format.HELIOS):
        return sieve.arrivals_by_stamps(trace_name(path), stamps)
    return sieve.arrivals(trace_name(path), _clock(stamps.zone))


def has_public_header(path: Path, member: str | None = None) -> bool:
    """Whether the file's first line is exactly the header of a public trace."""
    return _cells(_first_line(path, member)) in _HEADERS


def trace_name(path: Path) -> str:
    """The file's name without what says how it is packed."""
    name = path.name
    for suffix in _PACKING:
        name = name.removesuffix(suffix)
    return name


def _sift(path: Path, format_: Format, lines: TextIO, reading: Reading, stamps: Stamps) -> Sieve:
    source = str(path)
    match format_:
        case Format.PHILLY:
            return philly.read_csv(lines, source, stamps)
        case Format.PHILLY_JSON:
            return philly.read_log(lines, source, stamps)
        case Format.HELIOS:
            return helios.read_log(lines, source, stamps)
        case Format.PAI_2020:
            return _sift_tables(path, lines, reading)
        case Format.PAI_2023:
            return instances.read_pods(lines, source)
        case Format.DLRM_2025:
            return instances.read_instances(lines, source)
        case Format.GAVEL:
            return gavel.read_lines(lines, source, reading.steps_per_second)
        case _:
            assert_never(format_)


def _sift_tables(path: Path, lines: TextIO, reading: Reading) -> Sieve:
    """PAI 2020: the task table lies beside the job table, with the same packing, unless it is named."""
    tasks = reading.tasks or path.with_name(path.name.replace("job_table", "task_table"))
    if tasks == path:
        raise TraceError(f"{path} is one of PAI 2020's two tables: name the task table with --tasks")
    with ExitStack() as stack:
        task_lines = stack.enter_context(open_text(tasks))
        return alibaba.read_tables(
            Table(lines, str(path), _header_beside(path, alibaba.JOB_COLUMNS)),
            Table(task_lines, str(tasks), _header_beside(tasks, alibaba.TASK_COLUMNS)),
        )


def _header_beside(path: Path, declared: tuple[str, ...]) -> tuple[str, ...]:
    """The columns in ``NAME.header``, as the trace ships them, or else the ones that its documentation declares."""
    header = path.with_name(f"{trace_name(path)}.header")
    if not header.is_file():
        return declared
    with open_text(header) as lines:
        table = Table(lines, str(header))
    table.require(declared)
    return table.header


def _told_by_header(path: Path, member: str | None) -> Format:
    first = _first_line(path, member)
    cells = _cells(first)
    if cells in _HEADERS:
        return _HEADERS[cells]
    if cells == COLUMNS:
        raise TraceError(f"{path} is a trace of ours already: simulate it as it is")
    found = f"{len(cells)} column{'' if len(cells) == 1 else 's'}"
    raise TraceError(
        f"{path}: {found} found in its first line ({first.strip()[:_MAX_SHOWN]!r}), no header that we know: name the "
        f"trace with --format {'|'.join(Format)}"
    )


def _first_line(path: Path, member: str | None) -> str:
    with open_text(path, member) as lines:
        return lines.readline()


def _cells(line: str) -> tuple[str, ...]:
    return tuple(line.rstrip("\n").split(","))


def _clock(zone: tzinfo | None) -> Callable[[float], str]:
    """How a trace that counts seconds shows its second 0: as a number, or in a zone that was asked for."""
    if zone is None:
        return lambda seconds: f"{seconds:.10g} s"
    return lambda seconds: str(datetime.fromtimestamp(seconds, zone))
