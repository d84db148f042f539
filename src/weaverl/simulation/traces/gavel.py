"""Traces of the Gavel simulator: no header, 7 tab-separated fields, work in training steps.

Fields: job type, command (free text, with quotes and ``%s``), name of the steps argument, whether the job needs a
data folder, steps, arrival in seconds, GPUs (github.com/stanford-futuredata/gavel, scheduler/traces).
"""

from collections.abc import Iterable

from weaverl.errors import TraceError
from weaverl.simulation.traces.sieve import Sieve
from weaverl.simulation.traces.tables import Row

COLUMNS = ("job_type", "command", "num_steps_arg", "needs_data_dir", "total_steps", "arrival_time", "scale_factor")


def read_lines(lines: Iterable[str], source: str, steps_per_second: float | None) -> Sieve:
    """One job a line; its duration is its steps at ``steps_per_second``, since the trace has no seconds.

    Raises:
        TraceError: no rate was given, or a line does not have 7 fields.
    """
    if steps_per_second is None:
        raise TraceError(f"{source} counts work in steps: say how fast they run with --steps-per-second")
    sieve = Sieve(source)
    for number, line in enumerate(lines, start=1):
        fields = line.rstrip("\n").split("\t")
        if len(fields) != len(COLUMNS):
            raise TraceError(f"{source}, line {number}: {len(fields)} tab-separated fields, expected {len(COLUMNS)}")
        row = Row(source, number, dict(zip(COLUMNS, fields, strict=True)))
        sieve.keep(
            f"row{number:06d}",
            "default",
            row.number("arrival_time", at_least=0),
            row.number("total_steps", above=0) / steps_per_second,
            row.integer("scale_factor", at_least=1),
        )
    return sieve
