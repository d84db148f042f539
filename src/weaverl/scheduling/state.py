"""What the scheduler knows: plain records that fold events and commands, and can be written to a snapshot whole."""

from functools import cached_property, lru_cache
from signal import SIGTERM

import msgspec

from weaverl.domain.cluster import Cluster, Node, PoolKind, SwitchCost, usable_host_bytes
from weaverl.domain.commands import Verdict
from weaverl.domain.events import RankId
from weaverl.domain.groups import Group, Move, Pin
from weaverl.domain.jobs import ENDED, DeviceMemory, JobSpec, JobState, PhaseProfile
from weaverl.errors import UsageError
from weaverl.scheduling.pairs import Pairs
from weaverl.scheduling.round_model import (
    MICROSECONDS,
    UNKNOWN_ROOM,
    DeviceRoom,
    Durations,
    Member,
    Switches,
    planned_durations,
)
from weaverl.scheduling.sharing.accounts import Shares

PROFILE_ITERATIONS = 2
POLICIES = ("weave-paper", "weave", "solo", "colocated", "gavel")
OBJECTIVES = ("dollars", "throughput")
LIVE_POLICIES = ("weave-paper", "weave", "solo")
"""What a live cluster can run: the others have rollout and training on the same GPUs, as no live placement does."""


class Parameters(msgspec.Struct, frozen=True, kw_only=True):
    """Patience and policy. Microseconds. Raises ``UsageError`` on a policy or objective that is not known.

    ``objective``, of policy ``weave``: ``dollars``, where nodes come and go, or ``throughput`` of a fixed fleet. There
    a job may also have all its phases on training GPUs if ``colocates``, as no live job can.
    ``ended_jobs_kept``: how many ended jobs are remembered, the latest; None: all, so that whoever uses a name again
    gets the next attempt's number. A job is moved at most ``max_moves_per_job`` times, and once more for each
    ``another_move_us`` that it has run, not before it has stayed ``least_stay_us`` where it is, and only for a saving
    of ``saving_over_cost`` times what the move costs, and of at least ``least_saving_usd``; twice more, and at any
    time, to save a promise in danger. These are looked for whenever somebody comes or goes, a job has drifted, and
    every ``review_us``; among ten jobs or fewer so are moves that pay only together, in ``regrouping_tries`` tries when
    a job has ended or a newcomer may be moved, in a tenth of them else. A job has drifted, and gets another profile,
    when what is measured is by a share of ``profile_error`` off the one it has.
    ``hidden_switches``: policy weave restores the state of the job that is expected next before it asks, where that is
    in nobody's way.
    """

    policy: str = "weave-paper"
    objective: str = "dollars"
    colocates: bool = False
    vacate_patience_us: int = 60_000_000
    turn_patience_us: int = 30_000_000
    node_patience_us: int = 60_000_000
    exit_patience_us: int = 30_000_000
    ended_jobs_kept: int | None = None
    max_moves_per_job: int = 6
    another_move_us: int = 21_600_000_000
    least_stay_us: int = 1_800_000_000
    least_saving_usd: float = 5.0
    saving_over_cost: float = 2.0
    regrouping_tries: int = 50
    review_us: int = 1_800_000_000
    profile_error: float = 0.08
    hidden_switches: bool = True

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise UsageError(f"policy {self.policy!r} is not known: choose one of {', '.join(POLICIES)}")
        if self.objective not in OBJECTIVES:
            raise UsageError(f"objective {self.objective!r} is not known: choose {' or '.join(OBJECTIVES)}")
        if self.colocates and not self.for_throughput:
            raise UsageError(
                f"only objective throughput places jobs on one pool's GPUs, the objective is {self.objective}: "
                f"choose throughput, or do not ask for it"
            )
        if self.another_move_us < 1:
            raise UsageError(f"another_move_us is {self.another_move_us}: give microseconds, 1 or more")
        if self.for_throughput and self.policy != "weave":
            raise UsageError(
                f"objective {self.objective} is one of policy weave, the policy is {self.policy}: "
                f"choose weave, or leave the objective out"
            )

    @property
    def for_throughput(self) -> bool:
        """Whether the nodes are a fixed fleet, of which as much work is wanted as it can do."""
        return self.objective == "throughput"

    @property
    def by_slack(self) -> bool:
        """Whether new groups take turns by slack."""
        return self.policy == "weave"

    @property
    def restores_ahead(self) -> bool:
        """Whether state is restored before its job asks for the slots."""
        return self.policy == "weave" and self.hidden_switches

    @property
    def moves_jobs(self) -> bool:
        """Whether running jobs are moved where that saves something."""
        return self.policy == "weave"


def parameters_of(cluster: Cluster) -> Parameters:
    """What a cluster file says of the scheduler."""
    return Parameters(policy=cluster.policy, objective=cluster.objective)


class NodeRecord(msgspec.Struct):
    """A node, whether its agent is there, and which processes on it have yet to be stopped.

    ``gone``: lost for so long that its jobs were given up. ``strangers`` are (job, attempt) that live there and
    belong to no living attempt. Nothing is granted or placed on a node that is not usable: its slots are in quarantine.
    """

    node: Node
    ready: bool = False
    lost_at: int | None = None
    gone: bool = False
    strangers: list[tuple[str, int]] = []

    @property
    def usable(self) -> bool:
        """Whether slots of the node may be handed out."""
        return self.ready and not self.strangers


class RankRecord(msgspec.Struct):
    """One process of a job."""

    rank: RankId
    node: str
    registered: bool = False
    prepares: bool = False
    exited: bool = False
    exit_code: int | None = None
    stopped: bool = False

    @property
    def killed(self) -> bool:
        """Whether a signal ended it that was not ours."""
        return not self.stopped and self.exit_code is not None and self.exit_code < 0 and self.exit_code != -SIGTERM


class Ending(msgspec.Struct):
    """A job on its way to an end: the state it will take, why, and the nodes that have yet to confirm its death."""

    state: JobState
    reason: str
    unconfirmed: list[str]


class IterationRecord(msgspec.Struct):
    """Measured seconds of an iteration, while the profile is learned."""

    requested_at: int = 0
    waited_us: dict[str, int] = {}
    rollout_us: int = 0
    training_us: int = 0
    sync_us: int = 0


class Progress(msgspec.Struct):
    """What a job has done against the clock, over all its attempts. Microseconds.

    ``solo_us``: solo time of the ``iterations`` that are finished; ``part_us``: of the finished phases of the next one.
    ``wall_us``: time that counts for the slowdown up to ``since``; None while none passes (before the first rollout
    is asked for, in the queue, after the end). ``lap_us``: both times when an iteration was last over; ``company``: the
    number of iterations and both times when that was so for the first time in the present company; ``pace``: the
    slowdown that the promise left room for then; ``foreseen``: how slow it was to be there, where that was asked;
    ``error``: by how much such forecasts were too low before, over ``error_iterations``. ``pairs``: of a job whose next
    rollout runs beside training.
    """

    iterations: int = 0
    solo_us: int = 0
    part_us: int = 0
    wall_us: int = 0
    since: int | None = None
    lap_us: tuple[int, int] = (0, 0)
    company: tuple[int, int, int] | None = None
    pace: float = 0.0
    foreseen: float | None = None
    error: float = 0.0
    error_iterations: int = 0
    pairs: Pairs | None = None

    @property
    def done_us(self) -> int:
        """Solo time of all that is finished."""
        return self.solo_us + self.part_us

    def elapsed_us(self, now: int) -> int:
        """Time that counts for the slowdown."""
        return self.wall_us if self.since is None else self.wall_us + now - self.since


class Measured(msgspec.Struct):
    """Running means of a job's phases alone, in microseconds."""

    rollout_us: int
    training_us: int


class JobRecord(msgspec.Struct):
    """Everything known about a job.

    Of the present attempt: ``started_at`` is when it asked for its first rollout, ``start_us`` how long its cold start
    took, ``first_iteration`` the one it began with, ``checkpoints`` the last iteration that each rank has saved,
    ``unsaved`` how often it was to leave and had not saved; if it is to, it stays unless it has saved by ``leaves_by``.
    ``saves_every``: iterations between the last two saves of a rank.
    ``num_synced`` the iterations up to the last whose weights are at the rollout side. ``measured_us`` is what its
    profile follows, ``stays_because`` why its last planned move was dropped.
    ``queued_at``: when it came into the queue last; ``preemptions``: how often it was paused for others;
    ``way_made``: others have been paused for it, and it has yet to start; ``bound``: the slowdown with which it meets
    its deadline, if less than its SLO.
    """

    spec: JobSpec
    submitted_at: int
    attempt: int = 1
    state: JobState = JobState.QUEUED
    reason: str = ""
    pin: Pin | None = None
    group: str | None = None
    profile: PhaseProfile | None = None
    profiling: bool = False
    iterations_done: int = 0
    retries: int = 0
    admitted_at: int | None = None
    ended_at: int | None = None
    predicted_slowdown: float | None = None
    verdicts: tuple[Verdict, ...] = ()
    last_lines: tuple[str, ...] = ()
    ranks: dict[str, RankRecord] = {}
    ending: Ending | None = None
    measured: dict[int, IterationRecord] = {}
    progress: Progress = msgspec.field(default_factory=Progress)
    measured_us: Measured | None = None
    moves: int = 0
    started_at: int | None = None
    start_us: int = 0
    first_iteration: int = 0
    checkpoints: dict[str, int] = {}
    stays_because: str = ""
    queued_at: int = 0
    preemptions: int = 0
    way_made: bool = False
    bound: float | None = None
    num_synced: int = 0
    saves_every: int = 1
    leaves_by: int = 0
    unsaved: int = 0

    @property
    def slo(self) -> float:
        """The slowdown that the job is promised where it is: its SLO, or less for the sake of its deadline."""
        return self.spec.slo if self.bound is None else self.bound

    @property
    def live(self) -> bool:
        """Whether the job has yet to end."""
        return self.state not in ENDED

    @property
    def durations(self) -> Durations:
        """What admission plans with; the job has a profile."""
        assert self.profile is not None
        return planned_durations(self.profile)


def rank_key(rank: RankId) -> str:
    """The key of a rank among its job's."""
    return f"{rank.role}-{rank.rank}"


class Changed:
    """Names of what was folded and not yet taken in by what is derived from the state."""

    def __init__(self) -> None:
        self.nodes: dict[str, None] = {}
        self.jobs: dict[str, None] = {}
        self.groups: dict[str, None] = {}

    def add_all(self, state: "ClusterState") -> None:
        """All names there are."""
        self.nodes |= dict.fromkeys(state.nodes)
        self.jobs |= dict.fromkeys(state.jobs)
        self.groups = dict.fromkeys(state.groups) | self.groups

    def clear(self) -> None:
        """All was taken in."""
        for names in (self.nodes, self.jobs, self.groups):
            names.clear()


class Spending(msgspec.Struct):
    """Micro-dollars an hour of nodes, and worth of the work done on them: of each group, and of all."""

    groups: dict[str, tuple[int, int]] = {}
    paid: int = 0
    worth: int = 0


class ClusterState(msgspec.Struct, dict=True):
    """Nodes, jobs and groups, in the order in which they came; ``ended`` are the jobs that will be forgotten, if any.

    ``moves`` are planned or under way, by job. ``version`` rises whenever a job is placed or leaves its place. Whoever
    changes a node, job or group leaves its name in ``changed``. ``shares`` stays empty unless the cluster is shared.
    ``ended_at``: when a placed job has last ended.
    """

    cluster: Cluster
    parameters: Parameters
    nodes: dict[str, NodeRecord]
    jobs: dict[str, JobRecord] = {}
    groups: dict[str, Group] = {}
    moves: dict[str, Move] = {}
    version: int = 0
    ended: list[str] = []
    epoch: int = 0
    tokens: int = 0
    groups_made: int = 0
    now: int = 0
    shares: Shares = msgspec.field(default_factory=Shares)
    spending: Spending = msgspec.field(default_factory=Spending)
    ended_at: int | None = None

    @cached_property
    def changed(self) -> Changed:
        """What was folded since placement last looked; not part of a snapshot."""
        return Changed()

    def members(self, group: Group) -> list[JobRecord]:
        """The jobs of a group in rotation order."""
        return [self.jobs[name] for name in group.members]

    def usable_host_bytes(self, node: str) -> int:
        """Host memory that jobs may fill on a node."""
        return usable_host_bytes(self.cluster, self.nodes[node].node)

    def usd_per_hour(self, nodes: tuple[str, ...]) -> float:
        """Price of nodes."""
        rollout, training = self.cluster.rollout, self.cluster.training
        owned = [self.nodes[name].node for name in nodes]
        priced = [(rollout if node.pool is PoolKind.ROLLOUT else training, node.num_devices) for node in owned]
        return sum([pool.usd_per_gpu_hour * num_devices for pool, num_devices in priced], 0.0)

    def nodes_ready(self, names: tuple[str, ...]) -> bool:
        """Whether the nodes' agents are there, in this epoch."""
        for name in names:
            node = self.nodes[name]  # usable or not: asked at each grant, so without the call
            if not node.ready or node.strangers:
                return False
        return True

    def registered_ranks(self, job: str, role: str) -> int | None:
        """Number of ranks of a job's role; None while one of them has yet to register."""
        ranks = [rank for rank in self.jobs[job].ranks.values() if rank.rank.role == role]
        return len(ranks) if all(rank.registered for rank in ranks) else None

    def prepares(self, job: str, role: str) -> bool:
        """Whether all ranks of a job's role are registered and restore their state ahead of a permit if told."""
        return all(rank.prepares for rank in self.jobs[job].ranks.values() if rank.rank.role == role)


def switches_of(cluster: Cluster, profile: PhaseProfile | None = None) -> Switches:
    """A job's own switch times in microseconds; the cluster's where its profile does not say."""
    return _switches(cluster.switch, profile)


@lru_cache(maxsize=4096)
def _switches(of_cluster: SwitchCost, profile: PhaseProfile | None) -> Switches:
    own = (None, None) if profile is None else (profile.rollout_switch_seconds, profile.training_switch_seconds)
    rollout, training = (
        general if seconds is None else seconds
        for seconds, general in zip(own, (of_cluster.rollout_seconds, of_cluster.training_seconds), strict=True)
    )
    return Switches(round(rollout * MICROSECONDS), round(training * MICROSECONDS))


def as_member(state: ClusterState, record: JobRecord) -> Member:
    """A pinned job with a profile as the round model sees it."""
    assert record.pin is not None and record.profile is not None
    return planned_member(state, record.spec.name, record.profile, record.pin)


def planned_member(
    state: ClusterState, name: str, profile: PhaseProfile, pin: Pin, memory: DeviceMemory | None = None
) -> Member:
    """A job as it would run on the slots of a pin: a phase takes longer on the other pool's GPUs.

    Where both phases have the same nodes the weights do not cross the slow link, so there is no sync. With ``memory``
    its state is restored ahead, if that is done at all.
    """
    solo = planned_durations(profile)
    pools = [state.nodes[slots[0].node].node.pool for slots in (pin.rollout, pin.training)]
    placed = Durations(
        _times(solo.rollout_us, state.cluster.rollout_on_training if pools[0] is PoolKind.TRAINING else 1.0),
        _times(solo.training_us, state.cluster.training_on_rollout if pools[1] is PoolKind.ROLLOUT else 1.0),
        0 if pools[0] is pools[1] else solo.sync_us,
        solo.other_us,
        solo.staleness,
    )
    switches, promised_us = switches_of(state.cluster, profile), None if placed == solo else solo.solo_us
    if memory is None or pools[0] is pools[1] or not state.parameters.restores_ahead:
        return Member(name, pin, placed, switches, promised_us)
    return Member(name, pin, placed, switches, promised_us, _device_room(state, memory, pin))


def _device_room(state: ClusterState, memory: DeviceMemory, pin: Pin) -> DeviceRoom:
    """What is needed to restore a job's state beside a holder's."""
    needs = (memory.rollout, memory.training)
    if needs == (None, None):
        return UNKNOWN_ROOM
    rollout, training = (
        min(state.nodes[node].node.device_memory_bytes for node in pin.nodes(pool)) for pool in PoolKind
    )
    states = tuple(None if need is None else need.state_bytes for need in needs)
    busy = tuple(None if need is None else need.state_bytes + need.working_bytes for need in needs)
    return DeviceRoom((states[0], states[1]), (busy[0], busy[1]), (rollout, training))


def _times(duration_us: int, factor: float) -> int:
    return duration_us if factor == 1.0 else round(duration_us * factor)
