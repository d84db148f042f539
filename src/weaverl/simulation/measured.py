"""Simulation against reality: a measured run again, with its own times, through the scheduler in a simulated world.

Each job is placed as it was; every turn is decided anew. If the world is like the cluster, slots are granted in the
same order and the run takes as long.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

import msgspec

from weaverl.domain.cluster import Cluster, Node, PoolKind
from weaverl.domain.commands import AcceptJob, AdmitJob, AnyCommand, GrantPermit, StartRank
from weaverl.domain.events import AnyEvent, JobSubmitted, ProcessExited, RankId
from weaverl.domain.groups import Group, Pin
from weaverl.domain.jobs import HostMemory, JobSpec, PhaseKind, PhaseProfile
from weaverl.domain.timeline import Interval, Timeline
from weaverl.errors import UsageError
from weaverl.scheduling.scheduler import Scheduler
from weaverl.simulation.costs import Costs
from weaverl.simulation.late_saves import late_saves
from weaverl.simulation.run import Run
from weaverl.simulation.workload import ROLE, Load, SimulatedJob, Start, Work
from weaverl.simulation.world import World

ROLLOUT, TRAINING = PhaseKind.ROLLOUT, PhaseKind.TRAINING
Step = tuple[str, PhaseKind, int]


class MeasuredJob(msgspec.Struct, frozen=True):
    """A job of a measured run: how it was asked for, where it was pinned, and the times of its iterations."""

    job: SimulatedJob
    pin: Pin
    work: Work


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """A measured run beside its simulation. ``order`` is by node: whether phases were granted in the same order."""

    measured_seconds: float
    simulated_seconds: float
    order: dict[str, bool]

    @property
    def deviation(self) -> float:
        """How much longer the simulation takes, as a part of the measured time."""
        return self.simulated_seconds / self.measured_seconds - 1


def compare_with_simulation(cluster: Cluster, pins: Mapping[str, Pin], timeline: Timeline) -> Comparison:
    """Simulate a measured run of jobs that ran once each, from their first to their last iteration.

    ``pins`` are in the order in which the jobs were submitted.

    Raises:
        UsageError: a job has several attempts, a rollout in parts, or an iteration without both phases.
    """
    by_job, late = _by_job(timeline.intervals), late_saves(timeline.intervals)
    arrivals = _arrivals({name: by_job[name] for name in pins if name in by_job})
    jobs = [measured_job(name, pins[name], by_job[name], arrival, late) for name, arrival in arrivals.items()]
    grants, seconds = simulate_measured(cluster, jobs)
    measured = _grants_of(timeline.intervals)
    work = [one for one in timeline.intervals if one.phase is not PhaseKind.LOADING]
    first, last = min(one.granted_at for one in work), max(one.ended_at for one in work)
    return Comparison(
        measured_seconds=(last - first) / 1e6,
        simulated_seconds=seconds,
        order={node: grants.get(node) == steps for node, steps in sorted(measured.items())},
    )


def simulate_measured(cluster: Cluster, jobs: Sequence[MeasuredJob]) -> tuple[dict[str, list[Step]], float]:
    """The order of grants on each node, and the seconds from the first grant to the end of the last job.

    ``jobs`` come in the order of their arrival.
    """
    by_name = {one.job.spec.name: one for one in jobs}
    runs: dict[str, Run] = {}
    order = _Order()
    world = World(
        _AsRecorded(Scheduler(cluster), {name: one.pin for name, one in by_name.items()}),
        Costs(tail_migration=False),
        _Given(cluster),
        lambda job: by_name[job.spec.name].work,
        runs,
        [order],
    )
    world.run(one.job for one in jobs)
    return order.grants, (order.last_end - order.first) / 1e6


def measured_job(
    name: str, pin: Pin, intervals: Sequence[Interval], arrival_us: int, late: Mapping[str, int]
) -> MeasuredJob:
    """A job from its arrival and the intervals of its only attempt.

    It registers when it first asks for slots to load onto; where it loaded onto none, with its first rollout. ``late``
    is of all jobs, by token: see ``late_saves``.
    """
    if len({one.attempt for one in intervals}) != 1:
        raise UsageError(f"job {name} ran several attempts: simulate a run without faults")
    if any(one.part for one in intervals):
        raise UsageError(f"job {name} has rollouts whose slots changed as they ran: simulate a run without moved tails")
    rollouts, trainings = (_of_phase(intervals, phase) for phase in (ROLLOUT, TRAINING))
    iterations = list(range(len(rollouts)))
    if any([one.iteration for one in phases] != iterations for phases in (rollouts, trainings)) or not rollouts:
        raise UsageError(f"job {name} did not run each iteration from 0 on: simulate a run that was finished")
    starts = [*(one.requested_at for one in rollouts[1:]), max(one.ended_at for one in intervals)]
    work = Work(
        [one.ended_at - one.started_at for one in rollouts],
        [one.ended_at - one.started_at for one in trainings],
        [0] * len(rollouts),
        [max(next_start - one.released_at, 0) for one, next_start in zip(trainings, starts, strict=True)],
        between_us=[
            max(after.requested_at - one.released_at, 0) for one, after in zip(rollouts, trainings, strict=True)
        ],
        held_us={ROLLOUT: [_overhead(one) for one in rollouts], TRAINING: [_overhead(one) for one in trainings]},
        late_save_us={
            phase: [late.get(one.token, 0) for one in of_phase]
            for phase, of_phase in ((ROLLOUT, rollouts), (TRAINING, trainings))
        },
        start=_start(pin, intervals, rollouts[0].requested_at, late),
    )
    registered = min([rollouts[0].requested_at, *(one.requested_at for one in _loads(intervals))])
    job = SimulatedJob(spec=_spec(name, pin, work), arrival_us=arrival_us, cold_start_us=registered - arrival_us)
    return MeasuredJob(job, pin, work)


def _start(pin: Pin, intervals: Sequence[Interval], rollout_at: int, late: Mapping[str, int]) -> Start | None:
    loads = _loads(intervals)
    if not loads:
        return None
    registered = min([rollout_at, *(one.requested_at for one in loads)])
    done = [one.released_at for one in loads if one.released_at <= rollout_at]
    return Start(
        loads=tuple(
            Load(
                pool=PoolKind.ROLLOUT if one.slots[0] in pin.rollout else PoolKind.TRAINING,
                asked_us=one.requested_at - registered,
                held_us=one.released_at - one.granted_at,
                late_save_us=late.get(one.token, 0),
            )
            for one in loads
        ),
        awaited=len(done),
        rollout_us=rollout_at - max([registered, *done]),
    )


def _loads(intervals: Iterable[Interval]) -> list[Interval]:
    """Cold starts that held slots, in the order in which they were asked for."""
    loads = [one for one in intervals if one.phase is PhaseKind.LOADING and one.slots]
    return sorted(loads, key=lambda one: one.requested_at)


def _arrivals(by_job: Mapping[str, Sequence[Interval]]) -> dict[str, int]:
    """The latest moments at which the jobs, in the order of their submission, can have arrived.

    A job was there before its first request, and before any job that was submitted after it.
    """
    first_requests = [min(one.requested_at for one in intervals) for intervals in by_job.values()]
    latest = list(accumulate(reversed(first_requests), min))
    return dict(zip(by_job, reversed(latest), strict=True))


def _overhead(one: Interval) -> int:
    """Time that the slots were held beside the body: restore before it, and what was saved at once after it."""
    return one.started_at - one.granted_at + one.released_at - one.ended_at


def _spec(name: str, pin: Pin, work: Work) -> JobSpec:
    seconds = [sum(times) / len(times) / 1e6 for times in (work.rollout_us, work.training_us)]
    return JobSpec(
        name=name,
        roles=(ROLE,),
        rollout_gpus=len(pin.rollout),
        training_gpus=len(pin.training),
        host_memory=HostMemory(rollout_bytes=0, training_bytes=0),
        slo=1.0,
        iterations=work.num_iterations,
        profile=PhaseProfile(
            rollout_max_seconds=seconds[0], rollout_mean_seconds=seconds[0], training_seconds=seconds[1]
        ),
    )


def _by_job(intervals: Iterable[Interval]) -> dict[str, list[Interval]]:
    found: dict[str, list[Interval]] = defaultdict(list)
    for one in intervals:
        found[one.job].append(one)
    return found


def _of_phase(intervals: Iterable[Interval], phase: PhaseKind) -> list[Interval]:
    return sorted((one for one in intervals if one.phase is phase), key=lambda one: one.iteration)


def _grants_of(intervals: Iterable[Interval]) -> dict[str, list[Step]]:
    found: dict[str, list[Step]] = defaultdict(list)
    for one in sorted(intervals, key=lambda one: one.granted_at):
        if one.phase in (ROLLOUT, TRAINING):
            for node in dict.fromkeys(slot.node for slot in one.slots):
                found[node].append((one.job, one.phase, one.iteration))
    return dict(found)


class _Order:
    """Hears in which order the slots of each node are granted, and when the first grant and the last end are."""

    def __init__(self) -> None:
        self.grants: dict[str, list[Step]] = {}
        self.first = self.last_end = 0

    def hear(self, event: AnyEvent, commands: Sequence[AnyCommand]) -> None:
        if isinstance(event, ProcessExited):
            self.last_end = event.at
        for command in commands:
            if isinstance(command, GrantPermit) and command.phase is not PhaseKind.LOADING:
                self.first = self.first or event.at
                for node in dict.fromkeys(slot.node for slot in command.slots):
                    self.grants.setdefault(node, []).append((command.job, command.phase, command.iteration))


class _Given:
    """The nodes of a cluster as they are."""

    def __init__(self, cluster: Cluster) -> None:
        self.nodes = list(cluster.nodes)

    def at_start(self) -> list[Node]:
        return self.nodes

    def for_job(self, spec: JobSpec, num_lost: int) -> list[Node]:
        return []

    def taken(self, group: Group) -> None:
        pass

    def given_back(self, group: Group) -> None:
        pass


class _AsRecorded:
    """A scheduler that places each job as it once was: on an arrival it folds what was decided then."""

    def __init__(self, scheduler: Scheduler, pins: Mapping[str, Pin]) -> None:
        self._scheduler, self._pins = scheduler, pins

    def handle(self, event: AnyEvent) -> list[AnyCommand]:
        if not isinstance(event, JobSubmitted):
            return self._scheduler.handle(event)
        commands = self._placed(event.spec)
        self._scheduler.replay(event, tuple(commands))
        return commands

    def _placed(self, spec: JobSpec) -> list[AnyCommand]:
        pin = self._pins[spec.name]
        home = pin.rollout[0].node
        return [
            AcceptJob(job=spec.name),
            AdmitJob(job=spec.name, attempt=1, group=self._group(spec.name, pin), pin=pin),
            StartRank(
                rank=RankId(spec.name, 1, ROLE.name, 0),
                node=home,
                role=ROLE,
                world_size=1,
                slots=pin.rollout + pin.training,
                role_sizes={ROLE.name: 1},
                master_node=home,
            ),
        ]

    def _group(self, name: str, pin: Pin) -> Group:
        """The group that has the pin's nodes already, with the job; a new one if none has."""
        state = self._scheduler.state
        nodes = {slot.node for slot in pin.rollout + pin.training}
        known = [group for group in state.groups.values() if nodes & set(group.nodes)]
        assert len(known) <= 1, "a job cannot join two groups"
        before = known[0] if known else Group(f"g{state.groups_made + 1}", (), (), ())
        rollout = dict.fromkeys(before.rollout_nodes + tuple(slot.node for slot in pin.rollout))
        training = dict.fromkeys(before.training_nodes + tuple(slot.node for slot in pin.training))
        return Group(before.name, tuple(rollout), tuple(training), (*before.members, name))
