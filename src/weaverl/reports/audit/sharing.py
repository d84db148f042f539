"""What waiting came to in a simulated run, from trace and timeline: hours in the queue, deadlines, tenants' usage."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from weaverl.reports.audit.checks import pins_of
from weaverl.reports.audit.lives import Life, has_faults
from weaverl.reports.audit.spreads import spread
from weaverl.reports.audit.table import AuditFinding, Record, Table

HOUR_US = 3600e6
Lives = Mapping[str, list[Life]]
Rows = Mapping[str, Record]


def in_queue(rows: Rows, lives: list[Life]) -> int:
    """Microseconds that a job, whose ``lives`` these are, was in the queue: before its first attempt and in between."""
    return sum(end - begin for begin, end in _waits(rows, lives))


def figures(table: Table, lives: Lives, rows: Rows, finished: list[str], parameters: Any) -> dict[str, float]:
    """By their names in the JSON of the run."""
    pauses = _pauses(lives)
    found = {"preemptions": float(sum(pauses)), "most_preemptions": float(max(pauses, default=0))}
    by_priority: dict[int, list[float]] = defaultdict(list)
    for name in finished:
        by_priority[rows[name].get("priority", 0)].append(in_queue(rows, lives[name]) / HOUR_US)
    for priority, hours in by_priority.items():
        found[f"classes.{priority}.jobs"] = float(len(hours))
        found |= spread(f"classes.{priority}.queued_hours", hours)
    found |= _deadlines(lives, rows, finished)
    if parameters.get("sharing") is not None and not has_faults(parameters):
        found |= _shares(table, lives, rows, parameters)
    return found


def bounds(lives: Lives, reported: Record, parameters: Any) -> Iterator[AuditFinding]:
    """No job was paused more often than it may be; a policy that moves jobs may have them wait besides."""
    rules = (parameters.get("sharing") or {}).get("preemption")
    most = max(_pauses(lives), default=0)
    allowed = 0 if rules is None else rules["most_per_job"]
    if reported["policy"] != "weave" and most > allowed:
        yield AuditFinding("pauses", f"a job was paused {most} times, {allowed} are allowed")


def _pauses(lives: Lives) -> list[int]:
    """Of each job, how often it left its place at the end of an iteration and then had to wait."""
    pairs = ((own[:-1], own[1:]) for own in lives.values())
    return [sum(one.moved and later.begin > one.end for one, later in zip(*both, strict=True)) for both in pairs]


def _waits(rows: Rows, lives: list[Life]) -> list[tuple[int, int]]:
    arrived = round(rows[lives[0].name]["arrival_seconds"] * 1e6)
    ends = [arrived, *(life.end for life in lives)]
    return [(end, life.begin) for end, life in zip(ends, lives, strict=False)]


def _deadlines(lives: Lives, rows: Rows, finished: list[str]) -> dict[str, float]:
    due = {name: rows[name].get("deadline_seconds") for name in finished}
    num = met = 0
    for name, seconds in due.items():
        if seconds is not None:
            took = lives[name][-1].end - round(rows[name]["arrival_seconds"] * 1e6)
            num, met = num + 1, met + (took <= round(seconds * 1e6))
    return {"deadlines.jobs": float(num), "deadlines.met": float(met), "deadlines.attainment": met / num} if num else {}


def _shares(table: Table, lives: Lives, rows: Rows, parameters: Any) -> dict[str, float]:
    """Usage of each tenant: of the whole run, and while every tenant had a job in the queue."""
    tenants = sorted({row["tenant"] for row in rows.values()})
    contended = _contended(lives, rows, tenants)
    usage, within = dict.fromkeys(tenants, 0.0), dict.fromkeys(tenants, 0.0)
    for (begin, end), per_hour, tenant in _holdings(table, lives, rows, parameters):
        usage[tenant] += per_hour * (end - begin) / HOUR_US
        within[tenant] += per_hour * _overlap(begin, end, contended) / HOUR_US
    weight = {tenant: parameters["sharing"]["tenants"].get(tenant, 1.0) for tenant in tenants}
    mean = sum(within[tenant] / weight[tenant] for tenant in tenants) / max(len(tenants), 1)
    found = {"sharing.contended_hours": sum(end - begin for begin, end in contended) / HOUR_US}
    for tenant in tenants:
        found[f"sharing.tenants.{tenant}.weight"] = weight[tenant]
        found[f"sharing.tenants.{tenant}.usage"] = usage[tenant]
        found[f"sharing.tenants.{tenant}.contended_usage"] = within[tenant]
        if mean:
            found[f"sharing.tenants.{tenant}.per_weight"] = within[tenant] / weight[tenant] / mean
    return found


def _contended(lives: Lives, rows: Rows, tenants: list[str]) -> list[tuple[int, int]]:
    """When every tenant had a job in the queue."""
    steps = sorted(
        (at, change, rows[name]["tenant"])
        for name, own in lives.items()
        for wait in _waits(rows, own)
        for at, change in zip(wait, (1, -1), strict=True)
    )
    waiting, since, found = dict.fromkeys(tenants, 0), 0, []
    for at, change, tenant in steps:
        if at > since and all(waiting.values()):
            found.append((since, at))
        waiting[tenant] += change
        since = at
    return found


def _holdings(table: Table, lives: Lives, rows: Rows, parameters: Any) -> Iterator[tuple[tuple[int, int], float, str]]:
    """What each job holds of each of its nodes from one change to the next, and for whom."""
    pins, nodes = pins_of(table), {node["name"]: node for node in table.header["cluster"]["nodes"]}
    changes: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
    for name, own in lives.items():
        for life in own:
            pin = pins[name, life.attempt]
            for node in {node for slots in pin.values() for node, _ in slots}:
                changes[node] += [(life.begin, 1, name), (life.end, -1, name)]
    for node, steps in changes.items():
        record = nodes[node]
        by_dollars = parameters["sharing"]["by"] == "dollars"
        per_device = parameters[f"{record['pool']}_usd_per_gpu_hour"] if by_dollars else 1.0
        holders: dict[str, int] = defaultdict(int)
        since = 0
        for at, change, name in sorted(steps):
            there = [one for one, number in holders.items() if number]
            for one in there if at > since else ():
                yield (since, at), record["num_devices"] * per_device / len(there), rows[one]["tenant"]
            holders[name] += change
            since = at


def _overlap(begin: int, end: int, spans: list[tuple[int, int]]) -> int:
    return sum(max(min(end, until) - max(begin, since), 0) for since, until in spans)
