"""Arrivals, groups and queue: which job is pinned where, and why the others wait."""

from collections.abc import Callable, Iterator

import msgspec

from weaverl.domain.cluster import PoolKind, Slot
from weaverl.domain.commands import AdmitJob, AnyCommand, QueueJob, RegroupJobs, StartRank
from weaverl.domain.events import RankId
from weaverl.domain.groups import Group, Pin
from weaverl.domain.jobs import JobSpec, JobState, Placement, Role, master_role
from weaverl.scheduling.admission import Decision
from weaverl.scheduling.backfilling import has_been_passed_enough, would_delay
from weaverl.scheduling.index import index_of, trial_of
from weaverl.scheduling.policies import colocated, gavel, solo, weave, weave_paper
from weaverl.scheduling.progress import left_us
from weaverl.scheduling.sharing.order import in_turn
from weaverl.scheduling.sharing.promises import bound_of, impossible_by_deadline, promised_spec
from weaverl.scheduling.state import ClusterState, JobRecord, RankRecord, rank_key

_UNKNOWN_LENGTH_US = 30 * 24 * 3600 * 1_000_000
"""How long a job is taken to run that does not say its iterations."""

_NEVER = 1000 * _UNKNOWN_LENGTH_US


_ONE_PHASE_AT_A_TIME = ("colocated", "gavel")
"""Policies under which a job's phases use the same slots, or take turns on all of a group's."""

_POLICIES: dict[str, Callable[[ClusterState, JobSpec], Decision]] = {
    "weave-paper": weave_paper.choose,
    "weave": weave.choose,
    "solo": solo.choose,
    "colocated": colocated.choose,
    "gavel": gavel.choose,
}


def impossible(state: ClusterState, spec: JobSpec) -> str:
    """Why the job could not run even on the empty cluster, or an empty string."""
    if spec.staleness and spec.placement is not Placement.DISAGGREGATED:
        return f"has staleness {spec.staleness}, which a {spec.placement} job cannot have: its phases share their slots"
    if spec.staleness and state.parameters.policy in _ONE_PHASE_AT_A_TIME:
        return (
            f"has staleness {spec.staleness}, so that rollout and training run side by side, and policy "
            f"{state.parameters.policy} has room for one of them at a time: choose weave, weave-paper or solo"
        )
    catalog = index_of(state).catalog
    for pool, num_gpus, needs in _needs(state, spec):
        devices = catalog.num_devices(pool)
        if num_gpus > devices:
            return f"asks {num_gpus} {pool} GPUs, the pool has {devices}: ask fewer"
        most = max((of.usable_bytes for of in catalog.classes(pool)), default=0)
        if needs > most:
            return (
                f"asks {needs / 2**30:.1f} GiB of host memory on each {pool} node, the largest has "
                f"{most / 2**30:.1f} GiB usable: ask less"
            )
    sharing = state.cluster.sharing
    return "" if sharing is None or sharing.deadlines is None else impossible_by_deadline(sharing.deadlines, spec)


def _needs(state: ClusterState, spec: JobSpec) -> Iterator[tuple[PoolKind, int, int]]:
    """Pool, GPUs asked and host bytes on each node, as the policy would place the job alone."""
    memory = spec.host_memory
    if state.parameters.policy == "colocated":
        yield PoolKind.TRAINING, spec.training_gpus, memory.rollout_bytes + memory.training_bytes
        return
    yield PoolKind.ROLLOUT, spec.rollout_gpus, memory.rollout_bytes
    yield PoolKind.TRAINING, spec.training_gpus, memory.training_bytes


def choose(state: ClusterState, spec: JobSpec) -> Decision:
    """Where the policy would place the job now, with the reason for each placement that was refused before."""
    return _POLICIES[state.parameters.policy](state, spec)


def place_queue(state: ClusterState) -> Iterator[AnyCommand]:
    """Admit what fits, in queue order; a job is told once why it waits. The caller folds each command at once.

    A later job may pass the first that does not fit only if the first's expected start does not move. A job is looked
    at again only if something has changed since, or another job is the first now.
    """
    first: JobRecord | None = None
    for name in in_turn(state):
        index, record = index_of(state), state.jobs[name]
        is_shared = state.cluster.sharing is not None
        is_bound = is_shared and bound_of(state, record) is not None
        seen: tuple[int, str | None, bool] = (index.version, first.spec.name if first else "", is_bound)
        if index.looked_at.get(name) in (seen, (index.version, None, is_bound)):
            first = first or record
            continue
        decision = choose(state, asked_spec(state, record))
        if decision.chosen is not None and not (first and _delays(state, first, record, decision)):
            yield from admit(state, record, decision)
            continue
        if is_shared and decision.chosen is None:  # in a shared cluster the first changes often
            seen = (index.version, None, is_bound)
        index.looked_at[name] = seen
        first = first or record
        verdicts = decision.verdicts
        if decision.chosen is not None:
            waits = f"would delay {first.spec.name}, which is before it in the queue"
            verdicts = (*verdicts[:-1], msgspec.structs.replace(verdicts[-1], refused=waits))
        if verdicts != record.verdicts:
            yield QueueJob(job=record.spec.name, verdicts=verdicts)


def admit(state: ClusterState, record: JobRecord, decision: Decision) -> Iterator[AnyCommand]:
    """Pin the job where it was decided, and start its ranks."""
    yield _admission(state, record, decision)
    yield from start_ranks(state, record)


def planning_spec(record: JobRecord) -> JobSpec:
    """The job's description with the profile and the promise that are known by now."""
    return msgspec.structs.replace(record.spec, profile=record.profile, slo=record.slo)


def asked_spec(state: ClusterState, record: JobRecord) -> JobSpec:
    """A waiting job as it would be placed now."""
    spec = msgspec.structs.replace(record.spec, profile=record.profile)
    return spec if state.cluster.sharing is None else promised_spec(state, record, spec)


def fold_admission(state: ClusterState, command: AdmitJob) -> None:
    """Fold an admission: the job is pinned and its ranks are to start."""
    record = state.jobs[command.job]
    record.pin, record.group = command.pin, command.group.name
    record.state, record.admitted_at = JobState.STARTING, state.now
    record.verdicts, record.profiling = command.verdicts, command.profiling
    record.bound, record.way_made = command.bound, False
    record.started_at, record.checkpoints, record.num_synced, record.unsaved = None, {}, 0, 0
    state.moves.pop(command.job, None)
    state.changed.jobs[command.job] = None
    for name, slowdown in command.predicted_slowdowns.items():
        state.jobs[name].predicted_slowdown = slowdown
    if command.group.name not in state.groups:
        state.groups_made += 1
    fold_group(state, command.group)


def fold_group(state: ClusterState, group: Group) -> None:
    """Fold a group's new shape; a group without members is gone."""
    state.changed.groups[group.name] = None
    state.version += 1
    if group.members:
        state.groups[group.name] = group
    else:
        state.groups.pop(group.name, None)


def fold_start(state: ClusterState, command: StartRank) -> None:
    """Fold the start of a rank."""
    ranks = state.jobs[command.rank.job].ranks
    ranks[rank_key(command.rank)] = RankRecord(command.rank, command.node)


def without_job(state: ClusterState, record: JobRecord) -> RegroupJobs:
    """The job's group after it left: nodes that no member uses are given back."""
    assert record.group is not None
    group = state.groups[record.group]
    stay = tuple(name for name in group.members if name != record.spec.name)
    pins = [pin for pin in (state.jobs[name].pin for name in stay) if pin is not None]
    used = {slot.node for pin in pins for slot in pin.rollout + pin.training}
    return RegroupJobs(
        group=msgspec.structs.replace(
            group,
            rollout_nodes=tuple(node for node in group.rollout_nodes if node in used),
            training_nodes=tuple(node for node in group.training_nodes if node in used),
            members=stay,
        )
    )


def start_ranks(state: ClusterState, record: JobRecord) -> Iterator[StartRank]:
    """One command for each process of an admitted job."""
    pin = record.pin
    assert pin is not None
    homes = {role.name: _homes(role, pin) for role in record.spec.roles}
    sizes = {role.name: role.processes_per_node * len(homes[role.name]) for role in record.spec.roles}
    master = homes[master_role(sizes)][0]
    for role in record.spec.roles:
        for place, node in enumerate(homes[role.name]):
            for local in range(role.processes_per_node):
                yield StartRank(
                    rank=RankId(record.spec.name, record.attempt, role.name, place * role.processes_per_node + local),
                    node=node,
                    role=role,
                    world_size=sizes[role.name],
                    slots=_share(_role_slots(role, pin, node), local, role.processes_per_node),
                    role_sizes=sizes,
                    master_node=master,
                    host_bytes=_host_bytes(role, record.spec) // role.processes_per_node,
                    working_directory=record.spec.working_directory,
                    environment=record.spec.environment,
                    checkpoint_directory=record.spec.checkpoint_directory,
                )


def _homes(role: Role, pin: Pin) -> tuple[str, ...]:
    """The nodes whose agents start the role: its pool's; a driver lives beside the first rollout rank."""
    if role.name == "rollout":
        return pin.nodes(PoolKind.ROLLOUT)
    if role.name == "training":
        return pin.nodes(PoolKind.TRAINING)
    return pin.nodes(PoolKind.ROLLOUT)[:1]


def _host_bytes(role: Role, spec: JobSpec) -> int:
    """Host memory that a role may keep state in on a node; 0 for roles that keep none."""
    memory = spec.host_memory
    shares = {"rollout": memory.rollout_bytes, "training": memory.training_bytes}
    return shares.get(role.name, sum(shares.values()) if role.name == "run" else 0)


def _role_slots(role: Role, pin: Pin, node: str) -> tuple[Slot, ...]:
    if role.name == "run":
        return tuple(dict.fromkeys(pin.rollout + pin.training))
    slots = {"rollout": pin.rollout, "training": pin.training}.get(role.name, ())
    return tuple(slot for slot in slots if slot.node == node)


def _share(slots: tuple[Slot, ...], local: int, processes: int) -> tuple[Slot, ...]:
    """The part of a node's slots that one of its processes drives; more processes than slots share them."""
    if len(slots) % processes:
        return slots
    size = len(slots) // processes
    return slots[local * size : (local + 1) * size]


def _admission(state: ClusterState, record: JobRecord, decision: Decision) -> AdmitJob:
    assert decision.chosen is not None and decision.chosen.pin is not None
    return AdmitJob(
        job=record.spec.name,
        attempt=record.attempt,
        group=decision.chosen.group,
        pin=decision.chosen.pin,
        verdicts=decision.verdicts,
        predicted_slowdowns=decision.slowdowns,
        profiling=record.profile is None,
        bound=None if state.cluster.sharing is None else bound_of(state, record),
    )


def _delays(state: ClusterState, first: JobRecord, later: JobRecord, decision: Decision) -> bool:
    """Whether the placement of a later job would move the expected start of the first in the queue."""
    candidate = decision.chosen
    assert candidate is not None
    is_awaited = any(move.paused_for == first.spec.name for move in state.moves.values())
    if state.parameters.for_throughput and not is_awaited:
        return would_delay(state, first, planning_spec(later), decision)
    start = _start_of_first(state, first)
    if start < _NEVER and has_been_passed_enough(state, first):
        return True
    trial = trial_of(state)
    change(
        trial,
        later.spec.name,
        pin=candidate.pin,
        group=candidate.group.name,
        admitted_at=state.now,
        state=JobState.STARTING,
    )
    for name, slowdown in decision.slowdowns.items():
        change(trial, name, predicted_slowdown=slowdown)
    fold_group(trial, candidate.group)
    return _expected_start(trial, first, start) > start


def _start_of_first(state: ClusterState, first: JobRecord) -> int:
    """When the first in the queue is expected to start as things are; looked up once for all jobs behind it.

    By what is left of the running jobs now: with an older answer nobody's could be compared.
    """
    index = index_of(state)
    key = (index.version, state.now, first.spec.name)
    if index.expected_start is None or index.expected_start[0] != key:
        index.expected_start = (key, _expected_start(trial_of(state), first, _NEVER))
    return index.expected_start[1]


def _expected_start(trial: ClusterState, first: JobRecord, latest: int) -> int:
    """When the job would fit, if the running jobs end as planned; never, if not by the latest. Consumes the trial."""
    running = [trial.jobs[name] for group in trial.groups.values() for name in group.members]
    ends = {record.spec.name: _expected_end(trial, record) for record in running}
    for record in sorted(running, key=lambda r: (ends[r.spec.name], r.spec.name)):
        end = ends[record.spec.name]
        if end > latest:
            break
        fold_group(trial, without_job(trial, record).group)
        change(trial, record.spec.name, state=JobState.FINISHED, pin=None, group=None)
        if choose(trial, asked_spec(trial, first)).chosen is not None:
            return end
    return _NEVER


def change(trial: ClusterState, job: str, **fields: object) -> None:
    """Change a record of a trial, which shares its records with the state."""
    trial.jobs[job] = msgspec.structs.replace(trial.jobs[job], **fields)
    trial.changed.jobs[job] = None


def _expected_end(state: ClusterState, record: JobRecord) -> int:
    """When a running job leaves its place: one that stops or makes way for another, at once or with its iteration."""
    assert record.admitted_at is not None
    move = state.moves.get(record.spec.name)
    if record.ending is not None or (move is not None and move.paused_for):
        return state.now
    if record.spec.iterations is None or record.profile is None:
        return max(record.admitted_at + _UNKNOWN_LENGTH_US, state.now)
    slowdown = record.predicted_slowdown or 1.0
    return state.now + round(left_us(record, record.profile) * slowdown)
