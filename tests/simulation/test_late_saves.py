"""State that stays on slots after a phase is saved when another asks for them, and that takes its time."""

from weaverl.domain.cluster import Slot
from weaverl.domain.jobs import PhaseKind
from weaverl.domain.timeline import Interval
from weaverl.simulation.late_saves import late_saves

LOADING, ROLLOUT = PhaseKind.LOADING, PhaseKind.ROLLOUT


def held(job, phase, asked, granted, ended, *, save=0, released=None, token=""):
    return Interval(
        job=job,
        attempt=1,
        phase=phase,
        iteration=0,
        slots=(Slot("r", 0),),
        requested_at=asked,
        granted_at=granted,
        started_at=granted,
        ended_at=ended,
        released_at=ended if released is None else released,
        save_us=save,
        token=token,
    )


def test_what_another_waited_for_is_taken_whole():
    first = held("a", ROLLOUT, 0, 0, 100, save=30, token="1")
    assert late_saves([first, held("b", ROLLOUT, 50, 137, 200, token="2")]) == {"1": 37}
    assert late_saves([first, held("b", ROLLOUT, 110, 145, 200, token="2")]) == {"1": 35}


def test_a_save_that_was_part_of_the_phase_is_not_late():
    first = held("a", ROLLOUT, 0, 0, 100, released=130, save=30, token="1")
    assert late_saves([first, held("b", ROLLOUT, 50, 131, 200, token="2")]) == {}


def test_where_nobody_else_waited_messages_are_as_slow_as_mostly_after_such_a_phase():
    run = [
        held("a", LOADING, 0, 0, 100, save=30, token="1"),
        held("b", LOADING, 0, 140, 240, save=30, token="2"),
        held("a", LOADING, 240, 282, 300, save=30, token="3"),
        held("b", LOADING, 300, 344, 400, save=50, token="4"),
        held("b", ROLLOUT, 420, 420, 500, save=20, token="5"),
        held("a", ROLLOUT, 430, 521, 600, save=20, token="6"),
    ]
    # Messages took 10, 12 and 14 after cold starts, 1 after a phase.
    assert late_saves(run) == {"1": 40, "2": 42, "3": 44, "4": 62, "5": 21, "6": 21}
