"""What the scheduler believes of a job's slowdown is what is measured: promises are watched by this clock."""

import pytest

from simulation.small import row, trace
from weaverl.domain.events import PhaseEnded
from weaverl.domain.jobs import PhaseKind
from weaverl.scheduling.scheduler import Scheduler
from weaverl.simulation import simulate
from weaverl.simulation.costs import Costs


class Clock:
    """Reads the scheduler's clock of each job whenever one of its iterations has ended."""

    def __init__(self, doors):
        self.doors, self.slowdowns = doors, {}

    def hear(self, event, commands):
        if isinstance(event, PhaseEnded) and event.phase is PhaseKind.TRAINING:
            progress = self.doors[0].state.jobs[event.rank.job].progress
            self.slowdowns[event.rank.job] = progress.elapsed_us(event.at) / progress.solo_us


@pytest.mark.parametrize("tail_migration", [False, True])
def test_the_scheduler_s_clock_is_that_of_the_metrics(monkeypatch, tail_migration):
    doors = []

    class Door(Scheduler):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            doors.append(self)

    monkeypatch.setattr(simulate, "Scheduler", Door)
    drawn = {"rollout_max_seconds": 150.0, "rollout_cv": 0.2, "slo": 9.0, "iterations": 40}
    jobs = trace(*(row(name, at=at, **drawn) for at, name in enumerate("abc")))
    clock = Clock(doors)
    setup = simulate.Setup(policy="weave", costs=Costs(tail_migration=tail_migration), max_moves_per_job=0)
    finished = simulate.simulate_heard(jobs, setup, [clock])
    assert finished.outcome.peak_gpus.training == 8, "they share nodes"
    assert sorted(clock.slowdowns.values()) == pytest.approx(sorted(finished.jobs.slowdown), rel=2e-3)
