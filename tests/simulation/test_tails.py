"""Tails of rollouts, by hand: who holds what when, and how far the work is."""

import pytest

from simulation.small import row, trace
from weaverl.domain.commands import GrantPermit, MoveTail, WidenPermit
from weaverl.domain.events import PhaseEnded, TailMoved, TailReached
from weaverl.domain.jobs import PhaseKind
from weaverl.reports.recorded import audit_recorded
from weaverl.simulation.costs import Costs
from weaverl.simulation.simulate import Setup, simulate_heard
from weaverl.simulation.timeline import Recorder

TAILS = Costs(rollout_switch_seconds=(0, 0), training_switch_seconds=(0, 0), cold_start_seconds=(0, 0))


class Log:
    """Seconds of everything that has to do with rollouts, by kind and job."""

    def __init__(self):
        self.seen = {}

    def hear(self, event, commands):
        if isinstance(event, TailReached | TailMoved | PhaseEnded) and of_rollout(event):
            self.seen.setdefault((type(event).__name__, event.rank.job), event.at / 1e6)
        for command in commands:
            if isinstance(command, GrantPermit | MoveTail | WidenPermit) and of_rollout(command):
                self.seen.setdefault((type(command).__name__, command.job), (event.at / 1e6, command))


def of_rollout(record):
    return getattr(record, "phase", PhaseKind.ROLLOUT) is PhaseKind.ROLLOUT


def run(*jobs, costs=TAILS):
    log, recorder = Log(), Recorder()
    finished = simulate_heard(trace(*jobs), Setup(seed=None, costs=costs), [log], recorder=recorder)
    audit = audit_recorded(trace(*jobs), finished.cluster, recorder, finished.outcome)
    assert audit.findings == ()
    return finished.outcome, log.seen


def test_a_tail_moves_away_and_the_next_rollout_starts_on_the_rest():
    outcome, seen = run(*(row(name, iterations=1, rollout=100, training=100) for name in "ab"))
    assert seen["TailReached", "a"] == 50.0
    at, move = seen["MoveTail", "a"]
    assert (at, len(move.keep)) == (50.0, 2)
    assert seen["TailMoved", "a"] == 51.0
    at, grant = seen["GrantPermit", "b"]
    assert (at, len(grant.slots), len(grant.later)) == (51.0, 6, 2)
    assert seen["PhaseEnded", "a"] == pytest.approx(51 + 50 * 1.05)
    at, widened = seen["WidenPermit", "b"]
    assert (at, set(widened.slots)) == (103.5, set(move.keep))
    # 52.5 s at three quarters of the speed did 39.375 s of the work.
    assert seen["PhaseEnded", "b"] == pytest.approx(103.5 + 100 - 39.375)
    assert outcome.bubbles.rollout == pytest.approx(
        1 - (8 * 51 + 2 * 52.5 + 6 * 52.5 + 8 * 60.625) / (8 * outcome.hours * 3600), abs=1e-6
    )


def test_a_tail_that_nobody_wants_moved_stays_where_it_is():
    outcome, seen = run(row(iterations=1))
    assert seen["TailReached", "a"] == 50.0
    assert ("MoveTail", "a") not in seen
    assert seen["PhaseEnded", "a"] == 100.0
    assert outcome.slowdown.max == 1.0


def test_a_tail_is_moved_late_if_somebody_comes_late():
    _, seen = run(
        row("a", iterations=1, rollout=100, training=100), row("b", at=80, iterations=1, rollout=100, training=100)
    )
    assert seen["MoveTail", "a"][0] == 80.0
    assert seen["PhaseEnded", "a"] == pytest.approx(81 + 20 * 1.05)
    assert seen["GrantPermit", "b"][0] == 81.0


def test_a_tail_reached_on_few_slots_is_announced_when_the_others_have_come():
    # b's rollout is short: at three quarters of the speed it is in its tail before a's long tail is over.
    _, seen = run(
        row("a", iterations=1, rollout=100, training=20, rollout_p80=0.5),
        row("b", iterations=1, rollout=60, training=60, rollout_p80=0.5),
    )
    widened = seen["WidenPermit", "b"][0]
    assert widened == 103.5
    assert seen["TailReached", "b"] == 103.5
    assert seen["PhaseEnded", "b"] == pytest.approx(103.5 + 60 - 52.5 * 0.75)


def test_without_tail_migration_the_next_waits_for_the_whole_rollout():
    costs = Costs(
        rollout_switch_seconds=(0, 0), training_switch_seconds=(0, 0), cold_start_seconds=(0, 0), tail_migration=False
    )
    _, seen = run(*(row(name, iterations=1, rollout=100, training=100) for name in "ab"), costs=costs)
    assert ("TailReached", "a") not in seen
    assert seen["GrantPermit", "b"][0] == 100.0
