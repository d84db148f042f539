"""Reading a trace in our own schema; other formats are named and converted first."""

from pathlib import Path

from weaverl.simulation.traces.files import open_text
from weaverl.simulation.traces.records import Trace
from weaverl.simulation.traces.schema import read_jobs


def read_trace(path: Path, *, member: str | None = None) -> Trace:
    """The jobs of a trace in our own schema (also gzip, or ``member`` of an archive), sorted stably by arrival.

    Raises:
        TraceError: anything that is wrong with the file, with line and column; nothing is read then.
    """
    with open_text(path, member) as lines:
        jobs = read_jobs(lines, str(path))
    return Trace(name=trace_name(path), jobs=tuple(jobs))


def trace_name(path: Path) -> str:
    """The file's name without what says how it is packed."""
    name = path.name
    for suffix in (".gz", ".tgz", ".zip", ".tar", ".csv", ".json"):
        name = name.removesuffix(suffix)
    return name
