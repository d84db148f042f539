"""Real jobs hand slots over in turns."""

import itertools
from pathlib import Path

from live import Live, done, every, overlaps

from auditor import audit


def test_two_jobs_take_turns_on_both_slots_and_never_overlap(live: Live, directory: Path):
    live.submit("turn-a", "--iterations", 6, iterations=6)
    live.submit("turn-b", "--iterations", 6, iterations=6)
    live.await_finished("turn-a", "turn-b")
    marks = live.marks("turn-a", "turn-b")
    assert overlaps(marks) == []
    assert done(marks) == every(("turn-a", "turn-b"), 6)
    holders = [mark.job for mark in marks if (mark.phase, mark.edge) == ("rollout", "begin")]
    both = holders[holders.index("turn-b") : -holders[::-1].index("turn-a")]
    assert all(first != second for first, second in itertools.pairwise(both)), holders
    live.audit_input(directory / "timeline")
    assert audit(directory / "timeline").findings == ()


def test_several_jobs_of_two_roles_that_start_together_each_find_their_own_meeting(live: Live):
    names = tuple(f"meet-{number}" for number in range(4))
    for name in names:
        live.submit(name, "--iterations", 2, roles=("rollout", "training"))
    live.await_finished(*names, seconds=40.0)
    assert done(live.marks(*names)) == every(names, 2)
    assert overlaps(live.marks(*names)) == []
