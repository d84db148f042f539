"""What the controller publishes for people: `weaverl status`, `explain` and `top` read it, also when it is down."""

import msgspec

from weaverl.control.shares import TenantStatus, standings, tenants
from weaverl.domain.commands import Verdict
from weaverl.domain.groups import Group
from weaverl.domain.jobs import JobState
from weaverl.scheduling.index import index_of
from weaverl.scheduling.lifecycle import nodes_of
from weaverl.scheduling.moves import destination, purpose
from weaverl.scheduling.rotation_state import permits_of
from weaverl.scheduling.round_model import MICROSECONDS, allowed_us
from weaverl.scheduling.scheduler import Scheduler
from weaverl.scheduling.state import ClusterState, JobRecord, NodeRecord

ENDED_SHOWN = 200
"""Ended jobs that are published, the latest ones: a cluster lives for months, and its status is written often."""


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A node; ``state`` is ready, away, or quarantined; ``doing`` what its slots hold."""

    name: str
    pool: str
    state: str
    group: str | None
    doing: str
    host_used_bytes: int
    host_usable_bytes: int


class JobStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A job; ``doing`` is the phase it holds a permit for or waits for.

    ``slowdown``: of all iterations that are over. ``slack_seconds``: what more they could have lost without breaking
    the promise; below 0 those ahead have to make it good. ``late``: its slots are kept free for it.
    ``planned_move`` and ``stays_because``: where it is to move and what for, and why its last plan was dropped.
    ``standing``: in a shared cluster, where it is in the queue, or how its deadline binds it.
    """

    name: str
    tenant: str
    state: JobState
    attempt: int
    reason: str
    group: str | None
    nodes: tuple[str, ...]
    iterations_done: int
    iterations: int | None
    slo: float
    predicted_slowdown: float | None
    doing: str
    verdicts: tuple[Verdict, ...]
    last_lines: tuple[str, ...]
    slowdown: float | None = None
    slack_seconds: float | None = None
    late: bool = False
    moves: int = 0
    planned_move: str = ""
    stays_because: str = ""
    standing: str = ""


class ClusterStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The whole cluster, with the latest of its ended jobs. ``written_at`` is wall time in seconds.

    ``policy`` is unknown where a controller of an earlier version wrote this. ``tenants`` and ``shared_by`` are empty
    unless the cluster is shared.
    """

    cluster: str
    written_at: float
    epoch: int
    usd_per_hour: float
    nodes: tuple[NodeStatus, ...]
    groups: tuple[Group, ...]
    jobs: tuple[JobStatus, ...]
    num_older_jobs: int = 0
    policy: str = "unknown"
    objective: str = "dollars"
    tenants: tuple[TenantStatus, ...] = ()
    shared_by: str = ""


def describe(scheduler: Scheduler, written_at: float) -> ClusterStatus:
    """The status of a moment."""
    state = scheduler.state
    groups = tuple(group for _, group in sorted(state.groups.items()))
    shown, standing = _shown(state), standings(state)
    sharing = state.cluster.sharing
    return ClusterStatus(
        cluster=state.cluster.name,
        written_at=written_at,
        epoch=state.epoch,
        usd_per_hour=sum((state.usd_per_hour(group.nodes) for group in groups), 0.0),
        nodes=tuple(_node(scheduler, record) for _, record in sorted(state.nodes.items())),
        groups=groups,
        jobs=tuple(_job(scheduler, record, standing.get(record.spec.name, "")) for record in shown),
        num_older_jobs=len(state.jobs) - len(shown),
        policy=state.parameters.policy,
        objective=state.parameters.objective,
        tenants=tenants(state),
        shared_by="" if sharing is None else str(sharing.by),
    )


def _shown(state: ClusterState) -> list[JobRecord]:
    """Living jobs and the latest ended ones, in the order of their submission."""
    ended = [(record.ended_at, name) for name, record in state.jobs.items() if record.ended_at is not None]
    older = {name for _, name in sorted(ended)[:-ENDED_SHOWN]}
    return [record for name, record in state.jobs.items() if name not in older]


def _node(scheduler: Scheduler, record: NodeRecord) -> NodeStatus:
    state, name = scheduler.state, record.node.name
    group = next((group.name for group in state.groups.values() if name in group.nodes), None)
    return NodeStatus(
        name=name,
        pool=str(record.node.pool),
        state="ready" if record.usable else "quarantined" if record.ready else "away",
        group=group,
        doing=_occupants(scheduler, state, group, name),
        host_used_bytes=index_of(state).resident_bytes(name),
        host_usable_bytes=state.usable_host_bytes(name),
    )


def _occupants(scheduler: Scheduler, state: ClusterState, group: str | None, node: str) -> str:
    if group is None:
        return ""
    rotation = scheduler.rotation(group)
    held = [
        f"{permit.grant.job} {permit.grant.phase} {permit.grant.iteration}"
        for permit in rotation.permits.values()
        if any(slot.node == node for slot in permit.grant.slots)
    ]
    lingering = [
        f"{left.grant.job} lingers"
        for left in rotation.lingering
        if not permits_of(rotation, left.grant.job) and any(slot.node == node for slot in left.grant.slots)
    ]
    return ", ".join(held + lingering)


def _job(scheduler: Scheduler, record: JobRecord, standing: str) -> JobStatus:
    state, progress = scheduler.state, record.progress
    move = state.moves.get(record.spec.name)
    wall_us, solo_us = progress.lap_us if record.live else (progress.wall_us, progress.solo_us)
    return JobStatus(
        name=record.spec.name,
        tenant=record.spec.tenant,
        state=record.state,
        attempt=record.attempt,
        reason=record.reason,
        group=record.group,
        nodes=nodes_of(record),
        iterations_done=record.iterations_done,
        iterations=record.spec.iterations,
        slo=record.slo,
        predicted_slowdown=record.predicted_slowdown,
        doing=_doing(scheduler, record),
        verdicts=record.verdicts,
        last_lines=record.last_lines,
        slowdown=wall_us / solo_us if solo_us else None,
        slack_seconds=(allowed_us(record.slo, solo_us) - wall_us) / MICROSECONDS if solo_us else None,
        late=scheduler.is_late(record.spec.name),
        moves=record.moves,
        planned_move=f"to {destination(move)}, to {purpose(move)}" if move else "",
        stays_because=record.stays_because,
        standing=standing,
    )


def _doing(scheduler: Scheduler, record: JobRecord) -> str:
    if record.group is None:
        return ""
    rotation = scheduler.rotation(record.group)
    name = record.spec.name
    if permits := permits_of(rotation, name):
        return ", ".join(f"{permit.grant.phase} {permit.grant.iteration}" for permit in permits)
    return ", ".join(f"waits for {one.phase} {one.iteration}" for one in rotation.waiting if one.job == name)
