"""Jobs a step ahead (staleness 1) in the simulated world: what they take alone and beside others, and who refuses."""

from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from auditor import audit
from simulation.small import FREE, row, trace
from simulation.test_forecast import COSTS, IDLE_ONLY, ROLLOUT, SWITCHES, TRAINING, Ends, spreads
from slack_policies import all_in_one, packed, placing
from weaverl.domain.groups import Pin
from weaverl.reports.metrics import run_figures
from weaverl.reports.recorded import audit_recorded, write_recorded
from weaverl.reports.timeline_file import jobs_ahead, read_timeline
from weaverl.scheduling.forecast import forecast
from weaverl.scheduling.round_model import DeviceRoom, Durations, Member, cycle_us
from weaverl.simulation.costs import Costs
from weaverl.simulation.simulate import Setup, simulate, simulate_heard
from weaverl.simulation.timeline import Recorder
from weaverl.simulation.traces.records import TraceJob

GIB_A_SECOND = 1 / (8 * 1.073741824 / 20 * 1.15)
Times = dict[str, tuple[float, float, float, int]]
"""Rollout, training and sync seconds of each job, and its staleness."""

BESIDE_ITSELF: Times = {"a": (100, 60, 5, 1), "b": (40, 30, 5, 0)}
TWO_AHEAD: Times = {"a": (60, 40, 5, 1), "b": (90, 50, 5, 1)}
THREE: Times = {"a": (100, 30, 60, 1), "b": (80, 40, 40, 0), "c": (70, 60, 70, 1)}
SHORT_AND_LONG: Times = {"a": (60, 20, 5, 1), "b": (150, 120, 10, 0)}


def members(times: Times, hides: DeviceRoom | None = None) -> list[Member]:
    """All on one node of each pool; with ``hides`` their switches are hidden where they can be."""
    found = []
    for name, (*seconds, staleness) in times.items():
        durations = Durations(*(round(one * 1e6) for one in seconds), 0, staleness)
        found.append(Member(name, Pin(ROLLOUT, TRAINING), durations, SWITCHES, hides=hides))
    return found


def jobs_of(times: Times, slowdowns: dict[str, float], slo: float, seconds: float) -> list[TraceJob]:
    """Jobs that end at about the same time."""
    solo = {member.job: member.solo_us / 1e6 for member in members(times)}
    return [
        row(
            name,
            rollout=rollout,
            training=training,
            slo=slo,
            sync_gib=sync * GIB_A_SECOND,
            staleness=staleness,
            iterations=round(seconds / (slowdowns[name] * solo[name])),
        )
        for name, (rollout, training, sync, staleness) in times.items()
    ]


def simulated(
    jobs: list[TraceJob], costs: Costs, choose=packed, seed: int | None = None, *, hides: bool = False
) -> dict[str, float]:
    """Slowdowns of jobs that share one node of each pool; the run is audited."""
    ends, recorder = Ends(), Recorder()
    setup = Setup(policy="weave", seed=seed, costs=costs, max_moves_per_job=0, hidden_switches=hides)
    with placing(choose):
        found = simulate_heard(trace(*jobs), setup, [ends], recorder=recorder)
    assert audit_recorded(trace(*jobs), found.cluster, recorder, found.outcome).findings == ()
    return dict(zip(ends.names, found.jobs.slowdown, strict=True))


def test_alone_it_takes_its_longer_side_and_its_first_rollout_and_is_not_slowed():
    outcome = simulate(trace(row(iterations=5, rollout=100.0, training=50.0, staleness=1)), Setup(costs=FREE))
    assert outcome.hours == pytest.approx((100 * 5 + 50) / 3600)
    assert outcome.slowdown.max == outcome.worst_window.max == 1.0
    outcome = simulate(trace(row(iterations=5, rollout=50.0, training=100.0, staleness=1)), Setup(costs=FREE))
    assert outcome.hours == pytest.approx((50 + 100 * 5) / 3600)
    assert outcome.slowdown.max == 1.0


@settings(max_examples=15, deadline=None)
@given(st.sampled_from(["solo", "weave", "weave-paper"]), st.integers(0, 5), st.booleans())
def test_alone_it_is_not_slowed_whatever_its_rollouts_take(policy: str, seed: int, long: bool):
    of = row(iterations=30, rollout=100.0, training=150.0 if long else 80.0, sync_gib=20.0, staleness=1)
    of = msgspec.structs.replace(of, rollout_cv=0.4, rollout_max_seconds=300.0)
    recorder = Recorder()
    finished = simulate_heard(trace(of), Setup(policy=policy, seed=seed), (), recorder=recorder)
    assert audit_recorded(trace(of), finished.cluster, recorder, finished.outcome).findings == ()
    assert finished.outcome.slowdown.max == 1.0


@pytest.mark.parametrize("times", [BESIDE_ITSELF, TWO_AHEAD, THREE, SHORT_AND_LONG])
@pytest.mark.parametrize("slo", [1.6, 6.0])
def test_the_forecast_is_what_the_simulated_group_comes_to(times: Times, slo: float):
    found = forecast(members(times), dict.fromkeys(times, slo), iterations=60)
    played = simulated(jobs_of(times, found, slo, 40_000), COSTS)
    if max(found.values()) <= slo:
        assert found == pytest.approx(played, rel=0.03)
    else:
        assert max(played.values()) > slo, "if not all promises can be kept, it is their order that differs"


@pytest.mark.parametrize("times", [BESIDE_ITSELF, TWO_AHEAD, THREE, SHORT_AND_LONG])
@pytest.mark.parametrize("tail_migration", [False, True])
@pytest.mark.parametrize("hides", [None, IDLE_ONLY], ids=["switches paid", "switches hidden"])
def test_with_drawn_rollouts_the_forecast_comes_near(times: Times, tail_migration: bool, hides: DeviceRoom | None):
    found, played = drawn(times, tail_migration=tail_migration, hides=hides)
    assert found == pytest.approx(played, rel=0.07 if hides is None else 0.1)


def drawn(
    times: Times, *, tail_migration: bool, hides: DeviceRoom | None = None
) -> tuple[dict[str, float], dict[str, float]]:
    """What is predicted of jobs whose rollouts are drawn, and what they come to."""
    tails = dict.fromkeys(times, 0.5) if tail_migration else {}
    rollouts = spreads({name: one[:3] for name, one in times.items()}, 0.3)
    found = forecast(members(times, hides), dict.fromkeys(times, 6.0), rollouts=rollouts, tails=tails, iterations=60)
    jobs = [
        msgspec.structs.replace(one, rollout_cv=0.3, rollout_max_seconds=one.rollout_mean_seconds * 1.6)
        for one in jobs_of(times, found, 6.0, 60_000)
    ]
    costs = msgspec.structs.replace(COSTS, tail_migration=tail_migration)
    return found, simulated(jobs, costs, seed=1, hides=hides is not None)


@pytest.mark.parametrize("times", [BESIDE_ITSELF, TWO_AHEAD, THREE, SHORT_AND_LONG])
def test_the_exact_round_is_what_the_simulated_rounds_come_to(times: Times):
    cycle = float(cycle_us(members(times)))
    found = {member.job: cycle / member.solo_us for member in members(times)}
    played = simulated(jobs_of(times, found, 9.0, 40_000), COSTS, all_in_one)
    assert found == pytest.approx(played, rel=0.02)


seconds = st.integers(5, 120).map(float)
mixed = st.lists(
    st.tuples(seconds, seconds, st.sampled_from([0.0, 10.0, 25.0]), st.sampled_from([0, 1])), min_size=2, max_size=4
).map(lambda rows: {f"j{place}": one for place, one in enumerate(rows)})


@settings(max_examples=10, deadline=None, phases=[Phase.generate])
@given(mixed, st.booleans())
def test_the_forecast_of_any_group_comes_near_what_it_comes_to(times: Times, tail_migration: bool):
    found, played = drawn(times, tail_migration=tail_migration)
    assert found == pytest.approx(played, rel=0.15)


@settings(max_examples=20, deadline=None, phases=[Phase.generate])
@given(mixed)
def test_the_exact_round_of_any_group_is_what_the_simulated_rounds_come_to(times: Times):
    cycle = float(cycle_us(members(times)))
    found = {member.job: cycle / member.solo_us for member in members(times)}
    played = simulated(jobs_of(times, found, 30.0, 30_000), COSTS, all_in_one)
    assert found == pytest.approx(played, rel=0.05)


@pytest.mark.parametrize("policy", ["gavel", "colocated"])
def test_policies_with_one_phase_at_a_time_refuse_it_by_name(policy: str):
    outcome = simulate(trace(row("a", staleness=1), row("b")), Setup(policy=policy, costs=FREE))
    ((reason, number),) = outcome.refused.items()
    assert number == 1 and "job a has staleness 1" in reason and policy in reason
    assert outcome.jobs_finished == 1


@settings(max_examples=15, deadline=None)
@given(mixed)
def test_reports_and_auditor_work_out_the_same_slowdowns_from_the_timeline_alone(times: Times):
    jobs = jobs_of(times, dict.fromkeys(times, 1.0), 30.0, 500)
    recorder, ends = Recorder(), Ends()
    setup = Setup(policy="weave", seed=None, costs=FREE, max_moves_per_job=0)
    with placing(packed), TemporaryDirectory() as folder:
        found = simulate_heard(trace(*jobs), setup, [ends], recorder=recorder)
        path = Path(folder) / "timeline.jsonl"
        write_recorded(path, found.cluster, recorder)
        audited, read = audit(path), read_timeline(path)
    assert audited.findings == ()
    figures = run_figures(found.cluster, read.timeline, ahead=jobs_ahead(read.header.jobs))
    reported = {one.name: one.slowdown for one in figures.jobs}
    assert audited.figures.slowdowns == pytest.approx(reported)
    assert reported == pytest.approx(dict(zip(ends.names, found.jobs.slowdown, strict=True)), rel=1e-6)


def test_it_is_moved_at_the_end_of_an_iteration_with_nothing_under_way_and_loses_none():
    jobs = [
        row(
            f"j{number}",
            at=97.0 * number,
            iterations=40 + 60 * (number % 4),
            rollout=40.0 + 35 * (number % 5),
            training=120.0 - 20 * (number % 6),
            slo=1.5,
            sync_gib=20.0,
            staleness=1,
        )
        for number in range(8)
    ]
    recorder = Recorder()
    finished = simulate_heard(trace(*jobs), Setup(policy="weave"), (), recorder=recorder)
    assert audit_recorded(trace(*jobs), finished.cluster, recorder, finished.outcome).findings == ()
    assert finished.outcome.moves > 0 and finished.outcome.jobs_finished == 8
    assert finished.outcome.slo_attainment == 1.0


def test_the_auditor_finds_a_rollout_whose_samples_are_two_versions_old():
    jobs, recorder = trace(row(iterations=6, staleness=1)), Recorder()
    finished = simulate_heard(jobs, Setup(costs=FREE), (), recorder=recorder)
    width = 13
    for start in range(0, len(recorder.rows), width):
        phase, iteration = recorder.rows[start + 2], recorder.rows[start + 3]
        if (phase, iteration) == (1, 3):  # a rollout, 100 s long
            for column in range(6, 11):
                recorder.rows[start + column] -= 60_000_000
    findings = audit_recorded(jobs, finished.cluster, recorder, finished.outcome).findings
    assert any(one.check == "order" and "rollout 3 began" in one.message for one in findings)
