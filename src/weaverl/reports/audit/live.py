"""Figures of a live run, worked out from the intervals of its timeline file."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weaverl.reports.audit.checks import findings, peak, pinned_peaks
from weaverl.reports.audit.table import AuditFinding, Record, Table, read_table

MICROSECONDS = 1e6
ORDER = ("rollout", "training", "sync")


@dataclass(frozen=True)
class AuditFigures:
    """What the auditor worked out. Peaks: devices held at one moment, and bytes pinned on a node."""

    seconds: float
    usd: float
    bubbles: dict[str, float]
    slowdowns: dict[str, float]
    slo_met: dict[str, bool]
    peak_devices: dict[str, int]
    peak_host_memory: dict[str, int]
    iterations: dict[str, int]

    def flat(self) -> dict[str, float]:
        """The figures that reports print, under the names that ``disagreements`` takes."""
        return {
            "seconds": self.seconds,
            "usd": self.usd,
            **{f"bubble_{pool}": value for pool, value in self.bubbles.items()},
            **{f"slowdown:{job}": value for job, value in self.slowdowns.items()},
        }


@dataclass(frozen=True)
class AuditResult:
    """All findings, and the figures; the run is audited if there are no findings."""

    findings: tuple[AuditFinding, ...]
    figures: AuditFigures

    @property
    def audited(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings


def audit(path: Path, solo: Mapping[str, Path] | None = None) -> AuditResult:
    """Audit a timeline file; ``solo`` maps a job to the file of its run alone, for interference."""
    table, intervals = _read(path)
    alone = {name: _read(file)[1] for name, file in (solo or {}).items()}
    return AuditResult(tuple(findings(table)), _figures(table, intervals, alone))


def disagreements(figures: AuditFigures, reported: Mapping[str, float], tolerance: float = 1e-6) -> list[AuditFinding]:
    """Reported figures (named as in ``AuditFigures.flat``) that are not what the auditor found."""
    own = figures.flat()
    return [
        AuditFinding("figure", f"{name} is reported as {value}, audited as {own.get(name)}")
        for name, value in reported.items()
        if name not in own or abs(own[name] - value) > tolerance * max(1.0, abs(value))
    ]


def _read(path: Path) -> tuple[Table, list[Record]]:
    table, intervals = read_table(path)
    return table, [_plain(interval) for interval in intervals]


def _plain(interval: Record) -> Record:
    slots = [(slot["node"], slot["device"]) for slot in interval["slots"]]
    defaults = {"tokens": 0, "samples": 0}
    return {**defaults, **interval, "slots": slots}


def _figures(table: Table, intervals: list[Record], alone: Mapping[str, list[Record]]) -> AuditFigures:
    header = table.header
    cluster = header["cluster"]
    pools = {node["name"]: node["pool"] for node in cluster["nodes"]}
    warm = [one for one in intervals if one["phase"] != "loading"]
    seconds = (
        (max(one["ended_at"] for one in warm) - min(one["granted_at"] for one in warm)) / MICROSECONDS if warm else 0.0
    )
    devices: dict[str, int] = defaultdict(int)
    for node in cluster["nodes"]:
        devices[node["pool"]] += node["num_devices"]
    busy: dict[str, int] = defaultdict(int)
    holds: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for (node, _), held in _by_slot(intervals).items():
        work = [one for one in held if one["phase"] in ("rollout", "training")]
        busy[pools.get(node, "unknown")] += _covered((one["started_at"], one["ended_at"]) for one in work)
        for one in held:
            holds[pools.get(node, "unknown")] += [(one["granted_at"], 1), (one["released_at"], -1)]
    slos = {job["name"]: job["slo"] for job in header["jobs"]}
    ahead = {job["name"] for job in header["jobs"] if job.get("staleness", 0)}
    slowdowns = {
        job: _slowdown(of_job, alone.get(job, []), ahead=job in ahead)
        for job, of_job in _groups(intervals, "job").items()
    }
    return AuditFigures(
        seconds=seconds,
        usd=sum(devices[pool] * seconds / 3600 * cluster[pool]["usd_per_gpu_hour"] for pool in devices),
        bubbles={
            pool: 1 - busy[pool] / MICROSECONDS / (seconds * count)
            for pool, count in devices.items()
            if seconds * count
        },
        slowdowns=slowdowns,
        slo_met={job: value <= slos[job] for job, value in slowdowns.items() if job in slos},
        peak_devices={pool: peak(changes) for pool, changes in holds.items()},
        peak_host_memory=pinned_peaks(table),
        iterations={
            job: len({one["iteration"] for one in of_job if one["phase"] in ORDER})
            for job, of_job in _groups(intervals, "job").items()
        },
    )


def _slowdown(intervals: list[Record], alone: list[Record], *, ahead: bool) -> float:
    """Wall time of all attempts over the solo time of the last attempt at each iteration.

    Where rollouts run beside training (``ahead``) an iteration is a training with the rollout beside it: it begins
    with the training's request, and takes as long as the longer one of both, with what no phase and no wait covers.
    """
    factors = {phase: _interference(intervals, alone, phase) for phase in ("rollout", "training")}
    wall, solo, uncovered = 0.0, {}, {}
    bodies: dict[tuple[str, int], float] = {}
    attempts = sorted({one["attempt"] for one in intervals})
    for attempt in attempts:
        of_attempt = [one for one in intervals if one["attempt"] == attempt]
        work = [one for one in of_attempt if one["phase"] in ORDER]
        if not work:
            continue
        start = min(one["requested_at"] for one in (work if attempt == attempts[0] else of_attempt))
        end = max(one["ended_at"] for one in of_attempt)
        wall += (end - start) / MICROSECONDS
        begins = _begins(work, ahead=ahead)
        begins[0] = (start, begins[0][1])
        for (begin, iteration), (until, _) in zip(begins, [*begins[1:], (end, -1)], strict=True):
            if ahead:
                uncovered[iteration] = (until - begin - _covered(_clipped(of_attempt, begin, until))) / MICROSECONDS
                continue
            own = [one for one in of_attempt if one["iteration"] == iteration or one["phase"] == "loading"]
            solo[iteration] = _solo_seconds(own, begin, until, factors)
        for iteration, group in _groups(work, "iteration").items() if ahead else ():
            bodies |= {(phase, iteration): _body(group, phase, factors) for phase in ORDER}
    total = sum(solo.values()) + _seconds_side_by_side(bodies, uncovered)
    return wall / total if total else 1.0


def _begins(work: list[Record], *, ahead: bool) -> list[tuple[int, int]]:
    """When each iteration of an attempt began, in order."""
    first = {i: min(one["requested_at"] for one in group) for i, group in _groups(work, "iteration").items()}
    if ahead:
        trained = {one["iteration"]: one["requested_at"] for one in work if one["phase"] == "training"}
        first = trained | {min(first): first[min(first)]}
    return sorted((at, iteration) for iteration, at in first.items())


def _seconds_side_by_side(bodies: Mapping[tuple[str, int], float], uncovered: Mapping[int, float]) -> float:
    """The first rollout, then each training and its sync, or the next rollout if that takes longer."""
    total = sum(uncovered.values())
    if uncovered:
        total += bodies.get(("rollout", min(uncovered)), 0.0)
    for iteration in uncovered:
        trained = bodies.get(("training", iteration), 0.0) + bodies.get(("sync", iteration), 0.0)
        total += max(bodies.get(("rollout", iteration + 1), 0.0), trained)
    return total


def _solo_seconds(own: list[Record], begin: int, until: int, factors: Mapping[str, float]) -> float:
    total = (until - begin - _covered(_clipped(own, begin, until))) / MICROSECONDS
    for phase in ORDER:
        total += _body(own, phase, factors)
    return total


def _clipped(own: list[Record], begin: int, until: int) -> list[tuple[int, int]]:
    return [(max(begin, one["requested_at"]), min(until, one["released_at"])) for one in own]


def _body(own: list[Record], phase: str, factors: Mapping[str, float]) -> float:
    """Seconds in the bodies of a phase, those of its interference taken off."""
    body = _covered((one["started_at"], one["ended_at"]) for one in own if one["phase"] == phase)
    return body / MICROSECONDS / factors.get(phase, 1.0)


def _interference(woven: list[Record], alone: list[Record], phase: str) -> float:
    shared, solo = ([one for one in run if one["phase"] == phase] for run in (woven, alone))
    if not shared or not solo:
        return 1.0
    for unit in ("tokens", "samples"):
        if all(one[unit] for one in shared + solo):
            rates = [
                sum(one["ended_at"] - one["started_at"] for one in run) / sum(one[unit] for one in run)
                for run in (shared, solo)
            ]
            return float(rates[0] / rates[1])
    means = [
        sum(one["ended_at"] - one["started_at"] for one in run)
        / len({(one["attempt"], one["iteration"]) for one in run})
        for run in (shared, solo)
    ]
    return float(means[0] / means[1])


def _groups(intervals: list[Record], key: str) -> dict[Any, list[Record]]:
    found: dict[Any, list[Record]] = defaultdict(list)
    for interval in intervals:
        found[interval[key]].append(interval)
    return found


def _by_slot(intervals: list[Record]) -> dict[tuple[str, int], list[Record]]:
    found: dict[tuple[str, int], list[Record]] = defaultdict(list)
    for interval in intervals:
        for slot in interval["slots"]:
            found[slot].append(interval)
    return found


def _covered(spans: Iterable[tuple[int, int]]) -> int:
    """Length covered by at least one span, by sweeping over their ends."""
    edges = sorted((at, step) for start, end in spans if end > start for at, step in ((start, 1), (end, -1)))
    covered = depth = last = 0
    for at, step in edges:
        covered += (at - last) if depth else 0
        depth, last = depth + step, at
    return covered
