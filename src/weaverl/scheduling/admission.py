"""Whether a candidate placement may be: host memory on every node, and every member's promise."""

from collections.abc import Iterable

import msgspec

from weaverl.domain.commands import Verdict
from weaverl.domain.groups import Group, Pin
from weaverl.domain.jobs import JobSpec
from weaverl.scheduling.round_model import Member, cycle_us
from weaverl.scheduling.state import ClusterState, as_member, planned_member


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A placement that could be taken: the group as it would be, and the job's slots.

    Without a pin it never was possible, for the reason given.
    """

    kind: str
    group: Group
    added_usd_per_hour: float
    pin: Pin | None = None
    refused: str = ""


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """The answer for one candidate; admitted when ``refused`` is empty."""

    refused: str = ""
    slowdowns: dict[str, float] = {}


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The placement chosen for a job, if any, and all that was looked at before it."""

    chosen: Candidate | None
    verdicts: tuple[Verdict, ...]
    slowdowns: dict[str, float] = {}


def first_admitted(state: ClusterState, candidates: Iterable[Candidate], spec: JobSpec) -> Decision:
    """The first candidate that keeps every promise, with the reason for each that was refused before it."""
    verdicts: list[Verdict] = []
    for candidate in candidates:
        judgement = judge(state, candidate, spec)
        verdicts.append(verdict_on(candidate, judgement))
        if not judgement.refused:
            return Decision(chosen=candidate, verdicts=tuple(verdicts), slowdowns=judgement.slowdowns)
    return Decision(chosen=None, verdicts=tuple(verdicts))


def verdict_on(candidate: Candidate, judgement: Judgement, *, refused: str | None = None) -> Verdict:
    """What is told of a candidate that was looked at; ``refused`` where the policy does not follow the judgement."""
    return Verdict(
        kind=candidate.kind,
        group=candidate.group.name,
        added_usd_per_hour=candidate.added_usd_per_hour,
        predicted_slowdowns=judgement.slowdowns,
        refused=judgement.refused if refused is None else refused,
    )


def judge(state: ClusterState, candidate: Candidate, spec: JobSpec) -> Judgement:
    """Check residency and promises of a candidate."""
    if candidate.pin is None:
        return Judgement(refused=candidate.refused)
    if spec.profile is None:
        return Judgement(slowdowns={spec.name: 1.0})
    members = [as_member(state, record) for record in state.members(candidate.group) if record.spec.name != spec.name]
    members.append(planned_member(state, spec.name, spec.profile, candidate.pin))
    slowdowns = predicted_slowdowns(members)
    return Judgement(refused=broken_promise(state, spec, slowdowns), slowdowns=slowdowns)


def predicted_slowdowns(members: list[Member]) -> dict[str, float]:
    """Round time over solo time of each member: in a round every member runs one iteration.

    Members that share no slot, even through others, are not slowed by each other.
    """
    slowdowns: dict[str, float] = {}
    for part in _connected(members):
        cycle = cycle_us(part)
        slowdowns.update({member.job: float(cycle / member.solo_us) for member in part})
    return slowdowns


def lacking_memory(state: ClusterState, needs_bytes: int, node: str) -> str:
    """Why a node's host memory does not hold that much more, or an empty string."""
    free = state.usable_host_bytes(node) - state.resident_host_bytes(node)
    return "" if needs_bytes <= free else f"needs {gibibytes(needs_bytes)} on {node}, {gibibytes(max(free, 0))} free"


def gibibytes(num_bytes: int) -> str:
    """Bytes for people."""
    return f"{num_bytes / 2**30:.0f} GiB" if num_bytes >= 10 * 2**30 else f"{num_bytes / 2**20:.0f} MiB"


def broken_promise(state: ClusterState, spec: JobSpec, slowdowns: dict[str, float]) -> str:
    """The first promise that these slowdowns would break, or an empty string."""
    for job, slowdown in slowdowns.items():
        slo = spec.slo if job == spec.name else state.jobs[job].spec.slo
        if slowdown > slo:
            return f"would slow {job} to {slowdown:.2f}x, its SLO is {slo:.2f}x"
    return ""


def _connected(members: list[Member]) -> list[list[Member]]:
    """Members in parts that share slots, each part in rotation order."""
    parts: list[list[Member]] = []
    for member in members:
        slots = {*member.pin.rollout, *member.pin.training}
        touching = [part for part in parts if any(slots & {*m.pin.rollout, *m.pin.training} for m in part)]
        parts = [part for part in parts if part not in touching]
        parts.append([m for part in touching for m in part] + [member])
    return [sorted(part, key=members.index) for part in parts]
