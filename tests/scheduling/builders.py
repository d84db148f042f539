"""Small clusters and jobs for scheduler tests, and a world that answers commands the way a cluster does."""

from collections import deque

import msgspec

from weaverl.domain.cluster import Cluster, Node, Pool, PoolKind, Slot, SwitchCost
from weaverl.domain.commands import (
    AdmitJob,
    AnyCommand,
    ChangeJobState,
    GrantPermit,
    KillJob,
    MoveTail,
    PrepareSlot,
    SetTimer,
    StartRank,
    VacateSlot,
    WidenPermit,
)
from weaverl.domain.events import (
    AgentReported,
    AnyEvent,
    CheckpointWritten,
    ControllerStarted,
    DeathConfirmed,
    JobSubmitted,
    PermitRequested,
    PhaseEnded,
    PhaseMeasured,
    PhaseReport,
    ProcessExited,
    RankId,
    RankRegistered,
    SlotPrepared,
    SlotVacated,
    TailMoved,
    TailReached,
    TimerFired,
    Token,
)
from weaverl.domain.groups import Pin
from weaverl.domain.jobs import HostMemory, JobSpec, JobState, PhaseKind, PhaseProfile, Placement, Role
from weaverl.scheduling.index import index_of
from weaverl.scheduling.rotation_state import RotationState
from weaverl.scheduling.scheduler import Scheduler
from weaverl.scheduling.state import JobRecord, Parameters

GIB = 2**30
OF_RANKS = (
    PhaseEnded,
    PhaseMeasured,
    CheckpointWritten,
    TailReached,
    TailMoved,
    SlotVacated,
    SlotPrepared,
    RankRegistered,
    ProcessExited,
)
SECOND = 1_000_000


def node(name: str, *, devices: int = 8, host_gib: int = 1536, host: str = "") -> Node:
    return Node(
        name=name,
        pool=PoolKind.ROLLOUT if name.startswith("r") else PoolKind.TRAINING,
        host=host or name,
        num_devices=devices,
        device_memory_bytes=80 * GIB,
        host_memory_bytes=host_gib * GIB,
    )


def cluster(*nodes: Node, switch: SwitchCost | None = None) -> Cluster:
    return Cluster(
        name="test",
        rollout=Pool(kind=PoolKind.ROLLOUT, gpu="H20", usd_per_gpu_hour=1.85),
        training=Pool(kind=PoolKind.TRAINING, gpu="H800", usd_per_gpu_hour=5.28),
        nodes=nodes or (node("r0"), node("t0")),
        switch=switch or SwitchCost(),
        usable_host_memory=1.0,
    )


def job(
    name: str,
    rollout: float = 10.0,
    training: float = 10.0,
    *,
    slo: float = 2.0,
    gpus: tuple[int, int] = (8, 8),
    host_gib: tuple[int, int] = (100, 100),
    profiled: bool = True,
    driver: bool = True,
    **more: object,
) -> JobSpec:
    profile = PhaseProfile(
        rollout_max_seconds=float(rollout), rollout_mean_seconds=float(rollout), training_seconds=float(training)
    )
    staleness = more.get("staleness", 0)
    profile = msgspec.structs.replace(profile, staleness=staleness)
    roles = (
        *([Role(name="driver", command=("python", "driver.py"))] if driver else []),
        Role(name="rollout", command=("python", "rollout.py")),
        Role(name="training", command=("python", "training.py")),
    )
    if more.get("placement") is Placement.LOCAL:
        roles = (Role(name="run", command=("python", "run.py")),)
    return JobSpec(
        name=name,
        roles=roles,
        rollout_gpus=gpus[0],
        training_gpus=gpus[1],
        host_memory=HostMemory(rollout_bytes=host_gib[0] * GIB, training_bytes=host_gib[1] * GIB),
        slo=float(slo),
        profile=profile if profiled else None,
        **more,
    )


class Occupant(msgspec.Struct):
    """Whose state is on a slot: a permit's, and the ranks that have not said that theirs is gone."""

    job: str
    token: Token
    ranks: set[int]


class Sides(msgspec.Struct):
    """A job a step ahead: the next rollout and training to ask for, and what is over."""

    first: int
    end: int
    next_rollout: int = 0
    next_training: int = 0
    num_rolled: int = 0
    num_synced: int = 0


class World:
    """Carries commands out at once, one pending reaction at a time, and checks every invariant after each event.

    Jobs run ``iterations`` of rollout then training, after a cold start in each pool with ``loading``; with ``tails``
    their rollouts say that a quarter of the slots would do. A job with a checkpoint directory saves every iteration,
    and its next attempt goes on after the last one that was finished. A job a step ahead asks for its next rollout at
    once, whether it may have it or not, and syncs after each training.
    ``saves_every`` names jobs that save less often, 0 for never, and ``saves_late`` those that do so after the sync.
    With ``prepares`` ranks restore their state ahead when told to, and every so manieth of them can not.
    Tests decide the order of reactions with ``deliver(index)``.
    """

    def __init__(
        self,
        of: Cluster,
        *,
        iterations: int = 3,
        loading: bool = False,
        tails: bool = False,
        prepares: int = 0,
        parameters: Parameters = Parameters(),
    ) -> None:
        self.scheduler = Scheduler(of, parameters)
        self.iterations = iterations
        self.loading = loading
        self.tails = tails
        self.prepares = prepares
        self.now = 0
        self.tick_us = 1
        self.pending: deque[AnyEvent] = deque()
        self.timers: list[tuple[int, str]] = []
        self.log: list[tuple[AnyEvent, list[AnyCommand]]] = []
        self.progress: dict[tuple[str, int], list[tuple[PhaseKind, PoolKind, int]]] = {}
        self.sides: dict[tuple[str, int], Sides] = {}
        self.saves_every: dict[str, int] = {}
        self.saves_late: set[str] = set()
        self.alive: dict[tuple[str, int, str], list[RankId]] = {}
        self.occupants: dict[Slot, Occupant] = {}
        self.restored: dict[Slot, Occupant] = {}
        self.open_ranks: dict[Token, set[int]] = {}
        self.kept: dict[Token, tuple[Slot, ...]] = {}
        self.send(ControllerStarted(epoch=1))
        for record in of.nodes:
            self.send(AgentReported(epoch=1, node=record))

    def send(self, event: AnyEvent) -> list[AnyCommand]:
        """Stamp an event, hand it in, carry out what is answered."""
        self.now += self.tick_us
        event = msgspec.structs.replace(event, at=self.now)
        self._fold_freed(event)
        commands = self.scheduler.handle(event)
        self.log.append((event, commands))
        for command in commands:
            self._carry_out(command)
        if isinstance(event, PhaseEnded):
            self._after_phase(event)
        elif isinstance(event, PhaseMeasured):
            self._after_sync(event)
        check_invariants(self.scheduler)
        return commands

    def submit(self, spec: JobSpec) -> list[AnyCommand]:
        return self.send(JobSubmitted(spec=spec, request=f"r{self.now}"))

    def deliver(self, index: int = 0) -> list[AnyCommand]:
        """Let one pending reaction happen."""
        self.pending.rotate(-index)
        event = self.pending.popleft()
        self.pending.rotate(index)
        return self.send(event)

    def register_all(self) -> None:
        """Let every started rank come up before anything else happens."""
        while (at := next((i for i, e in enumerate(self.pending) if isinstance(e, RankRegistered)), None)) is not None:
            self.deliver(at)

    def fire_next_timer(self) -> None:
        self.timers.sort()
        at, name = self.timers.pop(0)
        self.now = max(self.now, at)
        self.send(TimerFired(name=name))

    def run(self, max_steps: int = 10_000) -> None:
        """Deliver everything in order; timers fire only when nothing else can happen."""
        for _ in range(max_steps):
            if self.pending:
                self.deliver()
            elif self.timers and any(record.live for record in self.scheduler.state.jobs.values()):
                self.fire_next_timer()
            else:
                return
        raise AssertionError("the world does not come to rest")

    def kill_rank(self, rank: RankId, node: str, exit_code: int = -9) -> list[AnyCommand]:
        """The process dies: what it was about to say is never said."""
        self.alive[(rank.job, rank.attempt, node)].remove(rank)
        self._mute(rank.job, rank.attempt, rank.role)
        return self.send(ProcessExited(rank=rank, node=node, exit_code=exit_code, last_lines=("boom",)))

    def state(self, name: str) -> JobState:
        return self.scheduler.state.jobs[name].state

    def grants(self) -> list[GrantPermit]:
        return [c for _, commands in self.log for c in commands if isinstance(c, GrantPermit)]

    def admitted(self, name: str) -> AdmitJob:
        found = [c for _, cs in self.log for c in cs if isinstance(c, AdmitJob) and c.job == name]
        return found[-1]

    def _carry_out(self, command: AnyCommand) -> None:
        match command:
            case StartRank():
                key = (command.rank.job, command.rank.attempt, command.node)
                self.alive.setdefault(key, []).append(command.rank)
                self.pending.append(RankRegistered(rank=command.rank, prepares=self.prepares > 0))
            case ChangeJobState(state=JobState.RUNNING):
                pools = (PoolKind.ROLLOUT, PoolKind.TRAINING)
                steps = [(PhaseKind(str(pool)), pool, i) for i in self._left(command.job) for pool in pools]
                loads = [(PhaseKind.LOADING, pool, 0) for pool in pools if self.loading]
                if self.scheduler.state.jobs[command.job].spec.staleness:
                    left, steps = self._left(command.job), []
                    self.sides[(command.job, command.attempt)] = Sides(*[left.start, left.stop] + [left.start] * 4)
                self.progress[(command.job, command.attempt)] = loads + steps
                self._next_phase(command.job, command.attempt)
            case GrantPermit():
                self._occupy(command)
            case VacateSlot() | PrepareSlot():
                self._vacate(command) if isinstance(command, VacateSlot) else self._prepare(command)
            case MoveTail():
                self._move_tail(command)
            case WidenPermit():
                self._take(command, command.slots, self.open_ranks[command.token])
            case KillJob():
                self.alive.pop((command.job, command.attempt, command.node), None)
                self._mute(command.job, command.attempt, None)
                self.pending.append(DeathConfirmed(job=command.job, attempt=command.attempt, node=command.node))
            case SetTimer():
                self.timers.append((command.at, command.name))

    def _left(self, name: str) -> range:
        record = self.scheduler.state.jobs[name]
        return range(record.iterations_done if record.spec.checkpoint_directory else 0, self.iterations)

    def _save(self, event: PhaseEnded) -> None:
        saves = self.scheduler.state.jobs[event.rank.job].spec.checkpoint_directory is not None
        every = self.saves_every.get(event.rank.job, 1)
        if saves and event.phase is PhaseKind.TRAINING and every and (event.iteration + 1) % every == 0:
            ranks = self.scheduler.state.jobs[event.rank.job].ranks.values()
            for one in ranks:
                if one.rank.role == event.rank.role:
                    self.pending.append(CheckpointWritten(rank=one.rank, iteration=event.iteration))

    def _role(self, name: str, pool: PoolKind) -> str:
        local = self.scheduler.state.jobs[name].spec.placement is Placement.LOCAL
        return "run" if local else str(pool)

    def _next_phase(self, name: str, attempt: int) -> None:
        steps = self.progress[(name, attempt)]
        if steps:
            self._ask(name, attempt, *steps.pop(0))
            return
        if (sides := self.sides.get((name, attempt))) is not None and sides.num_synced < sides.end:
            self._ask_for_sides(name, attempt, sides)
            return
        for (other, other_attempt, home), ranks in list(self.alive.items()):
            if (other, other_attempt) == (name, attempt):
                for rank in ranks:
                    self.pending.append(ProcessExited(rank=rank, node=home, exit_code=0))

    def _ask(self, name: str, attempt: int, phase: PhaseKind, pool: PoolKind, iteration: int) -> None:
        role = self._role(name, pool)
        self.pending.append(
            PermitRequested(job=name, attempt=attempt, role=role, phase=phase, pool=pool, iteration=iteration)
        )

    def _ask_for_sides(self, name: str, attempt: int, sides: Sides) -> None:
        if sides.next_rollout == sides.num_rolled < sides.end:
            self._ask(name, attempt, PhaseKind.ROLLOUT, PoolKind.ROLLOUT, sides.next_rollout)
            sides.next_rollout += 1
        if sides.next_training == sides.num_synced < sides.num_rolled:
            self._ask(name, attempt, PhaseKind.TRAINING, PoolKind.TRAINING, sides.next_training)
            sides.next_training += 1

    def _after_sync(self, event: PhaseMeasured) -> None:
        self._next_phase(event.rank.job, event.rank.attempt)

    def _side_over(self, sides: Sides, event: PhaseEnded) -> None:
        if event.phase is PhaseKind.ROLLOUT:
            sides.num_rolled = event.iteration + 1
            self._next_phase(event.rank.job, event.rank.attempt)
        else:
            self.pending.append(
                PhaseMeasured(
                    rank=event.rank, phase=PhaseKind.SYNC, iteration=event.iteration, report=PhaseReport(body_us=SECOND)
                )
            )

    def _occupy(self, grant: GrantPermit) -> None:
        self.open_ranks[grant.token] = set(range(grant.ranks))
        sides = self.sides.get((grant.job, grant.attempt))
        if sides is not None and grant.phase is PhaseKind.ROLLOUT:
            assert grant.iteration <= max(sides.first, sides.num_synced) + 1, "samples would be two versions old"
        self._take(grant, grant.slots, self.open_ranks[grant.token])
        if self.tails and grant.phase is PhaseKind.ROLLOUT and len(grant.slots) > 1:
            rank = RankId(grant.job, grant.attempt, grant.role, 0)
            keep = grant.slots[: max(1, len(grant.slots) // 4)]
            self.pending.append(TailReached(rank=rank, token=grant.token, iteration=grant.iteration, keep=keep))
        for rank in range(grant.ranks):
            self.pending.append(
                PhaseEnded(
                    rank=RankId(grant.job, grant.attempt, grant.role, rank),
                    token=grant.token,
                    phase=grant.phase,
                    iteration=grant.iteration,
                    vacated=grant.vacate,
                    report=PhaseReport(body_us=5 * SECOND),
                )
            )

    def _prepare(self, command: PrepareSlot) -> None:
        """State is restored ahead: where nobody's is, or beside the phase of one who leaves room."""
        assert self.prepares, f"{command.job} does not know how to restore ahead"
        for slot in command.slots:
            there = self.restored.get(slot)
            assert there is None, f"{slot} has the state of {there} already"
            assert self.scheduler.state.nodes[slot.node].usable, f"{slot} is on a node that is not usable"
            before = self.occupants.get(slot)
            if before is not None and before.job != command.job:
                assert self._leaves_room(slot, command, before.job), f"{slot}: {command.job} beside {before.job}"
            self.restored[slot] = Occupant(command.job, command.token, set(range(command.ranks)))
        for number in range(command.ranks):
            rank = RankId(command.job, command.attempt, command.role, number)
            answer = SlotVacated if (command.token.counter + number) % self.prepares == 1 else SlotPrepared
            self.pending.append(answer(rank=rank, token=command.token, report=PhaseReport()))

    def _leaves_room(self, slot: Slot, command: PrepareSlot, holder: str) -> bool:
        pool, jobs = str(command.pool), self.scheduler.state.jobs
        own, other = (getattr(jobs[name].spec.device_memory, pool) for name in (command.job, holder))
        device = self.scheduler.state.nodes[slot.node].node.device_memory_bytes
        needed = own.state_bytes + other.state_bytes + other.working_bytes
        return needed <= device and slot in self.scheduler.rotation(jobs[holder].group).permits[holder].grant.slots

    def _take(self, command: GrantPermit | WidenPermit, slots: tuple[Slot, ...], ranks: set[int]) -> None:
        """State may be on the slots from now on, under the command's token."""
        for slot in (*slots, *getattr(command, "later", ())):
            if self.restored.get(slot) is not None and self.restored[slot].job == command.job:
                del self.restored[slot]
        for slot in slots:
            there, before = self.restored.get(slot), self.occupants.get(slot)
            assert there is None, f"{slot} was granted to {command.job} while {there} is restored there"
            if before is not None:
                assert before.job == command.job, f"{slot} was granted to {command.job} while {before.job} is on it"
                assert before.token <= command.token
            assert self.scheduler.state.nodes[slot.node].usable, f"{slot} was granted on a node that is not usable"
            self.occupants[slot] = Occupant(command.job, command.token, set(ranks))

    def _move_tail(self, command: MoveTail) -> None:
        self.kept[command.token] = command.keep
        for number in sorted(self.open_ranks[command.token]):
            rank = RankId(command.job, command.attempt, command.role, number)
            self.pending.append(TailMoved(rank=rank, token=command.token))

    def _vacate(self, command: VacateSlot) -> None:
        for rank in range(command.ranks):
            self.pending.append(
                SlotVacated(
                    rank=RankId(command.job, command.attempt, command.role, rank),
                    token=command.token,
                    report=PhaseReport(),
                )
            )

    def _mute(self, name: str, attempt: int, role: str | None) -> None:
        def of_dead(event: AnyEvent) -> bool:
            if isinstance(event, PermitRequested):
                return (event.job, event.attempt) == (name, attempt) and role in (None, event.role)
            if isinstance(event, OF_RANKS):
                rank = event.rank
                return (rank.job, rank.attempt) == (name, attempt) and role in (None, rank.role)
            return False

        self.pending = deque(event for event in self.pending if not of_dead(event))

    def _fold_freed(self, event: AnyEvent) -> None:
        match event:
            case PhaseEnded():
                self.open_ranks[event.token].discard(event.rank.rank)
                if event.vacated:
                    self._freed(event.rank, event.token)
            case PhaseMeasured():
                self.sides[event.rank.job, event.rank.attempt].num_synced = event.iteration + 1
            case SlotVacated():
                self._freed(event.rank, event.token)
            case TailMoved() if event.token in self.kept:
                self._freed(event.rank, event.token, kept=self.kept[event.token])
            case DeathConfirmed():
                self.occupants, self.restored = (
                    {
                        slot: occupant
                        for slot, occupant in there.items()
                        if not (occupant.job == event.job and slot.node == event.node)
                    }
                    for there in (self.occupants, self.restored)
                )

    def _freed(self, rank: RankId, token: Token, kept: tuple[Slot, ...] = ()) -> None:
        """A rank's state is off the slots; one is clean when all ranks have left it."""
        for there in (self.occupants, self.restored):
            for slot, occupant in list(there.items()):
                if occupant.token == token and slot not in kept:
                    occupant.ranks.discard(rank.rank)
                    if not occupant.ranks:
                        del there[slot]

    def _after_phase(self, event: PhaseEnded) -> None:
        rest = [e for e in self.pending if isinstance(e, PhaseEnded) and e.token == event.token]
        record = self.scheduler.state.jobs[event.rank.job]
        if not rest and record.attempt == event.rank.attempt and record.ending is None:
            is_late = event.rank.job in self.saves_late
            if not is_late:
                self._save(event)
            sides = self.sides.get((event.rank.job, event.rank.attempt))
            if sides is not None and event.phase is not PhaseKind.LOADING:
                self._side_over(sides, event)
            else:
                self._next_phase(event.rank.job, event.rank.attempt)
            if is_late:
                self._save(event)


def _host_bytes_on(record: JobRecord, name: str) -> int:
    pin, memory = record.pin, record.spec.host_memory
    if pin is None:
        return 0
    rollout = memory.rollout_bytes if any(slot.node == name for slot in pin.rollout) else 0
    return rollout + (memory.training_bytes if any(slot.node == name for slot in pin.training) else 0)


def check_invariants(scheduler: Scheduler) -> None:
    """What must hold after every event."""
    state = scheduler.state
    owners: dict[str, str] = {}
    for group in state.groups.values():
        assert group.members, f"{group.name} is empty"
        for name in group.nodes:
            assert owners.setdefault(name, group.name) == group.name, f"{name} is in two groups"
    spending = state.spending
    assert spending.groups.keys() == state.groups.keys()
    assert spending.paid == sum(paid for paid, _ in spending.groups.values())
    assert spending.worth == sum(worth for _, worth in spending.groups.values())
    for name in state.nodes:
        resident = sum(_host_bytes_on(record, name) for record in state.jobs.values())
        assert index_of(state).resident_bytes(name) == resident <= state.usable_host_bytes(name), f"memory of {name}"
    for record in state.jobs.values():
        if record.pin is not None:
            assert record.group is not None and record.spec.name in state.groups[record.group].members
            assert {s.node for s in record.pin.rollout + record.pin.training} <= set(state.groups[record.group].nodes)
        else:
            assert all(record.spec.name not in group.members for group in state.groups.values())
    for group_name, group in state.groups.items():
        check_rotation(scheduler.rotation(group_name), {name: state.jobs[name].pin for name in group.members})


def check_rotation(rotation: RotationState, pins: dict[str, Pin]) -> None:
    """What must hold in each group: no slot is held twice or promised twice, and a tail keeps what is its own."""
    permits = rotation.permits.values()
    held = [slot for permit in permits for slot in permit.grant.slots]
    later = [slot for permit in permits for slot in permit.grant.later]
    assert len(held) == len(set(held)), "a slot has two permits"
    assert len(later) == len(set(later)), "a slot is promised twice"
    for permit in permits:
        assert permit.grant.slots and not set(permit.grant.slots) & set(permit.grant.later)
        assert set(permit.grant.slots + permit.grant.later) <= set(pins[permit.grant.job].slots(permit.grant.pool))
        if permit.tail is not None:
            assert not permit.grant.later, "a tail is promised more slots"
            assert (permit.tail.unmoved != []) or set(permit.grant.slots) <= set(permit.tail.keep)
    asked = [(request.job, request.role) for request in rotation.waiting]
    assert len(asked) == len(set(asked)), "a role waits twice"
    if rotation.group.quantum_us:
        assert len(permits) <= 1, "two jobs hold permits in one turn"
    else:
        assert rotation.turn_began is None


def derived(scheduler: Scheduler) -> dict[str, dict[str, object]]:
    """What rotations work out from their state and change step by step, in words that do not depend on bits."""
    found: dict[str, dict[str, object]] = {}
    for name, rotation in scheduler._known.rotations.items():
        rings, members = rotation.rings, rotation.rings.members.values()
        sets = {"held": rotation.held, "later": rotation.later, "keeping": rotation.keeping}
        sets["lingers"] = rotation.lingers
        sets |= {f"{member.name} lingers": member.lingers for member in members}
        found[name] = {what: {slot for slot, bit in rings._bits.items() if bit & mask} for what, mask in sets.items()}
        jobs = {"holding": rotation.holding, "asking": rotation.asking}
        found[name] |= {what: {member.name for member in members if member.bit & bits} for what, bits in jobs.items()}
        linked = {member.name: rings.linked(member.name) for member in members}
        found[name] |= {one: {other.name for other in members if other.bit & linked[one]} for one in linked}
    return found
