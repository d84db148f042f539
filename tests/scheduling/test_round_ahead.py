"""Jobs a step ahead (staleness 1) in the round model, and what admission and the forecast make of them."""

from fractions import Fraction
from itertools import pairwise

import msgspec
import pytest
from builders import cluster, job, node
from hypothesis import given, settings
from hypothesis import strategies as st
from test_round_model import circles_of, rounds, simulated_cycle, slots

from weaverl.domain.cluster import Slot
from weaverl.domain.events import AgentReported, ControllerStarted, JobSubmitted
from weaverl.domain.groups import Pin
from weaverl.domain.jobs import JobSpec, Placement
from weaverl.errors import UsageError
from weaverl.scheduling.admission import predicted_slowdowns
from weaverl.scheduling.forecast import forecast, least_slowdowns
from weaverl.scheduling.policies.optimal import optimal_plan
from weaverl.scheduling.round_model import (
    NO_SWITCHES,
    Durations,
    Member,
    Switches,
    cycle_us,
    held_us,
    lines_of,
    makespan_us,
    simulate,
)
from weaverl.scheduling.scheduler import Scheduler
from weaverl.scheduling.state import Parameters

ONE = Pin((Slot("r", 0),), (Slot("t", 0),))
OTHER = Pin((Slot("r", 1),), (Slot("t", 0),))

times = st.builds(
    Durations, st.integers(1, 40), st.integers(1, 40), st.integers(0, 15), st.integers(0, 5), st.sampled_from([0, 1, 1])
)
groups = st.lists(
    st.tuples(st.builds(Pin, slots("r"), slots("t")), times, st.builds(Switches, st.integers(0, 3), st.integers(0, 3))),
    min_size=1,
    max_size=4,
).map(lambda rows: [Member(f"j{place}", *row) for place, row in enumerate(rows)])


def ahead(name: str, *of: int, pin: Pin = ONE, switches: Switches = NO_SWITCHES) -> Member:
    rollout, training, sync = (*of, 0)[:3]
    return Member(name, pin, Durations(rollout, training, sync, 0, 1), switches)


@pytest.mark.parametrize(("of", "longer"), [((9, 12, 5), 17), ((30, 12, 5), 30), ((17, 12, 5), 17)])
def test_alone_an_iteration_takes_the_longer_one_of_rollout_and_training_with_its_sync(of, longer):
    member = ahead("a", *of)
    assert member.solo_us == cycle_us([member]) == longer
    first_rollout_alone, number = of[0], 5
    assert (
        makespan_us(rounds([member], number)) == max(of[0], of[1] + of[2]) * (number - 1) + first_rollout_alone + of[1]
    )


def test_what_is_left_of_an_iteration_counts_on_the_side_of_the_training():
    assert cycle_us([Member("a", ONE, Durations(10, 5, 2, 6, 1))]) == 13


@settings(max_examples=80, deadline=None)
@given(groups)
def test_the_eigenvalue_is_the_rate_at_which_the_simulation_repeats_itself(of: list[Member]):
    assert cycle_us(of) == simulated_cycle(of)


@settings(max_examples=80, deadline=None)
@given(groups)
def test_the_round_is_the_greatest_ratio_of_all_circles_of_phases_that_wait_for_one_another(of: list[Member]):
    lines = lines_of(of)
    held = held_us(of, lines)
    edges = []
    for place, member in enumerate(of):
        rollout, training, rest = 2 * place, 2 * place + 1, member.durations.rest_us
        step_ahead = member.durations.staleness
        edges.append((rollout, training, held[rollout], 0))
        edges.append((training, rollout, held[training] + rest, 1 + step_ahead))
        if step_ahead:
            edges += [(rollout, rollout, held[rollout], 1), (training, training, held[training] + rest, 1)]
    for line in lines:
        edges += [(one, after, held[one], 0) for one, after in pairwise(line)]
        edges.append((line[-1], line[0], held[line[-1]], 1))
    assert cycle_us(of) == max(Fraction(*circle) for circle in circles_of(edges))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(*[st.integers(1, 40)] * 2, st.integers(0, 9)), min_size=1, max_size=9))
def test_alone_it_takes_the_first_rollout_and_then_pairs_whatever_each_iteration_takes(drawn: list):
    of = [Durations(*one, 0, 1) for one in drawn]
    phases = simulate([Member("a", ONE, of[0])], lambda _: len(of), lambda _, turn: of[turn])
    trained = [one.training_us + one.sync_us for one in of]
    pairs = [max(rollout.rollout_us, one) for rollout, one in zip(of[1:], trained[:-1], strict=True)]
    assert makespan_us(phases) == of[0].rollout_us + sum(pairs) + of[-1].training_us
    for one in phases:
        before = [p.end_us for p in phases if p.pool == "training" and p.iteration == one.iteration - 2]
        assert one.pool == "training" or one.start_us >= sum(before), "no sample is two versions old"


def test_a_job_a_step_ahead_fills_its_own_bubbles_and_leaves_none_on_its_longer_side():
    of = [ahead("a", 10, 10), Member("b", OTHER, Durations(10, 10))]
    assert predicted_slowdowns(of) == {"a": 2.0, "b": 1.0}
    of = [ahead("a", 20, 10), Member("b", OTHER, Durations(10, 10))]
    assert predicted_slowdowns(of) == {"a": 1.0, "b": 1.0}


@settings(max_examples=30, deadline=None)
@given(groups)
def test_the_forecast_keeps_the_bounds_and_the_turns_of_everybody(of: list[Member]):
    slos = {member.job: 9.0 for member in of}
    played, least = forecast(of, slos, iterations=30), least_slowdowns(of, slos)
    assert all(played[name] >= min(least[name], 1.0) - 1e-9 for name in slos)
    alone = forecast(of[:1], slos)
    assert alone[of[0].job] == pytest.approx(1.0)


def test_side_by_side_with_rollouts_of_two_lengths_each_pair_takes_its_longer_half():
    of = ahead("a", 100, 50)
    played = forecast([of], {"a": 2.0}, rollouts={"a": (20, 180)}, iterations=20)
    assert played == {"a": 1.0}


def spec(**more: object) -> JobSpec:
    of = job("a", **more)
    return with_staleness(of, 1)


def with_staleness(of: JobSpec, staleness: int) -> JobSpec:
    assert of.profile is not None
    profile = msgspec.structs.replace(of.profile, staleness=staleness)
    return msgspec.structs.replace(of, staleness=staleness, profile=profile)


@pytest.mark.parametrize("policy", ["gavel", "colocated"])
def test_policies_with_one_phase_at_a_time_refuse_it_by_name(policy: str):
    (refused,) = submitted(spec(), policy)
    assert refused.reason.startswith("job a has staleness 1, so that rollout and training run side by side, and policy")
    assert f"policy {policy} has room for one of them at a time: choose weave, weave-paper or solo" in refused.reason


def test_a_job_whose_phases_share_their_slots_is_refused():
    (refused,) = submitted(spec(placement=Placement.LOCAL), "weave-paper")
    assert "which a local job cannot have: its phases share their slots" in refused.reason


def submitted(of: JobSpec, policy: str) -> list:
    scheduler = Scheduler(cluster(), Parameters(policy=policy))
    scheduler.handle(ControllerStarted(epoch=1))
    for name in ("r0", "t0"):
        scheduler.handle(AgentReported(epoch=1, node=node(name)))
    return scheduler.handle(JobSubmitted(spec=of, request="q"))


def test_the_optimum_is_asked_of_synchronous_jobs():
    with pytest.raises(UsageError, match="job a has staleness 1: the optimum is searched for synchronous jobs"):
        optimal_plan(cluster(), [spec()])
