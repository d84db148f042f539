from collections.abc import Iterator
from fractions import Fraction
from itertools import permutations, product
from math import ceil

import msgspec
import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from weaverl.domain.cluster import Slot
from weaverl.domain.groups import Pin
from weaverl.scheduling.round_model import (
    NO_SWITCHES,
    Durations,
    Member,
    Switches,
    cycle_us,
    is_saturated,
    makespan_us,
    simulate,
)
from weaverl.scheduling.stacked_rounds import NEVER, StackedRounds, cycles_us, fit

ONE = Pin((Slot("r", 0),), (Slot("t", 0),))


def members(*times: tuple[int, ...], pin: Pin = ONE, switches: Switches = NO_SWITCHES) -> list[Member]:
    return [Member(f"j{place}", pin, Durations(*durations), switches) for place, durations in enumerate(times)]


def rounds(of: list[Member], count: int) -> list:
    times = {member.job: member.durations for member in of}
    return simulate(of, lambda _: count, lambda name, _: times[name])


def test_one_job_alone_takes_its_solo_time():
    assert cycle_us(members((9, 12, 5))) == 26


def test_two_equal_jobs_fill_each_others_bubbles():
    assert cycle_us(members((10, 10), (10, 10))) == 20


def test_sync_makes_the_exact_round_longer_than_the_lower_bound():
    assert cycle_us(members((9, 12, 5), (8, 12, 5), (7, 1, 6))) == Fraction(53, 2)


def test_without_sync_the_round_is_the_published_formula():
    of = members((3, 9), (4, 2), (2, 2))
    assert cycle_us(of) == max(3 + 4 + 2, 9 + 2 + 2, 12)


def test_jobs_on_other_slots_do_not_slow_each_other():
    other = Pin((Slot("r", 1),), (Slot("t", 1),))
    assert cycle_us([*members((5, 5)), Member("x", other, Durations(5, 5))]) == 10


def test_switches_count_only_where_slots_are_shared():
    switches = Switches(rollout_us=2, training_us=3)
    assert cycle_us(members((10, 10), switches=switches)) == 20
    assert cycle_us(members((10, 10), (10, 10), switches=switches)) == 26


def test_each_member_pays_its_own_switches():
    of = [Member("a", ONE, Durations(10, 10), Switches(1, 2)), Member("b", ONE, Durations(10, 2), Switches(3, 4))]
    assert cycle_us(of) == 10 + 1 + 10 + 3


def test_a_colocated_job_pays_both_switches_every_iteration_also_alone():
    both = (Slot("t", 0),)
    assert cycle_us([Member("a", Pin(both, both), Durations(11, 10), Switches(2, 3), promised_us=25)]) == 26


def test_fill_and_drain_limit_of_two_equal_jobs_is_1_92_at_12_iterations():
    assert 2 * 12 * 20 / makespan_us(rounds(members((10, 10), (10, 10)), 12)) == 1.92


def test_a_job_that_ends_early_leaves_its_turns_to_the_others():
    of = members((10, 10), (10, 10))
    phases = simulate(of, {"j0": 1, "j1": 3}.__getitem__, lambda *_: Durations(10, 10))
    assert makespan_us(phases) == 10 + 3 * 20


def test_a_group_is_saturated_when_its_busiest_device_has_no_gap():
    assert not is_saturated(members((10, 10)))
    assert is_saturated(members((10, 10), (10, 10)))
    assert not is_saturated(members((10, 20), (10, 9)))


def slots(node: str) -> st.SearchStrategy[tuple[Slot, ...]]:
    sets = st.sets(st.integers(0, 2), min_size=1)
    return sets.map(lambda devices: tuple(Slot(node, device) for device in sorted(devices)))


pins = st.builds(Pin, slots("r"), slots("t")) | slots("t").map(lambda both: Pin(both, both))
times = st.builds(Durations, st.integers(1, 40), st.integers(1, 40), st.integers(0, 15), st.integers(0, 5))
switches_of_one = st.builds(Switches, st.integers(0, 3), st.integers(0, 3))
groups = st.lists(st.tuples(pins, times, switches_of_one), min_size=1, max_size=4).map(
    lambda rows: [Member(f"j{place}", *row) for place, row in enumerate(rows)]
)


@settings(max_examples=80, deadline=None)
@given(groups)
def test_the_eigenvalue_is_the_rate_at_which_the_simulation_repeats_itself(of: list[Member]):
    assert cycle_us(of) == simulated_cycle(of)


def simulated_cycle(of: list[Member]) -> Fraction:
    """Time a round once all phases move by the same in every so many rounds; of unlinked members the slowest's."""
    for count in (16, 64, 256):
        ends = np.array([phase.end_us for phase in rounds(of, count)]).reshape(count, -1)
        for period in range(1, count // 4):
            moved = ends[-1] - ends[-1 - period]
            if (moved == ends[-1 - period] - ends[-1 - 2 * period]).all() and linked_move_as_one(of, moved):
                return Fraction(int(moved.max()), period)
    raise AssertionError("the simulation does not repeat itself")


def linked_move_as_one(of: list[Member], moved: np.ndarray) -> bool:
    parts = [{slot for slots in (one.pin.rollout, one.pin.training) for slot in slots} for one in of]
    pairs = [(i, j) for i, a in enumerate(parts) for j, b in enumerate(parts) if a & b]
    return all(moved[2 * i] == moved[2 * i + 1] == moved[2 * j] for i, j in pairs)


disaggregated = groups.map(lambda of: [one for one in of if one.pin.rollout != one.pin.training]).filter(bool)


@settings(max_examples=60, deadline=None)
@given(st.lists(disaggregated, min_size=1, max_size=6))
def test_many_groups_are_judged_at_once_as_one_by_one(several: list[list[Member]]):
    several = [[*of[:-1], linked_to_all(of)] for of in several]
    cycles = [cycle_us(of) for of in several]
    stacked = stack(several)
    assert cycles_us(stacked) == cycles
    for late in (-1, 0, 1):
        budgets = [ceil(cycle) + late for cycle in cycles]
        expected = [cycle <= budget for cycle, budget in zip(cycles, budgets, strict=True)]
        assert fit(stacked, np.array(budgets)).tolist() == expected


def linked_to_all(of: list[Member]) -> Member:
    """The last member with all slots that any has, so that the group is one part."""
    rollout = {slot for one in of for slot in one.pin.rollout}
    training = {slot for one in of for slot in one.pin.training}
    return msgspec.structs.replace(of[-1], pin=Pin(tuple(sorted(rollout)), tuple(sorted(training))))


def stack(several: list[list[Member]]) -> StackedRounds:
    """Groups side by side, the last member last and the missing ones before it."""
    size = max(map(len, several))
    times = np.zeros((3, size, len(several)), np.int64)
    gaps = np.full((2, size, size, len(several)), NEVER)
    judged = np.zeros((size, len(several)), np.bool_)
    for group, of in enumerate(several):
        places = [*range(len(of) - 1), size - 1]
        for place, one in zip(places, of, strict=True):
            judged[place, group] = True
            times[2, place, group] = one.durations.sync_us + one.durations.other_us
            for pool, slots in enumerate((one.pin.rollout, one.pin.training)):
                near = [
                    other
                    for other, that in zip(places, of, strict=True)
                    if that is not one and set(slots) & set((that.pin.rollout, that.pin.training)[pool])
                ]
                gaps[pool, place, near, group] = 0
                body = (one.durations.rollout_us, one.durations.training_us)[pool]
                switch = (one.switches.rollout_us, one.switches.training_us)[pool]
                times[pool, place, group] = body + (switch if near else 0)
    return StackedRounds(times[:2], times[2], gaps, judged)


lengths = st.tuples(st.integers(1, 20), st.integers(1, 20))


@settings(max_examples=60, deadline=None)
@given(st.lists(lengths, min_size=2, max_size=3), st.booleans())
def test_theorem_1_no_order_of_turns_beats_round_robin_in_an_unsaturated_group(times: list, own_rollout_nodes: bool):
    pins = [Pin((Slot("r", place if own_rollout_nodes else 0),), ONE.training) for place in range(len(times))]
    of = [Member(f"j{place}", pin, Durations(*both)) for place, (pin, both) in enumerate(zip(pins, times, strict=True))]
    assume(not is_saturated(of))
    assert cycle_us(of) <= min(every_schedule(times, own_rollout_nodes))


def every_schedule(times: list[tuple[int, int]], own_rollout_nodes: bool) -> Iterator[Fraction]:
    """The round of every schedule that runs each job once a round: any order on each node, any training a round late.

    A schedule's round is the greatest ratio, over the circles of phases that wait for one another, of the time in them
    over the rounds that they span; a circle that spans none never begins.
    """
    jobs = range(len(times))
    orders = [(0, *others) for others in permutations(jobs[1:])]
    for rollout, training in product([None] if own_rollout_nodes else orders, orders):
        for late in product((0, 1), repeat=len(times)):
            edges = [((0, job), (1, job), times[job][0], 0) for job in jobs]
            edges += [((1, job), (0, job), times[job][1], 1) for job in jobs]
            for pool, order, turn in ((0, rollout, (0,) * len(times)), (1, training, late)):
                for place, job in enumerate(order or ()):
                    after = order[(place + 1) % len(order)]
                    # An iteration is in the turn of its number plus how late it is; turns of a node are in order.
                    spans = turn[job] - turn[after] + (place + 1 == len(order))
                    edges.append(((pool, job), (pool, after), times[job][pool], spans))
            circles = list(circles_of(edges))
            if all(spans > 0 for _, spans in circles):
                yield max(Fraction(*circle) for circle in circles)


def circles_of(edges: list) -> Iterator[tuple[int, int]]:
    """Time and rounds of every simple circle."""
    vertices = sorted({edge[0] for edge in edges})

    def walk(first: tuple, here: tuple, visited: set, time: int, spans: int) -> Iterator[tuple[int, int]]:
        for one, other, weight, rounds in edges:
            if one == here and other == first:
                yield time + weight, spans + rounds
            elif one == here and other > first and other not in visited:
                yield from walk(first, other, visited | {other}, time + weight, spans + rounds)

    for first in vertices:
        yield from walk(first, first, {first}, 0, 0)
