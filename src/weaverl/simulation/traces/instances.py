"""Traces of instances with creation, scheduling and deletion times: Alibaba's PAI 2023 pods and DLRM 2025 instances.

Schemas: README of github.com/alibaba/clusterdata, cluster-trace-gpu-v2023 and -v2025. Seconds from the trace's start.
An empty cell is a time that the trace does not reach: before its start (creation) or after its end (deletion).
"""

from collections.abc import Iterable

from weaverl.simulation.traces.sieve import (
    NEVER_STARTED,
    NO_GPUS,
    OLDER,
    OLDER_AND_OUTLIVES,
    OUTLIVES,
    Sieve,
)
from weaverl.simulation.traces.tables import Row, Table

POD_COLUMNS = (
    "name",
    "cpu_milli",
    "memory_mib",
    "num_gpu",
    "gpu_milli",
    "gpu_spec",
    "qos",
    "pod_phase",
    "creation_time",
    "deletion_time",
    "scheduled_time",
)
INSTANCE_COLUMNS = (
    "instance_sn",
    "role",
    "app_name",
    "cpu_request",
    "cpu_limit",
    "gpu_request",
    "gpu_limit",
    "rdma_request",
    "rdma_limit",
    "memory_request",
    "memory_limit",
    "disk_request",
    "disk_limit",
    "max_instance_per_node",
    "creation_time",
    "scheduled_time",
    "deletion_time",
)


def read_pods(lines: Iterable[str], source: str) -> Sieve:
    """PAI 2023: a pod of one GPU may ask for a part of it. The phase is not looked at: it does not say who ran."""
    sieve = Sieve(source)
    ends: list[float] = []
    table = Table(lines, source)
    table.require(POD_COLUMNS)
    for row in table.rows():
        gpus = row.number("num_gpu", at_least=0)
        part = row.number("gpu_milli", at_least=0) / 1000 if gpus == 1 else 1.0
        end = _sift(row, sieve, "name", "qos", gpus * part)
        ends += [] if end is None else [end]
    num_last = ends.count(max(ends)) if ends else 0
    if num_last > 1:
        sieve.warnings.append(f"{num_last} jobs end together at {max(ends):.0f}, the trace's end: they ran longer")
    return sieve


def read_instances(lines: Iterable[str], source: str) -> Sieve:
    """DLRM 2025: long-running inference instances. ``max_instance_per_node`` (-1: no limit) is not used."""
    sieve = Sieve(source)
    table = Table(lines, source)
    table.require(INSTANCE_COLUMNS)
    for row in table.rows():
        _sift(row, sieve, "instance_sn", "app_name", row.number("gpu_request", at_least=0))
    return sieve


def _sift(row: Row, sieve: Sieve, name: str, tenant: str, gpus: float) -> float | None:
    """Keep or skip one instance; its end, if it was kept. Stamps are the same instant to the microsecond."""
    created, scheduled, deleted = (_seconds(row, f"{word}_time") for word in ("creation", "scheduled", "deletion"))
    reason = _unusable(gpus, created, scheduled, deleted)
    if reason is not None:
        sieve.skip(reason)
        return None
    assert created is not None and scheduled is not None and deleted is not None
    sieve.keep(row.text(name), row.text(tenant), created, round(deleted - scheduled, 6), gpus)
    return deleted


def _unusable(gpus: float, created: float | None, scheduled: float | None, deleted: float | None) -> str | None:
    if gpus <= 0:
        return NO_GPUS
    if created is None:
        return OLDER if deleted is not None else OLDER_AND_OUTLIVES
    if scheduled is None:
        return NEVER_STARTED
    return OUTLIVES if deleted is None else None


def _seconds(row: Row, column: str) -> float | None:
    return round(row.number(column, at_least=0), 6) if row.cells[column] else None
