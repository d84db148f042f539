"""The SenseTime Helios trace: one Slurm cluster's jobs in ``cluster_log.csv``.

Schema: README of github.com/S-Lab-System-Group/HeliosData.
"""

from collections.abc import Iterable

from weaverl.simulation.traces.sieve import NEVER_STARTED, Sieve
from weaverl.simulation.traces.stamps import Stamps
from weaverl.simulation.traces.tables import Row, Table

COLUMNS = (
    "job_id",
    "user",
    "vc",
    "gpu_num",
    "cpu_num",
    "node_num",
    "state",
    "submit_time",
    "start_time",
    "end_time",
    "duration",
    "queue",
)
_MISSING = frozenset({"", "None", "Unknown"})


def read_log(lines: Iterable[str], source: str, stamps: Stamps) -> Sieve:
    """Jobs that started. The state is free text (``CANCELLED by 32874``): a job that failed has used its GPUs too."""
    sieve = Sieve(source)
    table = Table(lines, source)
    table.require(COLUMNS)
    for row in table.rows():
        if row.cells["start_time"] in _MISSING:
            sieve.skip(NEVER_STARTED)
        else:
            _keep(row, sieve, stamps)
    return sieve


def _keep(row: Row, sieve: Sieve, stamps: Stamps) -> None:
    submit = row.stamp("submit_time", stamps)
    sieve.keep(row.text("job_id"), row.text("vc"), submit, row.seconds("duration"), row.number("gpu_num", at_least=0))
