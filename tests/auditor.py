"""The auditor: it checks a run and works out its figures from the timeline file alone.

It shares no code with the scheduler, the simulator or the reports, so that a mistake there cannot hide here; it reads
the file as plain JSON. ``audit(path)`` returns findings, one a fault, and figures that reports must agree with.
"""

import itertools
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Record = dict[str, Any]
MICROSECONDS = 1e6
STEPS = ("requested_at", "granted_at", "started_at", "ended_at", "released_at")
ORDER = ("rollout", "training", "sync")


@dataclass(frozen=True)
class AuditFinding:
    """One fault: the check that found it, and what it saw, in a line."""

    check: str
    message: str

    def __str__(self) -> str:
        return f"{self.check}: {self.message}"


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
        return not self.findings


def audit(path: Path, solo: Mapping[str, Path] | None = None) -> AuditResult:
    """Audit a timeline file; ``solo`` maps a job to the file of its run alone, for interference."""
    header, intervals, damage = _read(path)
    alone = {name: _read(file)[1] for name, file in (solo or {}).items()}
    checks = (_clock, _job_order, _single_holder, _residency, _once, _pinned, _tokens)
    findings = [*damage, *(finding for check in checks for finding in check(header, intervals))]
    return AuditResult(tuple(findings), _figures(header, intervals, alone))


def disagreements(figures: AuditFigures, reported: Mapping[str, float], tolerance: float = 1e-6) -> list[AuditFinding]:
    """Reported figures (named as in ``AuditFigures.flat``) that are not what the auditor found."""
    own = figures.flat()
    return [
        AuditFinding("figure", f"{name} is reported as {value}, audited as {own.get(name)}")
        for name, value in reported.items()
        if name not in own or abs(own[name] - value) > tolerance * max(1.0, abs(value))
    ]


def _read(path: Path) -> tuple[Record, list[Record], list[AuditFinding]]:
    *lines, tail = path.read_bytes().split(b"\n")
    damage, records = [], []
    for number, line in enumerate([*lines, tail] if tail else lines, start=1):
        try:
            records.append(json.loads(line))
        except ValueError:
            torn = number > len(lines)
            if not torn:
                damage.append(AuditFinding("file", f"line {number} is not JSON"))
    header, *intervals = records
    return header, [_plain(interval) for interval in intervals], damage


def _plain(interval: Record) -> Record:
    slots = [(slot["node"], slot["device"]) for slot in interval["slots"]]
    defaults = {"token": "", "tokens": 0, "samples": 0}
    return {**defaults, **interval, "slots": slots, "who": f"{interval['job']}#{interval['attempt']}"}


def _name(interval: Record) -> str:
    return f"{interval['who']} {interval['phase']} {interval['iteration']}"


def _clock(header: Record, intervals: list[Record]) -> Iterator[AuditFinding]:
    for interval in intervals:
        times = [interval[step] for step in STEPS]
        if times != sorted(times):
            yield AuditFinding("clock", f"{_name(interval)} goes back in time: {times}")


def _job_order(header: Record, intervals: list[Record]) -> Iterator[AuditFinding]:
    for of_attempt in _groups(intervals, "who").values():
        chain = sorted(
            (interval for interval in of_attempt if interval["phase"] in ORDER),
            key=lambda interval: (interval["iteration"], ORDER.index(interval["phase"]), interval["started_at"]),
        )
        for before, after in itertools.pairwise(chain):
            # The next rollout is not even granted before its weights are there.
            begin = "granted_at" if (before["phase"], after["phase"]) == ("sync", "rollout") else "started_at"
            if after[begin] < before["ended_at"]:
                early = before["ended_at"] - after[begin]
                yield AuditFinding("order", f"{_name(after)} began {early} us before {_name(before)} had ended")


def _single_holder(header: Record, intervals: list[Record]) -> Iterator[AuditFinding]:
    for slot, held in _by_slot(intervals).items():
        holds = [(one["granted_at"], one["released_at"], one["who"], one) for one in held]
        bodies = [(one["started_at"], one["ended_at"], str(id(one)), one) for one in held]
        for what, spans in (("held", holds), ("used", bodies)):
            for first, second in _overlaps(spans):
                yield AuditFinding(
                    "holders", f"{slot[0]}:{slot[1]} is {what} by {_name(first)} and {_name(second)} at once"
                )


def _overlaps(spans: list[tuple[int, int, str, Record]]) -> Iterator[tuple[Record, Record]]:
    """Pairs that overlap and have different owners; each span is compared with the longest before it."""
    latest: dict[str, tuple[int, Record]] = {}
    for start, end, owner, record in sorted(spans, key=lambda span: span[:3]):
        for other, (until, earlier) in latest.items():
            if other != owner and until > start and end > start:
                yield earlier, record
        latest = {other: last for other, last in latest.items() if last[0] > start}
        if owner not in latest or latest[owner][0] < end:
            latest[owner] = (end, record)


def _residency(header: Record, intervals: list[Record]) -> Iterator[AuditFinding]:
    cluster = header["cluster"]
    share = cluster.get("usable_host_memory", 0.9)
    limits = {node["name"]: share * node["host_memory_bytes"] for node in cluster["nodes"]}
    for node, peak in _pinned_peaks(header, intervals).items():
        if node in limits and peak > limits[node]:
            yield AuditFinding("residency", f"{node} had {peak} bytes pinned, {limits[node]:.0f} are usable")


def _pinned_peaks(header: Record, intervals: list[Record]) -> dict[str, int]:
    """Most bytes pinned to a node at one moment, from the life of each attempt."""
    events: dict[str, list[tuple[int, int]]] = defaultdict(list)
    memory = {job["name"]: job["host_memory"] for job in header["jobs"]}
    for of_attempt in _groups(intervals, "who").values():
        first = of_attempt[0]
        if first["job"] not in memory:
            continue
        start = min(interval["requested_at"] for interval in of_attempt)
        end = max(interval["released_at"] for interval in of_attempt)
        pin = _pin(header, first) or _slots_used(of_attempt)
        for pool in ("rollout", "training"):
            for node in {node for node, _ in pin[pool]}:
                size = memory[first["job"]][f"{pool}_bytes"]
                events[node] += [(start, size), (end, -size)]
    return {node: _peak(changes) for node, changes in events.items()}


def _once(header: Record, intervals: list[Record]) -> Iterator[AuditFinding]:
    asked = {job["name"]: job.get("iterations") for job in header["jobs"]}
    for job, of_job in _groups(intervals, "job").items():
        counts: dict[tuple[int, int, str], int] = defaultdict(int)
        for interval in of_job:
            if interval["phase"] in ORDER:
                counts[interval["attempt"], interval["iteration"], interval["phase"]] += 1
        for (attempt, iteration, phase), count in counts.items():
            if count > 1:
                yield AuditFinding("once", f"{job}#{attempt} ran {phase} {iteration} {count} times")
        yield from _missing(job, asked.get(job), {key for key in counts})


def _missing(job: str, asked: int | None, ran: set[tuple[int, int, str]]) -> Iterator[AuditFinding]:
    """Iterations that the attempts together did not finish; the last attempt at each one counts."""
    if not ran:
        return
    attempts: dict[int, int] = {}
    for attempt, iteration, _ in ran:
        attempts[iteration] = max(attempt, attempts.get(iteration, attempt))
    first, last = min(attempts), max(attempts)
    syncs = any(phase == "sync" for _, _, phase in ran)
    for iteration in range(first, first + asked if asked is not None else last + 1):
        if iteration not in attempts:
            yield AuditFinding("once", f"{job} never ran iteration {iteration}")
            continue
        needed = {"rollout", "training"} | ({"sync"} if syncs and iteration < last else set())
        # An open-ended job may have been cut off in its last iteration.
        if asked is None and iteration == last:
            needed = set()
        for phase in sorted(needed):
            if (attempts[iteration], iteration, phase) not in ran:
                yield AuditFinding("once", f"{job}#{attempts[iteration]} never ran {phase} {iteration}")
    if asked is not None and last >= first + asked:
        yield AuditFinding("once", f"{job} ran iteration {last}, {asked} were asked")


def _pinned(header: Record, intervals: list[Record]) -> Iterator[AuditFinding]:
    devices = {node["name"]: node["num_devices"] for node in header["cluster"]["nodes"]}
    for interval in intervals:
        pin = _pin(header, interval)
        phase = interval["phase"]
        allowed = None
        if pin:
            allowed = pin["rollout"] | pin["training"] if phase not in pin else pin[phase]
        for node, device in interval["slots"]:
            if device >= devices.get(node, 0):
                yield AuditFinding("pins", f"{_name(interval)} ran on {node}:{device}, which the cluster has not")
            elif allowed is not None and (node, device) not in allowed:
                yield AuditFinding("pins", f"{_name(interval)} ran on {node}:{device}, where it was not pinned")


def _tokens(header: Record, intervals: list[Record]) -> Iterator[AuditFinding]:
    for slot, held in _by_slot(intervals).items():
        last = (-1, -1)
        for interval in sorted(held, key=lambda interval: interval["granted_at"]):
            if not interval["token"]:
                continue
            epoch, _, counter = interval["token"].partition(".")
            token = (int(epoch), int(counter))
            if token <= last:
                yield AuditFinding(
                    "tokens",
                    f"{_name(interval)} has {interval['token']} on {slot[0]}:{slot[1]} after {last[0]}.{last[1]}",
                )
            last = max(last, token)


def _figures(header: Record, intervals: list[Record], alone: Mapping[str, list[Record]]) -> AuditFigures:
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
    slowdowns = {job: _slowdown(of_job, alone.get(job, [])) for job, of_job in _groups(intervals, "job").items()}
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
        peak_devices={pool: _peak(changes) for pool, changes in holds.items()},
        peak_host_memory=_pinned_peaks(header, intervals),
        iterations={
            job: len({one["iteration"] for one in of_job if one["phase"] in ORDER})
            for job, of_job in _groups(intervals, "job").items()
        },
    )


def _slowdown(intervals: list[Record], alone: list[Record]) -> float:
    """Wall time of all attempts over the solo time of the last attempt at each iteration."""
    factors = {phase: _interference(intervals, alone, phase) for phase in ("rollout", "training")}
    wall, solo = 0.0, {}
    attempts = sorted({one["attempt"] for one in intervals})
    for attempt in attempts:
        of_attempt = [one for one in intervals if one["attempt"] == attempt]
        work = [one for one in of_attempt if one["phase"] in ORDER]
        if not work:
            continue
        start = min(one["requested_at"] for one in (work if attempt == attempts[0] else of_attempt))
        end = max(one["ended_at"] for one in of_attempt)
        wall += (end - start) / MICROSECONDS
        begins = sorted(
            (min(one["requested_at"] for one in group), i) for i, group in _groups(work, "iteration").items()
        )
        begins[0] = (start, begins[0][1])
        for (begin, iteration), (until, _) in zip(begins, [*begins[1:], (end, -1)], strict=True):
            own = [one for one in of_attempt if one["iteration"] == iteration or one["phase"] == "loading"]
            solo[iteration] = _solo_seconds(own, begin, until, factors)
    return wall / sum(solo.values()) if solo and sum(solo.values()) else 1.0


def _solo_seconds(own: list[Record], begin: int, until: int, factors: Mapping[str, float]) -> float:
    clipped = [(max(begin, one["requested_at"]), min(until, one["released_at"])) for one in own]
    total = (until - begin - _covered(clipped)) / MICROSECONDS
    for phase in ORDER:
        body = _covered((one["started_at"], one["ended_at"]) for one in own if one["phase"] == phase)
        total += body / MICROSECONDS / factors.get(phase, 1.0)
    return total


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
            return rates[0] / rates[1]
    means = [
        sum(one["ended_at"] - one["started_at"] for one in run)
        / len({(one["attempt"], one["iteration"]) for one in run})
        for run in (shared, solo)
    ]
    return means[0] / means[1]


def _pin(header: Record, interval: Record) -> dict[str, set[tuple[str, int]]] | None:
    for job in header["jobs"]:
        for pin in job.get("pins", ()):
            if (job["name"], pin["attempt"]) == (interval["job"], interval["attempt"]):
                return {
                    pool: {(slot["node"], slot["device"]) for slot in pin.get(pool, ())}
                    for pool in ("rollout", "training")
                }
    return None


def _slots_used(intervals: list[Record]) -> dict[str, set[tuple[str, int]]]:
    return {
        pool: {slot for one in intervals if one["phase"] == pool for slot in one["slots"]}
        for pool in ("rollout", "training")
    }


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


def _peak(changes: list[tuple[int, int]]) -> int:
    """Highest running sum; at one moment what leaves goes first."""
    running = highest = 0
    for _, change in sorted(changes):
        running += change
        highest = max(highest, running)
    return highest


def _covered(spans: Iterable[tuple[int, int]]) -> int:
    """Length covered by at least one span, by sweeping over their ends."""
    edges = sorted((at, step) for start, end in spans if end > start for at, step in ((start, 1), (end, -1)))
    covered = depth = last = 0
    for at, step in edges:
        covered += (at - last) if depth else 0
        depth, last = depth + step, at
    return covered
