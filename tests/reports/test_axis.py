import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weaverl.reports.axis import duration, ticks, time_ticks


@given(st.floats(1e-6, 1e12))
def test_time_ticks_are_bounded_and_within_whatever_the_length(seconds):
    marks = time_ticks(seconds)
    assert 1 <= len(marks) <= 10
    assert all(-1e-9 <= mark <= seconds * (1 + 1e-6) for mark, _ in marks)
    assert len({label for _, label in marks}) == len(marks)


@given(st.floats(-1e9, 1e9), st.floats(1e-3, 1e9))
def test_ticks_are_bounded(low, span):
    assert len(ticks(low, low + span)) <= 7


@pytest.mark.parametrize(
    ("seconds", "labels"),
    [
        (0, ["0 s"]),
        (0.9, ["0 s", "0.1 s", "0.2 s", "0.3 s", "0.4 s", "0.5 s", "0.6 s", "0.7 s", "0.8 s", "0.9 s"]),
        (61, ["0 s", "10 s", "20 s", "30 s", "40 s", "50 s", "60 s"]),
        (1200, ["0 min", "5 min", "10 min", "15 min", "20 min"]),
        (150 * 86400, ["0 d", "20 d", "40 d", "60 d", "80 d", "100 d", "120 d", "140 d"]),
    ],
)
def test_time_ticks_are_at_steps_that_clocks_have(seconds, labels):
    assert [label for _, label in time_ticks(seconds)] == labels


def test_ticks_of_one_point_and_of_nothing():
    assert ticks(3.0, 3.0) == (3.0,)
    assert ticks(math.nan, 1.0) == ()


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0 s"),
        (0.254, "0.25 s"),
        (0.999, "1 s"),
        (6.14, "6.1 s"),
        (61.4, "61 s"),
        (720, "12 min"),
        (12600, "3.5 h"),
        (1209600, "14 d"),
    ],
)
def test_durations_read_as_people_write_them(seconds, shown):
    assert duration(seconds) == shown
