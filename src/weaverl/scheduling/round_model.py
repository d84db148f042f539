"""How long a group's round takes: round robin, one rollout and one training a job and round, one order on all nodes.

Two computations of the same model: ``simulate`` walks through the rounds, with durations that may differ from
iteration to iteration, and ``cycle_us`` gives the exact steady-state time of a round as the maximum cycle ratio of
the event graph (the max-plus eigenvalue; Baccelli et al., *Synchronization and Linearity*, 1992, section 3.2).
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise

import msgspec

from weaverl.domain.cluster import Slot
from weaverl.domain.groups import Pin
from weaverl.domain.jobs import PhaseProfile

MICROSECONDS = 1_000_000


class Durations(msgspec.Struct, frozen=True):
    """One iteration's phase times in microseconds; switches are not in here.

    With ``staleness`` 1 the next rollout runs beside training, sync and the rest.
    """

    rollout_us: int
    training_us: int
    sync_us: int = 0
    other_us: int = 0
    staleness: int = 0

    @property
    def rest_us(self) -> int:
        """What comes after the training without holding a slot."""
        return self.sync_us + self.other_us

    @property
    def solo_us(self) -> int:
        """Wall time of the iteration alone on its own warm nodes, in the long run."""
        return chain_us(self.rollout_us, self.training_us + self.rest_us, self.staleness)


def chain_us(rollout_us: int, trained_us: int, staleness: int) -> int:
    """An iteration's own time: one phase after the other, or a rollout beside what follows the rollout before.

    ``trained_us``: training, sync and the rest. With a staleness of 1 rollout k + 1 waits for rollout k and for the end
    of iteration k - 1, training k for the same two; so both begin at once, and the next two when the longer one is
    over. The way through a rollout and its own training takes two such steps: (rollout + trained) / 2 is never more
    than the greater of the two.
    """
    return max(rollout_us, trained_us) if staleness else rollout_us + trained_us


def planned_durations(profile: PhaseProfile) -> Durations:
    """What admission plans with: the rollout at the response cap."""
    return Durations(
        round(profile.rollout_max_seconds * MICROSECONDS),
        round(profile.training_seconds * MICROSECONDS),
        round(profile.sync_seconds * MICROSECONDS),
        round(profile.other_seconds * MICROSECONDS),
        profile.staleness,
    )


class Switches(msgspec.Struct, frozen=True):
    """Microseconds to restore one job's state and save it again, on a slot that jobs or phases share."""

    rollout_us: int = 0
    training_us: int = 0


NO_SWITCHES = Switches()

Edge = tuple[int, int, int, int]
"""From a phase to a phase, microseconds, rounds crossed."""


class DeviceRoom(msgspec.Struct, frozen=True):
    """What a member needs of a device, in the rollout and in the training pool, and how much a device there has. Bytes.

    ``state``: of its state; ``busy``: of its state with what its phase works with. None where that is not known.
    """

    state: tuple[int | None, int | None]
    busy: tuple[int | None, int | None]
    device: tuple[int, int]

    def fits_beside(self, holder: "DeviceRoom", pool: int) -> bool:
        """Whether its state has room beside another's phase."""
        state, busy = self.state[pool], holder.busy[pool]
        return state is not None and busy is not None and state + busy <= self.device[pool]


UNKNOWN_ROOM = DeviceRoom((None, None), (None, None), (0, 0))
"""Of a member whose state is restored ahead only while its slots idle."""


class Member(msgspec.Struct, frozen=True):
    """A job of the group as the round model sees it.

    ``durations`` are on the GPUs it is pinned to; ``promised_us`` is the solo time that its slowdown is measured
    against where that is another (a colocated job's, on nodes of its own in both pools). ``hides`` is there if its
    state is restored before it asks, where that is in nobody's way; rounds pay all switches in full.
    """

    job: str
    pin: Pin
    durations: Durations
    switches: Switches = NO_SWITCHES
    promised_us: int | None = None
    hides: DeviceRoom | None = None

    @property
    def solo_us(self) -> int:
        """The solo time that the slowdown is measured against."""
        return self.durations.solo_us if self.promised_us is None else self.promised_us


class PlannedPhase(msgspec.Struct, frozen=True):
    """One phase of the simulated rounds; ``start_us`` counts from the first phase."""

    job: str
    iteration: int
    pool: str
    start_us: int
    end_us: int


def allowed_us(slo: float, solo_us: int) -> int:
    """The longest round that keeps a promise: ``slo`` times the solo time, to the microsecond.

    A round is judged against this whole number and nothing else, so that every way of computing it agrees.
    """
    return round(slo * solo_us)


def slot_loads(members: Sequence[Member]) -> Mapping[Slot, int]:
    """Sum of phase times a round on each slot, with the switches where it is shared."""
    return _slot_loads(tuple(members))


@lru_cache(maxsize=1024)
def _slot_loads(members: tuple[Member, ...]) -> Mapping[Slot, int]:
    """Kept, since it is asked for each way into a group."""
    users = _users(member.pin for member in members)
    held = held_us(members, users.values())
    return {slot: sum(held[vertex] for vertex in line) for slot, line in users.items()}


def is_saturated(members: Sequence[Member]) -> bool:
    """Whether the busiest slot's load reaches the natural cycle (the longest solo time of the members)."""
    if not members:
        return False
    cycle = max(member.durations.solo_us for member in members)
    return max(slot_loads(members).values()) >= cycle


def simulate(
    members: Sequence[Member],
    iterations: Callable[[str], int],
    durations: Callable[[str, int], Durations],
) -> list[PlannedPhase]:
    """The phases of all rounds until every member has run its iterations.

    Args:
        members: in rotation order.
        iterations: number of iterations of a job.
        durations: phase times of a job's iteration (counted from 0); a member's switches are added on shared slots.
    """
    free: dict[Slot, int] = {}
    ready = {member.job: (0, 0) for member in members}
    shared = {slot for slot, line in _users(member.pin for member in members).items() if len(line) > 1}
    phases: list[PlannedPhase] = []

    def run(job: str, turn: int, pool: str, slots: tuple[Slot, ...], body: int, switch: int, ready_at: int) -> int:
        start = max([ready_at, *(free.get(slot, 0) for slot in slots)])
        end = start + body + (switch if shared.intersection(slots) else 0)
        free.update(dict.fromkeys(slots, end))
        phases.append(PlannedPhase(job, turn, pool, start, end))
        return end

    for turn in range(max((iterations(member.job) for member in members), default=0)):
        for member in members:
            if turn >= iterations(member.job):
                continue
            times = durations(member.job, turn)
            job, pin, switches = member.job, member.pin, member.switches
            rolls_at, over = ready[job]
            rolled = run(job, turn, "rollout", pin.rollout, times.rollout_us, switches.rollout_us, rolls_at)
            trains_at = max(rolled, over)
            trained = run(job, turn, "training", pin.training, times.training_us, switches.training_us, trains_at)
            over = trained + times.rest_us
            ready[job] = (trains_at if times.staleness else over, over)
    return phases


def makespan_us(phases: Sequence[PlannedPhase]) -> int:
    """From the first phase's start to the last one's end."""
    return max((p.end_us for p in phases), default=0) - min((p.start_us for p in phases), default=0)


def cycle_us(members: Sequence[Member]) -> Fraction:
    """Exact steady-state time of a round: the maximum over the event graph's cycles of weight over rounds crossed.

    The search starts from the longest of the members' own cycles and the slots', which mostly is the answer.
    """
    lines = lines_of(members)
    held = held_us(members, lines)
    chains = chains_us(members, held)
    ratio = Fraction(max([0, *chains, *(sum(held[vertex] for vertex in line) for line in lines)]))
    return greatest_ratio(_event_graph(members, held, lines), len(held), ratio)


def chains_us(members: Sequence[Member], held: Sequence[int]) -> list[int]:
    """Each member's own time for an iteration, with the switches that it pays; ``held`` as in ``held_us``."""
    return [
        chain_us(held[2 * place], held[2 * place + 1] + member.durations.rest_us, member.durations.staleness)
        for place, member in enumerate(members)
    ]


def greatest_ratio(edges: Sequence[Edge], num_vertices: int, at_least: Fraction) -> Fraction:
    """The greatest ratio of weight over rounds of any cycle, given one that is not greater than that.

    Each step finds a cycle that beats the ratio so far (Bellman-Ford on reduced weights) and takes its ratio, until
    none does (Lawler, *Combinatorial Optimization*, 1976, section 3.13).
    """
    ratio = at_least
    while (better := _cycle_above(edges, num_vertices, ratio)) is not None:
        ratio = better
    return ratio


def _event_graph(members: Sequence[Member], held: Sequence[int], lines: Iterable[Sequence[int]]) -> list[Edge]:
    """The edges between the starts of the members' phases.

    With a staleness of 1 the end of iteration k is waited for by rollout k + 2, which rollout k + 1 comes before, and
    by training k + 1.
    """
    edges: list[Edge] = []
    for place, member in enumerate(members):
        rollout, training = 2 * place, 2 * place + 1
        ahead, trained = member.durations.staleness, held[training] + member.durations.rest_us
        edges += [(rollout, training, held[rollout], 0), (training, rollout, trained, 1 + ahead)]
        if ahead:
            edges += [(rollout, rollout, held[rollout], 1), (training, training, trained, 1)]
    for line in lines:
        if len(line) > 1:
            edges += [(one, after, held[one], 0) for one, after in pairwise(line)]
            edges.append((line[-1], line[0], held[line[-1]], 1))
    return edges


def _cycle_above(edges: Sequence[Edge], num_vertices: int, ratio: Fraction) -> Fraction | None:
    """The ratio of some cycle that is above ``ratio``, or None. Exact: weights are scaled to integers."""
    reduced = [(edge[0], edge[1], edge[2] * ratio.denominator - edge[3] * ratio.numerator, edge) for edge in edges]
    distance = [0] * num_vertices
    parent: dict[int, Edge] = {}
    changed: int | None = None
    for _ in range(num_vertices + 1):
        changed = None
        for source, target, weight, edge in reduced:
            reached = distance[source] + weight
            if reached > distance[target]:
                distance[target], parent[target], changed = reached, edge, target
        if changed is None:
            return None
    assert changed is not None
    for _ in range(num_vertices):
        changed = parent[changed][0]
    return _ratio_of_cycle(parent, changed)


def _ratio_of_cycle(parent: dict[int, Edge], start: int) -> Fraction:
    weight, rounds, vertex = 0, 0, start
    while True:
        edge = parent[vertex]
        weight, rounds, vertex = weight + edge[2], rounds + edge[3], edge[0]
        if vertex == start:
            return Fraction(weight, rounds)


def lines_of(members: Sequence[Member]) -> list[tuple[int, ...]]:
    """The different lines of phases that pass over slots; 2 x place is a member's rollout, the next its training."""
    return list(_lines(tuple(member.pin for member in members)))


@lru_cache(maxsize=4096)
def _lines(pins: tuple[Pin, ...]) -> tuple[tuple[int, ...], ...]:
    return tuple(dict.fromkeys(map(tuple, _users(pins).values())))


def _users(pins: Iterable[Pin]) -> dict[Slot, list[int]]:
    """The phases that pass over each slot in a round, in order: 2 x place is a member's rollout, the next training."""
    users: dict[Slot, list[int]] = {}
    for place, pin in enumerate(pins):
        for slot in pin.rollout:
            users.setdefault(slot, []).append(2 * place)
        for slot in pin.training:
            users.setdefault(slot, []).append(2 * place + 1)
    return users


def held_us(members: Sequence[Member], lines: Iterable[Sequence[int]]) -> list[int]:
    """How long each phase holds its slots, numbered as in ``lines_of``: switches only where states take turns."""
    return held_where_shared(members, {vertex for line in lines if len(line) > 1 for vertex in line})


def held_where_shared(members: Sequence[Member], shared: Container[int]) -> list[int]:
    """The same, by the numbers of the phases whose slots some other phase uses too."""
    held: list[int] = []
    for member in members:
        times, switches = member.durations, member.switches
        for body_us, switch_us in (
            (times.rollout_us, switches.rollout_us),
            (times.training_us, switches.training_us),
        ):
            held.append(body_us + (switch_us if len(held) in shared else 0))
    return held
