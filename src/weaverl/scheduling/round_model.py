"""How long a group's round takes: round robin, one rollout and one training a job and round, one order on all nodes.

Two computations of the same model: ``simulate`` walks through the rounds, with durations that may differ from
iteration to iteration, and ``cycle_us`` gives the exact steady-state time of a round as the maximum cycle ratio of
the event graph (the max-plus eigenvalue; Baccelli et al., *Synchronization and Linearity*, 1992, section 3.2).
"""

from collections.abc import Callable, Sequence
from fractions import Fraction

import msgspec

from weaverl.domain.cluster import Slot
from weaverl.domain.groups import Pin
from weaverl.domain.jobs import PhaseProfile

MICROSECONDS = 1_000_000


class Durations(msgspec.Struct, frozen=True):
    """One iteration's phase times in microseconds; switches are not in here."""

    rollout_us: int
    training_us: int
    sync_us: int = 0
    other_us: int = 0

    @property
    def solo_us(self) -> int:
        """Wall time of the iteration alone on its own warm nodes."""
        return self.rollout_us + self.training_us + self.sync_us + self.other_us


def planned_durations(profile: PhaseProfile) -> Durations:
    """What admission plans with: the rollout at the response cap."""
    return Durations(
        round(profile.rollout_max_seconds * MICROSECONDS),
        round(profile.training_seconds * MICROSECONDS),
        round(profile.sync_seconds * MICROSECONDS),
        round(profile.other_seconds * MICROSECONDS),
    )


class Switches(msgspec.Struct, frozen=True):
    """Microseconds to restore one job's state and save it again, on a slot that jobs or phases share."""

    rollout_us: int = 0
    training_us: int = 0


NO_SWITCHES = Switches()


class Member(msgspec.Struct, frozen=True):
    """A job of the group as the round model sees it.

    ``durations`` are on the GPUs it is pinned to; ``promised_us`` is the solo time that its slowdown is measured
    against where that is another (a colocated job's, on nodes of its own in both pools).
    """

    job: str
    pin: Pin
    durations: Durations
    switches: Switches = NO_SWITCHES
    promised_us: int | None = None

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


def slot_loads(members: Sequence[Member]) -> dict[Slot, int]:
    """Sum of phase times a round on each slot, with the switches where it is shared."""
    loads: dict[Slot, int] = {}
    for member, rollout_us, training_us in _held_times(members):
        for slot in member.pin.rollout:
            loads[slot] = loads.get(slot, 0) + rollout_us
        for slot in member.pin.training:
            loads[slot] = loads.get(slot, 0) + training_us
    return loads


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
    ready = {member.job: 0 for member in members}
    shared = _shared_slots(members)
    phases: list[PlannedPhase] = []
    for turn in range(max((iterations(member.job) for member in members), default=0)):
        for member in members:
            if turn >= iterations(member.job):
                continue
            times = durations(member.job, turn)
            at = ready[member.job]
            for pool, slots, body, switch in (
                ("rollout", member.pin.rollout, times.rollout_us, member.switches.rollout_us),
                ("training", member.pin.training, times.training_us, member.switches.training_us),
            ):
                held = body + (switch if shared.intersection(slots) else 0)
                start = max([at, *(free.get(slot, 0) for slot in slots)])
                at = start + held
                free.update(dict.fromkeys(slots, at))
                phases.append(PlannedPhase(member.job, turn, pool, start, at))
            ready[member.job] = at + times.sync_us + times.other_us
    return phases


def makespan_us(phases: Sequence[PlannedPhase]) -> int:
    """From the first phase's start to the last one's end."""
    return max((p.end_us for p in phases), default=0) - min((p.start_us for p in phases), default=0)


def cycle_us(members: Sequence[Member]) -> Fraction:
    """Exact steady-state time of a round: the maximum over the event graph's cycles of weight over rounds crossed.

    Each improvement step finds a cycle that beats the ratio so far (Bellman-Ford on reduced weights) and takes its
    ratio, until none does (Lawler, *Combinatorial Optimization*, 1976, section 3.13).
    """
    edges = _event_graph(members)
    ratio = Fraction(max((member.durations.solo_us for member in members), default=0))
    while (better := _cycle_above(edges, ratio)) is not None:
        ratio = better
    return ratio


_Vertex = tuple[str, str]
_Edge = tuple[_Vertex, _Vertex, int, int]


def _event_graph(members: Sequence[Member]) -> list[_Edge]:
    """Edges (from, to, microseconds, rounds crossed) between the starts of the members' phases."""
    edges: list[_Edge] = []
    held: dict[_Vertex, int] = {}
    users: dict[Slot, list[_Vertex]] = {}
    for member, rollout_us, training_us in _held_times(members):
        rollout, training = ("rollout", member.job), ("training", member.job)
        held[rollout], held[training] = rollout_us, training_us
        rest = member.durations.sync_us + member.durations.other_us
        edges += [(rollout, training, rollout_us, 0), (training, rollout, training_us + rest, 1)]
        for vertex, slots in ((rollout, member.pin.rollout), (training, member.pin.training)):
            for slot in slots:
                users.setdefault(slot, []).append(vertex)
    for line in users.values():
        for place, vertex in enumerate(line):
            following = (place + 1) % len(line)
            edges.append((vertex, line[following], held[vertex], int(following == 0)))
    return edges


def _cycle_above(edges: Sequence[_Edge], ratio: Fraction) -> Fraction | None:
    """The ratio of some cycle that is above ``ratio``, or None. Exact: weights are scaled to integers."""
    scale, share = ratio.denominator, ratio.numerator
    vertices = sorted({edge[0] for edge in edges})
    distance = dict.fromkeys(vertices, 0)
    parent: dict[_Vertex, _Edge] = {}
    changed: _Vertex | None = None
    for _ in range(len(vertices) + 1):
        changed = None
        for edge in edges:
            source, target, weight, rounds = edge
            reached = distance[source] + weight * scale - rounds * share
            if reached > distance[target]:
                distance[target], parent[target], changed = reached, edge, target
        if changed is None:
            return None
    assert changed is not None
    for _ in vertices:
        changed = parent[changed][0]
    return _ratio_of_cycle(parent, changed)


def _ratio_of_cycle(parent: dict[_Vertex, _Edge], start: _Vertex) -> Fraction:
    weight, rounds, vertex = 0, 0, start
    while True:
        edge = parent[vertex]
        weight, rounds, vertex = weight + edge[2], rounds + edge[3], edge[0]
        if vertex == start:
            return Fraction(weight, rounds)


def _shared_slots(members: Sequence[Member]) -> set[Slot]:
    """Slots that hold more than one state in turn: several members', or both of a colocated one's."""
    seen: set[Slot] = set()
    shared: set[Slot] = set()
    for member in members:
        for slots in (set(member.pin.rollout), set(member.pin.training)):
            shared |= seen & slots
            seen |= slots
    return shared


def _held_times(members: Sequence[Member]) -> list[tuple[Member, int, int]]:
    """Each member with how long it holds its rollout and its training slots a round."""
    shared = _shared_slots(members)

    def held(slots: tuple[Slot, ...], body_us: int, switch_us: int) -> int:
        return body_us + (switch_us if shared.intersection(slots) else 0)

    return [
        (
            one,
            held(one.pin.rollout, one.durations.rollout_us, one.switches.rollout_us),
            held(one.pin.training, one.durations.training_us, one.switches.training_us),
        )
        for one in members
    ]
