from math import nan

from weaverl.simulation.reproduction.records import Point
from weaverl.simulation.reproduction.sweeps import questions, where_it_pays

KEPT = {2: 0.01, 20: 0.493, 400: 0.943}


def points(*ratios):
    return [
        Point(value=value, solo_ratio=solo, colocated_ratio=colocated, slo_attainment=1.0)
        for value, solo, colocated in ratios
    ]


def test_the_answer_says_between_which_values_weaving_begins_to_pay():
    answer = where_it_pays(points((1, 1.0, 0.8), (2, 1.3, 0.9), (4, 1.5, 1.1)), " jobs")
    assert answer == (
        "Against Solo-D it starts to pay between 1 and 2 jobs (1.00x to 1.50x). "
        "Against veRL it starts to pay between 2 and 4 jobs (0.80x to 1.10x). "
        "Promises kept: 100%."
    )


def test_the_answer_says_where_weaving_stops_to_pay_and_where_it_never_does():
    answer = where_it_pays(points((1, 1.5, 0.9), (10, 1.2, 1.0), (40, 1.01, 1.01)), "x")
    assert answer == (
        "Against Solo-D it stops paying between 10 and 40x (1.01x to 1.50x). "
        "Against veRL it does not pay (0.90x to 1.01x). Promises kept: 100%."
    )


def test_a_stretch_in_the_middle_has_two_ends():
    answer = where_it_pays(points((1, 1.1, 1.0), (2, 1.1, 1.2), (3, 1.1, 1.0)))
    assert answer == (
        "Against Solo-D it pays throughout (1.10x to 1.10x). "
        "Against veRL it starts to pay between 1 and 2, stops paying between 2 and 3 (1.00x to 1.20x). "
        "Promises kept: 100%."
    )


def test_values_at_which_not_every_job_can_run_are_named_and_not_compared():
    answer = where_it_pays(points((512, 1.1, nan), (1024, 1.3, 1.0), (2048, 1.3, 1.1)), " GiB")
    assert answer == (
        "Against Solo-D it pays throughout (1.10x to 1.30x). Against veRL it starts to pay between 1024 and 2048 GiB "
        "(1.00x to 1.10x; at 512 GiB not every job can run). Promises kept: 100%."
    )


def test_ratios_that_hardly_differ_around_the_edge_have_no_place_where_weaving_begins_to_pay():
    answer = where_it_pays(points((512, 1.015, 1.03), (1024, 1.012, 1.01), (2048, 1.021, 1.01)))
    assert answer == (
        "Against Solo-D it is on the edge throughout (1.01x to 1.02x). "
        "Against veRL it stops paying between 512 and 1024 (1.01x to 1.03x). "
        "Promises kept: 100%."
    )


def test_the_answer_says_how_many_promises_are_kept():
    some = [Point(value=value, solo_ratio=1.5, colocated_ratio=0.9, slo_attainment=met) for value, met in KEPT.items()]
    assert where_it_pays(some).endswith(" Promises kept: 1% to 94%.")


def test_a_quick_run_asks_the_same_questions_with_fewer_values():
    whole, few = questions(False), questions(True)
    assert [one.key for one in few] == [one.key for one in whole]
    for one, other in zip(whole, few, strict=True):
        assert len(other.values) < len(one.values)
        assert (one.values[0], one.values[-1]) == (other.values[0], other.values[-1])
        assert list(one.values) == sorted(one.values)
