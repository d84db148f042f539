"""Who is late in a play, and who goes first, are what the rotation would say of the same progress."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from weaverl.domain.cluster import Slot
from weaverl.domain.groups import Pin
from weaverl.scheduling import by_slack
from weaverl.scheduling.play import Play
from weaverl.scheduling.players import Pair, Player
from weaverl.scheduling.progress import is_late, room
from weaverl.scheduling.round_model import Durations, Member
from weaverl.scheduling.tails import PUBLISHED_TAIL

TIMES = st.integers(1, 10**9)


def player(slo: float, rollout_us: int, training_us: int, reserve_us: int = 0) -> Player:
    pin = Pin((Slot("r0", 0), Slot("r0", 1), Slot("r0", 2), Slot("r0", 3)), (Slot("t0", 0),))
    found = Player(Member("a", pin, Durations(rollout_us, training_us)), slo, (rollout_us, training_us), (15, 16), 1.0)
    found.mix((), 1)
    found.reserve_us = reserve_us
    return found


@given(st.floats(0.5, 9.0), TIMES, TIMES, st.integers(0, 40), st.floats(0.0, 40.0), st.floats(0.0, 9.0), TIMES)
@example(2.0, 500, 500, 0, 0.0, 0.5, 1)
def test_whoever_looks_at_the_clock_finds_what_the_rotation_would(
    slo, rollout_us, training_us, num_done, part, pace, reserve_us
):
    one = player(slo, rollout_us, training_us, reserve_us)
    solo_us = rollout_us + training_us
    done_us, part_us = num_done * solo_us, round(part * solo_us)
    one.count_done(done_us, part_us)
    guess = round(pace * (done_us + part_us + solo_us))
    for now in (guess, one.late_from - 1, one.late_from):
        left = room(slo, done_us, part_us, one.ahead_us, now, reserve_us)
        assert (now >= one.late_from) == is_late(slo, left)
        assert one.urgency(now) == by_slack.urgency(slo, left)


def test_who_was_passed_too_often_goes_before_the_late():
    often, late = player(9.0, 100, 100), player(1.0, 100, 100)
    for one in (often, late):
        one.count_done(0, 0)
    assert late.urgency(10**6) < often.urgency(10**6)
    often.num_passed = by_slack.MOST_PASSED
    assert often.urgency(10**6) < late.urgency(10**6)


def test_a_tail_keeps_the_first_of_its_slots_but_never_all_of_them():
    for share, keeps in ((0.25, 0b1), (0.5, 0b11), (0.6, 0b111), (1.0, 0)):
        one = player(2.0, 100, 100)
        one.keep_in_tail(share)
        assert one.tail_keeps == keeps


def test_a_rollout_that_ends_in_the_moment_in_which_it_gets_a_new_pace_ends_once(monkeypatch: pytest.MonkeyPatch):
    pin = Pin((Slot("r0", 0),), (Slot("t0", 0),))
    pair = Pair(Member("a", pin, Durations(100, 300, staleness=1)), 2.0, (100, 300), (1, 2), 1.0)
    pair.mix((), 1)
    play = Play([pair], PUBLISHED_TAIL)
    play._at(200, play._step, pair.rolls)
    ended = list[int]()
    end = play._rollout_ended
    monkeypatch.setattr(play, "_rollout_ended", lambda one: (ended.append(play._now), end(one)))
    play.run(20)
    assert 200 in ended and len(ended) == len(set(ended))
