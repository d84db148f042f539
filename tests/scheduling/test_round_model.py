from fractions import Fraction
from itertools import pairwise

from hypothesis import given, settings
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


@settings(max_examples=200, deadline=None)
@given(groups)
def test_the_eigenvalue_is_the_rate_that_the_simulation_settles_at(of: list[Member]):
    exact = cycle_us(of)
    phases = rounds(of, 240)
    ends = {}
    for phase in phases:
        ends[phase.iteration] = max(ends.get(phase.iteration, 0), phase.end_us)
    rate = Fraction(ends[239] - ends[119], 120)
    assert abs(rate - exact) <= Fraction(max(m.durations.solo_us for m in of), 60) + Fraction(1, 10)
    assert all(b >= a for a, b in pairwise([ends[i] for i in range(240)]))
