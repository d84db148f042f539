"""Other ways to move running jobs: free moves every hour, and the reactions to drift; audited like every run."""

import pytest

from simulation.small import row, trace
from weaverl.domain.commands import ChangeJobState, LearnProfile, PlanMove
from weaverl.domain.events import DeathConfirmed, RankRegistered
from weaverl.domain.jobs import JobState
from weaverl.reports.recorded import audit_recorded
from weaverl.scheduling.state import Parameters
from weaverl.simulation.costs import Costs
from weaverl.simulation.replacement.all_anew import all_anew, expected_usd
from weaverl.simulation.replacement.hourly import PARAMETERS, Hourly
from weaverl.simulation.replacement.reactions import Reacting, Reaction
from weaverl.simulation.simulate import Replacing, Setup, simulate_heard
from weaverl.simulation.timeline import Recorder

HOUR_US = 3_600_000_000
USUAL, FREE = Costs(), Costs(moved_start=0.0)
LARGE = {"rollout_host_gib": 900.0, "training_host_gib": 900.0}
"""Two of these do not fit a node, one of them and small ones do."""
BALANCED = {"rollout": 100.0, "training": 100.0, "slo": 3.0}


class Log:
    def __init__(self):
        self.facts = []

    def hear(self, event, commands):
        self.facts.append((event, commands))

    def commands(self, kind):
        return [(event.at, one) for event, commands in self.facts for one in commands if isinstance(one, kind)]


def run(jobs, replacing=None, costs=USUAL, listeners=()):
    log, recorder, of = Log(), Recorder(), trace(*jobs)
    setup = Setup(policy="weave", costs=costs, timings=False)
    finished = simulate_heard(of, setup, [log, *listeners], recorder=recorder, replacing=replacing)
    assert audit_recorded(of, finished.cluster, recorder, finished.outcome).findings == ()
    assert finished.outcome.jobs_finished == len(jobs)
    return finished.outcome, log


def reacted(jobs, reaction):
    reacting = Reacting(reaction)
    outcome, log = run(jobs, Replacing(reacting, Parameters(review_us=0)), listeners=[reacting])
    assert len(reacting.plan_ns) == len({at for at, _ in log.commands(LearnProfile)})
    return outcome, log


def apart(first=20):
    """Two jobs that are left on nodes of their own when the first has ended."""
    return (
        row("first", iterations=first, **BALANCED, **LARGE),
        row("small", at=1.0, iterations=200, **BALANCED),
        row("large", at=2.0, iterations=200, **BALANCED, **LARGE),
    )


def growing(growth=3.0):
    """Two that share nodes well until one of them has grown."""
    return (
        row("steady", iterations=150, rollout=100.0, training=100.0, slo=1.3),
        row("grows", at=1.0, iterations=150, rollout=100.0, training=100.0, slo=1.3, rollout_growth=growth),
    )


def test_a_move_takes_as_much_of_a_cold_start_as_it_is_said_to():
    taken = {}
    for share in (0.0, 0.5, 1.0):
        _, log = run(apart(), costs=Costs(moved_start=share))
        (_, plan), *_ = log.commands(PlanMove)
        starts = [e.at for e, _ in log.facts if isinstance(e, RankRegistered) and e.rank.job == plan.job]
        death = next(e.at for e, _ in log.facts if isinstance(e, DeathConfirmed) and e.job == plan.job)
        taken[share] = starts[1] - death
    assert taken == {0.0: 0, 0.5: 40_000_000, 1.0: 80_000_000}


def test_free_moves_are_planned_on_the_hour_and_cost_less():
    ours, _ = run(apart())
    hourly, log = run(apart(), Replacing(Hourly(), PARAMETERS), FREE)
    assert hourly.usd < 1.02 * ours.usd
    planned = [at for at, _ in log.commands(PlanMove)]
    assert planned and all(at % HOUR_US == 0 for at in planned)


def test_always_is_also_when_somebody_has_left():
    _, log = run(apart(first=10), Replacing(Hourly(always=True), PARAMETERS), FREE)
    left = min(at for at, one in log.commands(ChangeJobState) if one.state is JobState.FINISHED)
    assert left < HOUR_US
    assert [at for at, _ in log.commands(PlanMove)] == [left]


def test_a_search_each_hour_finds_no_worse_places():
    without, _ = run(apart(), Replacing(Hourly(), PARAMETERS), FREE)
    searched, _ = run(apart(), Replacing(Hourly(searches=True), PARAMETERS), FREE)
    assert searched.usd < 1.02 * without.usd


def test_nobody_moves_without_drift_whatever_the_reaction():
    for reaction in Reaction:
        outcome, log = reacted(apart(), reaction)
        assert outcome.moves == 0 and not log.commands(LearnProfile), reaction


def test_who_has_drifted_is_stopped_and_placed_as_an_arrival_even_where_it_is():
    outcome, log = reacted(growing(1.2), Reaction.RESUBMIT)
    drifted = [one.job for _, one in log.commands(LearnProfile)]
    stopped = [one.job for _, one in log.commands(ChangeJobState) if one.final is JobState.QUEUED]
    assert set(drifted) == set(stopped) == {"grows"}
    assert 1 <= outcome.moves == len(stopped) <= len(drifted)


@pytest.mark.parametrize("reaction", [Reaction.RESCUE, Reaction.INCREMENTAL, Reaction.RESUBMIT])
def test_a_promise_that_drift_endangers_is_kept_by_a_move(reaction):
    still, _ = reacted(growing(), Reaction.NONE)
    moved, _ = reacted(growing(), reaction)
    assert still.slo_attainment < 1.0
    assert moved.slo_attainment == 1.0
    assert moved.moves >= 1


def test_a_rescue_is_a_plan_for_no_group():
    """What policy ``weave`` is asked when a job has drifted: it saves promises, and no dollars."""
    moved, log = reacted(growing(), Reaction.RESCUE)
    planned = [one.move for _, one in log.commands(PlanMove)]
    assert planned and all(one.rescues for one in planned)
    assert moved.slo_attainment == 1.0


def test_a_drift_that_endangers_no_promise_is_left_alone_by_a_rescue():
    jobs = [*apart(first=10), row("grows", at=3.0, iterations=200, **BALANCED, rollout_growth=1.3)]
    rescued, log = reacted(jobs, Reaction.RESCUE)
    paid, _ = reacted(jobs, Reaction.INCREMENTAL)
    assert log.commands(LearnProfile) and rescued.slo_attainment == 1.0
    assert rescued.moves == 0 < paid.moves


def test_all_jobs_are_placed_anew_only_on_paper():
    seen = []

    def look(state, near, reviewed_at):
        before = {name: record.pin for name, record in state.jobs.items()}
        usd = expected_usd(state)
        seen.append(all_anew(state))
        assert {name: record.pin for name, record in state.jobs.items()} == before
        assert expected_usd(state) == usd

    run(apart(), Replacing(look, Parameters(review_us=HOUR_US)))
    moving = [one for one in seen if one is not None and one.pins]
    assert moving
    assert all(len(one.pins) == 1 for one in moving)
    assert max(one.saved_usd for one in moving) > 100.0
