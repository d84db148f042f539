"""Whether a candidate placement may be: host memory on every node, and every member's promise."""

import msgspec

from weaverl.domain.cluster import Cluster, PoolKind
from weaverl.domain.groups import Group, Pin
from weaverl.domain.jobs import JobSpec
from weaverl.scheduling.round_model import Member, Switches, cycle_us, planned_durations
from weaverl.scheduling.state import ClusterState, as_member


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


def switches_of(cluster: Cluster) -> Switches:
    """The cluster's switch costs in microseconds."""
    return Switches(round(cluster.switch.rollout_seconds * 1e6), round(cluster.switch.training_seconds * 1e6))


def judge(state: ClusterState, candidate: Candidate, spec: JobSpec) -> Judgement:
    """Check residency and promises of a candidate."""
    if candidate.pin is None:
        return Judgement(refused=candidate.refused)
    if spec.profile is None:
        return Judgement(slowdowns={spec.name: 1.0})
    members = [as_member(record) for record in state.members(candidate.group) if record.spec.name != spec.name]
    members.append(Member(spec.name, candidate.pin, planned_durations(spec.profile)))
    slowdowns = predicted_slowdowns(members, switches_of(state.cluster))
    return Judgement(refused=_broken_promise(state, spec, slowdowns), slowdowns=slowdowns)


def predicted_slowdowns(members: list[Member], switches: Switches) -> dict[str, float]:
    """Round time over solo time of each member: in a round every member runs one iteration.

    Members that share no slot, even through others, are not slowed by each other.
    """
    slowdowns: dict[str, float] = {}
    for part in _connected(members):
        cycle = cycle_us(part, switches)
        slowdowns.update({member.job: float(cycle / member.durations.solo_us) for member in part})
    return slowdowns


def lacking_memory(state: ClusterState, spec: JobSpec, pool: PoolKind, node: str) -> str:
    """Why a node's host memory does not hold the job, or an empty string."""
    memory = spec.host_memory
    needs = memory.rollout_bytes if pool is PoolKind.ROLLOUT else memory.training_bytes
    free = state.usable_host_bytes(node) - state.resident_host_bytes(node)
    return "" if needs <= free else f"needs {gibibytes(needs)} on {node}, {gibibytes(max(free, 0))} free"


def gibibytes(num_bytes: int) -> str:
    """Bytes for people."""
    return f"{num_bytes / 2**30:.0f} GiB" if num_bytes >= 10 * 2**30 else f"{num_bytes / 2**20:.0f} MiB"


def _broken_promise(state: ClusterState, spec: JobSpec, slowdowns: dict[str, float]) -> str:
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
