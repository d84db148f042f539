"""What would happen if a job were submitted now: asked of a copy of the scheduler, so that nothing changes.

If the job would wait, the copy is told of the expected ends of the jobs before it, one after the other, and what it
decides then is the answer: the queue's rules and the placement are the live ones.
"""

from fractions import Fraction

import msgspec

from weaverl.domain.commands import Verdict
from weaverl.domain.events import DeathConfirmed, ProcessExited
from weaverl.domain.jobs import JobSpec
from weaverl.scheduling.admission import first_admitted, predicted_slowdowns
from weaverl.scheduling.expected_dollars import slowdowns_of, stay_of
from weaverl.scheduling.lifecycle import nodes_of
from weaverl.scheduling.policies.one_by_one import candidates
from weaverl.scheduling.round_model import MICROSECONDS
from weaverl.scheduling.scheduler import Scheduler, Snapshot
from weaverl.scheduling.state import ClusterState, JobRecord, as_member
from weaverl.simulation.standing import submit

NOT_LOOKED_AT = "not looked at: it cannot be cheaper than the placement taken"
NOT_NEEDED = "not looked at: it cannot be cheaper than the placement that would delay others"


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """A job that shares nodes with the new one, or the new one itself; ``before`` is None for that."""

    job: str
    slo: float
    before: float | None
    after: float


class Looked(msgspec.Struct, frozen=True, kw_only=True):
    """One placement in the order it was looked at: who is in the group, and the verdict; empty if it was taken.

    ``added_usd`` as in ``Verdict``.
    """

    kind: str
    group: str
    members: tuple[str, ...]
    added_usd_per_hour: float | None
    slowdowns: dict[str, float]
    refused: str
    added_usd: float | None = None


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """How long the job would wait in the queue, and for whose end; or why that cannot be said."""

    seconds: float | None
    after_jobs: tuple[str, ...] = ()
    unknown: str = ""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Where the job would go, now or after ``wait``, what it would add, and whom it would slow.

    ``looked_at`` is what the scheduler looks at now. Without a placement ``group`` is empty.
    """

    job: str
    kind: str
    group: str
    nodes: tuple[str, ...]
    added_usd_per_hour: float | None
    usd_per_hour_before: float
    profiled_first: bool
    effects: tuple[Effect, ...]
    looked_at: tuple[Looked, ...]
    wait: Wait | None


def what_if(scheduler: Scheduler, spec: JobSpec) -> Answer:
    """What a submission of the job would do. Raises RefusedError if it would be refused outright."""
    copy = _copy_of(scheduler)
    before = _slowdowns(copy.state)
    usd_before = _usd_per_hour(copy.state)
    submit(copy, spec)
    looked_at = _looked_at(copy.state, scheduler.state, spec)
    record = copy.state.jobs[spec.name]
    wait = None if record.pin is not None else _wait_for(copy, spec.name)
    taken = next((verdict for verdict in record.verdicts if not verdict.refused), None) if record.pin else None
    return Answer(
        job=spec.name,
        kind=taken.kind if taken else "",
        group=record.group or "",
        nodes=nodes_of(record),
        added_usd_per_hour=taken.added_usd_per_hour if taken else None,
        usd_per_hour_before=usd_before,
        profiled_first=spec.profile is None,
        effects=_effects(copy.state, record, before),
        looked_at=looked_at,
        wait=wait,
    )


def _copy_of(scheduler: Scheduler) -> Scheduler:
    data = msgspec.msgpack.encode(scheduler.snapshot())
    return Scheduler.from_snapshot(msgspec.msgpack.decode(data, type=Snapshot))


def _usd_per_hour(state: ClusterState) -> float:
    return sum((state.usd_per_hour(group.nodes) for group in state.groups.values()), 0.0)


def _slowdowns(state: ClusterState) -> dict[str, float]:
    """The predicted slowdown of every job that runs and has a profile, as its group is now."""
    slowdowns: dict[str, float] = {}
    for group in state.groups.values():
        known = [record for record in state.members(group) if record.profile is not None]
        if group.by_slack:
            slowdowns.update(slowdowns_of([stay_of(state, record) for record in known]))
        else:
            slowdowns.update(predicted_slowdowns([as_member(state, record) for record in known]))
    return slowdowns


def _effects(state: ClusterState, record: JobRecord, before: dict[str, float]) -> tuple[Effect, ...]:
    if record.group is None:
        return ()
    after = _slowdowns(state)
    return tuple(
        Effect(
            job=member.spec.name,
            slo=member.spec.slo,
            before=None if member is record else before.get(member.spec.name),
            after=after.get(member.spec.name, 1.0),
        )
        for member in state.members(state.groups[record.group])
    )


def _looked_at(state: ClusterState, untouched: ClusterState, spec: JobSpec) -> tuple[Looked, ...]:
    """The verdicts on the job, with the members of their groups; groups that no verdict speaks of come last.

    Where some are only counted nobody can say which of the others were looked at.
    """
    record = state.jobs[spec.name]
    verdicts = _each(untouched, spec, record.verdicts)
    spoken_of = {verdict.group for verdict in verdicts}
    refused = NOT_LOOKED_AT if record.pin is not None else NOT_NEEDED
    return (
        *(_looked(verdict, untouched) for verdict in verdicts),
        *(
            Looked(
                kind="",
                group=group.name,
                members=group.members,
                added_usd_per_hour=None,
                slowdowns={},
                refused=refused,
            )
            for name, group in sorted(untouched.groups.items())
            if name not in spoken_of and not _counted(untouched, verdicts)
        ),
    )


def _each(untouched: ClusterState, spec: JobSpec, verdicts: tuple[Verdict, ...]) -> tuple[Verdict, ...]:
    """The verdicts, each on one placement: where the published policy only counted some, all are judged one by one.

    What was found is the last; the scheduler's own verdict on it stays, since it knows the queue.
    """
    if untouched.parameters.policy != "weave-paper" or not _counted(untouched, verdicts):
        return verdicts
    found = candidates(untouched, spec)
    decision = first_admitted(untouched, found, spec, in_full=len(found))
    return decision.verdicts if decision.chosen is None else (*decision.verdicts[:-1], verdicts[-1])


def _counted(untouched: ClusterState, verdicts: tuple[Verdict, ...]) -> bool:
    """Whether some placements were only counted: a verdict on those names no group that is there."""
    return any(verdict.kind != "isolate" and verdict.group not in untouched.groups for verdict in verdicts)


def _looked(verdict: Verdict, untouched: ClusterState) -> Looked:
    group = untouched.groups.get(verdict.group)
    return Looked(
        kind=verdict.kind,
        group=verdict.group,
        members=group.members if group else (),
        added_usd_per_hour=verdict.added_usd_per_hour,
        slowdowns=verdict.predicted_slowdowns,
        refused=verdict.refused,
        added_usd=verdict.added_usd,
    )


def _wait_for(scheduler: Scheduler, job: str) -> Wait:
    """Let the running jobs end when they are expected to, until the job is placed. Uses the scheduler up.

    Jobs go on at their mean iteration, slowed as their group is at the time.
    """
    state, begin = scheduler.state, scheduler.state.now
    left = {name: remaining for name, record in state.jobs.items() if (remaining := _left_us(record)) is not None}
    ended: list[str] = []
    while state.jobs[job].pin is None:
        slowdowns = _slowdowns(state)
        running = {name: slowdowns.get(name, 1.0) for name in left if state.jobs[name].pin is not None}
        if not running:
            return Wait(seconds=None, after_jobs=tuple(ended), unknown=_endless(state, job))
        name = min(running, key=lambda one: (left[one] * Fraction(running[one]), one))
        passed = left[name] * Fraction(running[name])
        for one, slowdown in running.items():
            left[one] -= passed / Fraction(slowdown)
        del left[name]
        _end(scheduler, name, state.now + round(passed))
        ended.append(name)
    return Wait(seconds=(state.now - begin) / MICROSECONDS, after_jobs=tuple(ended))


def _left_us(record: JobRecord) -> Fraction | None:
    """What a job has left to do at its mean iteration, alone; None where its length or profile is not known.

    One that is stopping already has nothing left.
    """
    if record.ending is not None:
        return Fraction(0)
    profile, iterations = record.profile, record.spec.iterations
    if not record.live or profile is None or iterations is None:
        return None
    mean = profile.rollout_mean_seconds + profile.training_seconds + profile.sync_seconds + profile.other_seconds
    return Fraction(max(iterations - record.iterations_done, 0) * round(mean * MICROSECONDS))


def _endless(state: ClusterState, job: str) -> str:
    """Why nobody can say when the job would start."""
    running = [name for name, record in state.jobs.items() if record.live and record.pin is not None and name != job]
    if running:
        return f"{', '.join(running)} did not say how many iterations they run, or have no profile yet"
    return "no job's end makes room for it: nodes are away, or jobs before it in the queue do not fit either"


def _end(scheduler: Scheduler, name: str, at: int) -> None:
    """The job's processes end, and its nodes confirm it."""
    record = scheduler.state.jobs[name]
    attempt, nodes = record.attempt, nodes_of(record)
    for rank in list(record.ranks.values()):
        if not rank.exited:
            scheduler.handle(ProcessExited(at=at, rank=rank.rank, node=rank.node, exit_code=0))
    for node in nodes:
        scheduler.handle(DeathConfirmed(at=at, job=name, attempt=attempt, node=node))
