"""Whether a candidate placement may be: host memory on every node, and every member's promise."""

from collections.abc import Iterable
from fractions import Fraction

import msgspec

from weaverl.domain.commands import Verdict
from weaverl.domain.groups import Group, Pin
from weaverl.domain.jobs import JobSpec
from weaverl.scheduling.index import index_of
from weaverl.scheduling.round_model import Member, allowed_us, cycle_us
from weaverl.scheduling.state import ClusterState, planned_member

CLOSED = "saturated, or a member is being profiled or is leaving"
NO_ROOM = "too little host memory, or too few devices"
BREAKS_PROMISE = "would slow a job past its SLO"
DEARER = "adds more dollars in all"
"""Sorts of reasons, where no name and no number is told."""

_TOLD_IN_FULL = 12


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A placement that could be taken: the group as it would be, and the job's slots.

    Without a pin it never was possible, for the reason given; ``sort`` is the reason without names and numbers.
    """

    kind: str
    group: Group
    added_usd_per_hour: float
    pin: Pin | None = None
    refused: str = ""
    sort: str = NO_ROOM


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """The answer for one candidate; admitted when ``refused`` is empty.

    ``added_usd`` is what it is expected to add in all, where the policy asks for that.
    """

    refused: str = ""
    slowdowns: dict[str, float] = {}
    added_usd: float | None = None


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The placement chosen for a job, if any, and all that was looked at before it."""

    chosen: Candidate | None
    verdicts: tuple[Verdict, ...]
    slowdowns: dict[str, float] = {}


class Told:
    """Verdicts on what was refused for a job: the cheapest in full, the others counted by reason."""

    def __init__(self, in_full: int = _TOLD_IN_FULL) -> None:
        self._in_full = in_full
        self._verdicts: list[Verdict] = []
        self._others: dict[tuple[str, str], tuple[int, float]] = {}

    @property
    def room(self) -> int:
        """How many more are told in full."""
        return max(self._in_full - len(self._verdicts), 0)

    def tell(self, verdict: Verdict) -> None:
        """One that was refused, in full."""
        self._verdicts.append(verdict)

    def refused(self, candidate: Candidate, judgement: Judgement) -> None:
        """One that was refused; why the job cannot be alone is always told."""
        if self.room or candidate.kind == "isolate":
            self.tell(verdict_on(candidate, judgement))
        else:
            self.count(candidate.kind, _sort_of(candidate, judgement), 1, candidate.added_usd_per_hour)

    def count(self, kind: str, reason: str, number: int, usd_per_hour: float) -> None:
        """Some more that were refused for a reason of one sort."""
        if number:
            before, least = self._others.get((kind, reason), (0, usd_per_hour))
            self._others[kind, reason] = (before + number, min(least, usd_per_hour))

    def verdicts(self, *chosen: Verdict) -> tuple[Verdict, ...]:
        """All of them, and what was chosen last."""
        counted = (
            Verdict(kind=kind, group=f"{number:,} more", added_usd_per_hour=usd, refused=reason)
            for (kind, reason), (number, usd) in sorted(self._others.items(), key=lambda one: (one[1][1], one[0]))
        )
        return (*self._verdicts, *counted, *chosen)


def _sort_of(candidate: Candidate, judgement: Judgement) -> str:
    """The reason without names and numbers."""
    if candidate.pin is None:
        return candidate.sort
    return DEARER if judgement.refused == DEARER else BREAKS_PROMISE


def first_admitted(
    state: ClusterState, candidates: Iterable[Candidate], spec: JobSpec, in_full: int = _TOLD_IN_FULL
) -> Decision:
    """The first candidate that keeps every promise, with the reasons of those that were refused before it."""
    told = Told(in_full)
    for candidate in candidates:
        judgement = judge(state, candidate, spec)
        if not judgement.refused:
            return decided(candidate, judgement, told)
        told.refused(candidate, judgement)
    return Decision(chosen=None, verdicts=told.verdicts())


def decided(candidate: Candidate, judgement: Judgement, told: Told) -> Decision:
    """The decision for a candidate after others were refused."""
    verdicts = told.verdicts(verdict_on(candidate, judgement))
    return Decision(chosen=candidate, verdicts=verdicts, slowdowns=judgement.slowdowns)


def verdict_on(candidate: Candidate, judgement: Judgement, *, refused: str | None = None) -> Verdict:
    """What is told of a candidate that was looked at; ``refused`` where the policy does not follow the judgement."""
    return Verdict(
        kind=candidate.kind,
        group=candidate.group.name,
        added_usd_per_hour=candidate.added_usd_per_hour,
        predicted_slowdowns=judgement.slowdowns,
        refused=judgement.refused if refused is None else refused,
        added_usd=judgement.added_usd,
    )


def judge(state: ClusterState, candidate: Candidate, spec: JobSpec) -> Judgement:
    """Check residency and promises of a candidate."""
    if candidate.pin is None:
        return Judgement(refused=candidate.refused)
    if spec.profile is None:
        return Judgement(slowdowns={spec.name: 1.0})
    touched = _part_of_last(members_with(state, candidate, spec))
    cycle = cycle_us(touched)
    slowdowns = _slowdowns(touched, cycle)
    for member in touched:
        slo = spec.slo if member.job == spec.name else state.jobs[member.job].slo
        if cycle > allowed_us(slo, member.solo_us):
            return Judgement(refused=breaks_promise(member.job, slowdowns[member.job], slo), slowdowns=slowdowns)
    return Judgement(slowdowns=slowdowns)


def members_with(state: ClusterState, candidate: Candidate, spec: JobSpec) -> list[Member]:
    """The group's members as they would be, the job, which need not be known to the state, last."""
    assert candidate.pin is not None and spec.profile is not None
    others = index_of(state).members(name for name in candidate.group.members if name != spec.name)
    return [*others, planned_member(state, spec.name, spec.profile, candidate.pin)]


def breaks_promise(job: str, slowdown: float, slo: float) -> str:
    """How a placement would break a job's promise."""
    return f"would slow {job} to {slowdown:.2f}x, its SLO is {slo:.2f}x"


def predicted_slowdowns(members: list[Member]) -> dict[str, float]:
    """Round time over solo time of each member: in a round every member runs one iteration.

    Members that share no slot, even through others, are not slowed by each other.
    """
    slowdowns: dict[str, float] = {}
    left = members
    while left:
        part = _part_of_last(left)
        slowdowns |= _slowdowns(part, cycle_us(part))
        left = [member for member in left if member.job not in slowdowns]
    return {member.job: slowdowns[member.job] for member in members}


def _slowdowns(members: list[Member], cycle: Fraction) -> dict[str, float]:
    return {member.job: float(cycle / member.solo_us) for member in members}


def _part_of_last(members: list[Member]) -> list[Member]:
    """The last member and all that share slots with it, also through others, in rotation order: only those it slows."""
    found = {members[-1].job}
    slots = {*members[-1].pin.rollout, *members[-1].pin.training}
    while near := [m for m in members if m.job not in found and not slots.isdisjoint(m.pin.rollout + m.pin.training)]:
        for member in near:
            found.add(member.job)
            slots.update(member.pin.rollout, member.pin.training)
    return [member for member in members if member.job in found]


def short_of(needs_bytes: int, node: str, free_bytes: int) -> str:
    """How a node's host memory is too little."""
    return f"needs {gibibytes(needs_bytes)} on {node}, {gibibytes(max(free_bytes, 0))} free"


def gibibytes(num_bytes: int) -> str:
    """Bytes for people."""
    return f"{num_bytes / 2**30:.0f} GiB" if num_bytes >= 10 * 2**30 else f"{num_bytes / 2**20:.0f} MiB"
