"""Moves in the simulated world: carried out at the end of an iteration, counted, paid for, and audited."""

import msgspec
import pytest

from simulation.small import row, trace
from weaverl.domain.commands import AdmitJob, ChangeJobState, PlanMove
from weaverl.domain.events import CheckpointWritten, DeathConfirmed, PermitRequested, RankRegistered
from weaverl.domain.jobs import JobState, PhaseKind
from weaverl.reports.recorded import audit_recorded
from weaverl.simulation.costs import Costs
from weaverl.simulation.simulate import Setup, simulate_heard
from weaverl.simulation.timeline import Recorder
from weaverl.simulation.traces.generate import Order, Preset, generate

LARGE = {"rollout_host_gib": 900.0, "training_host_gib": 900.0}
"""Two of these do not fit a node, one of them and small ones do."""
BALANCED = {"rollout": 100.0, "training": 100.0, "slo": 3.0}
DRAWN = {**BALANCED, "rollout_max_seconds": 130.0, "rollout_cv": 0.1}
USUAL = Costs()
COLD_START_US = 80_000_000


class Log:
    def __init__(self):
        self.facts = []

    def hear(self, event, commands):
        self.facts.append((event, commands))

    def events(self, kind, job):
        named = [event for event, _ in self.facts if isinstance(event, kind)]
        return [event for event in named if (event.rank.job if kind is RankRegistered else event.job) == job]


def run(*jobs, moves=3, costs=USUAL, policy="weave"):
    log, recorder, of = Log(), Recorder(), trace(*jobs)
    setup = Setup(policy=policy, costs=costs, timings=False, max_moves_per_job=moves)
    finished = simulate_heard(of, setup, [log], recorder=recorder)
    audit = audit_recorded(of, finished.cluster, recorder, finished.outcome)
    assert audit.findings == ()
    return finished.outcome, log


def apart(**more):
    """Two jobs that are left on nodes of their own when the first has ended."""
    return (
        row("first", iterations=20, **BALANCED, **LARGE),
        row("small", at=1.0, iterations=200, **BALANCED, **more),
        row("large", at=2.0, iterations=200, **BALANCED, **LARGE, **more),
    )


def test_after_a_departure_a_job_is_moved_and_nodes_are_given_back():
    still, _ = run(*apart(), moves=0)
    moved, log = run(*apart())
    assert (still.moves, moved.moves, moved.retries) == (0, 1, 0)
    assert moved.jobs_finished == 3
    assert moved.usd < 0.6 * still.usd
    (plan,) = [command for _, commands in log.facts for command in commands if isinstance(command, PlanMove)]
    rollouts = [one for one in log.events(PermitRequested, plan.job) if one.phase is PhaseKind.ROLLOUT]
    asked = [(one.attempt, one.iteration) for one in rollouts]
    last = next(iteration for attempt, iteration in asked if attempt == 2)
    assert asked == [(1, one) for one in range(last + 1)] + [(2, one) for one in range(last, 200)]
    (death, *_) = log.events(DeathConfirmed, plan.job)
    assert log.events(RankRegistered, plan.job)[1].at - death.at == COLD_START_US


@pytest.mark.parametrize(("saves_every", "moves"), [(10, 1), (150, 0)])
def test_a_job_that_saves_seldom_is_moved_where_it_has_saved_or_stays(saves_every: int, moves: int):
    outcome, log = run(*apart(), costs=msgspec.structs.replace(USUAL, saves_every=saves_every))
    assert (outcome.moves, outcome.jobs_finished) == (moves, 3)
    saved = {event.iteration for event, _ in log.facts if isinstance(event, CheckpointWritten)}
    assert saved and all((iteration + 1) % saves_every == 0 for iteration in saved)


def test_a_moved_job_s_slowdown_has_its_cold_start():
    quick, _ = run(*apart(), costs=Costs(cold_start_seconds=(80.0, 80.0)))
    slow, _ = run(*apart(), costs=Costs(cold_start_seconds=(4080.0, 4080.0)))
    assert (quick.moves, slow.moves) == (1, 1)
    assert slow.slowdown.max - quick.slowdown.max == pytest.approx(4000.0 / (200 * 200.0), rel=0.1)


def assert_nobody_stays_where_it_is(log):
    """No job is stopped to go on from its checkpoint on the slots that it had."""
    pins = {}
    for command in (command for _, commands in log.facts for command in commands):
        if isinstance(command, AdmitJob):
            pins[command.job] = command.pin
        elif isinstance(command, PlanMove):
            assert command.move.pin != pins[command.job]


def test_moves_are_made_that_pay_only_together():
    log, of = Log(), generate(Order(preset=Preset.PRODUCTION, seed=2, num_jobs=8, iterations=40, hours=2.0), USUAL)
    outcome = simulate_heard(of, Setup(policy="weave", timings=False), [log]).outcome
    plans = [command for _, commands in log.facts for command in commands if isinstance(command, PlanMove)]
    left = {(event.job, event.attempt) for event, _ in log.facts if isinstance(event, DeathConfirmed)}
    made = [plan.job for plan in plans if plan.move.together and (plan.job, plan.move.attempt) in left]
    assert len(made) > 1
    assert_nobody_stays_where_it_is(log)
    assert (outcome.slo_attainment, outcome.jobs_finished) == (1.0, 8)


def test_nobody_is_moved_for_little():
    assert run(*(msgspec.structs.replace(one, iterations=22) for one in apart()))[0].moves == 0
    assert run(*apart(), costs=Costs(cold_start_seconds=(20000.0, 20000.0)))[0].moves == 0
    assert run(*apart(), policy="weave-paper")[0].moves == 0


def test_jobs_are_not_moved_to_and_fro():
    """Jobs come and go all the time: nobody moves more often than allowed, nor before it has stayed for a while."""
    many = [
        row(f"j{n}", at=700.0 * n, iterations=15 + 37 * n % 90, **DRAWN, **(LARGE if n % 2 else {})) for n in range(14)
    ]
    outcome, log = run(*many)
    assert outcome.moves >= 2
    assert outcome.jobs_finished == 14
    for job in many:
        starts = [one.at for one in log.events(RankRegistered, job.job_id)]
        assert len(starts) <= 1 + 3
        stops = [
            event.at
            for event, commands in log.facts
            for command in commands
            if isinstance(command, ChangeJobState) and command.job == job.job_id and command.final is JobState.QUEUED
        ]
        assert len(stops) == len(starts) - 1
        assert all(stop - start >= 1800_000_000 for start, stop in zip(starts, stops, strict=False))
