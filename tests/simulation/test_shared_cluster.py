"""A shared cluster, simulated and audited: shares follow weights, high classes wait less, deadlines are met."""

import msgspec
import pytest

from simulation.small import row, trace
from weaverl.domain.sharing import Deadlines, Preemption, Sharing
from weaverl.reports.recorded import audit_recorded
from weaverl.simulation.costs import Costs
from weaverl.simulation.outcome import Outcome
from weaverl.simulation.simulate import Setup, simulate_heard
from weaverl.simulation.timeline import Recorder
from weaverl.simulation.traces.records import Trace, TraceJob

LARGE = {"rollout_host_gib": 800.0, "training_host_gib": 800.0}


def jobs(number: int, **more: object) -> list[TraceJob]:
    """Jobs that share no node, of two tenants in turn, more than there is room for."""
    return [
        row(f"{'ab'[one % 2]}{one:03}", at=float(one), iterations=6, tenant="ab"[one % 2], **(LARGE | more))
        for one in range(number)
    ]


def audited(of: Trace, sharing: Sharing | None, nodes: int = 4, policy: str = "weave-paper") -> Outcome:
    recorder = Recorder()
    setup = Setup(policy=policy, costs=Costs(max_nodes_per_pool=nodes), sharing=sharing)
    finished = simulate_heard(of, setup, (), recorder=recorder)
    assert audit_recorded(of, finished.cluster, recorder, finished.outcome).findings == ()
    assert finished.outcome.jobs_finished == len(of.jobs)
    return finished.outcome


@pytest.mark.parametrize(("weight", "half_life"), [(1.0, 14400.0), (3.0, 14400.0), (3.0, 86400.0)])
def test_usage_per_weight_is_near_one_while_all_have_work_queued(weight, half_life):
    outcome = audited(trace(*jobs(80)), Sharing(tenants={"a": weight}, half_life_seconds=half_life))
    assert outcome.sharing is not None and outcome.sharing.contended_hours > 1
    for tenant in outcome.sharing.tenants.values():
        assert tenant.per_weight == pytest.approx(1.0, abs=0.12)


def test_the_order_without_sharing_knows_no_weights():
    outcome = audited(trace(*jobs(40)), None)
    assert outcome.sharing is None
    assert outcome.tenants["a"].usd == pytest.approx(outcome.tenants["b"].usd, rel=0.01)


def mixed() -> Trace:
    low = [msgspec.structs.replace(job, iterations=30) for job in jobs(12)]
    high = [row(f"high-{one}", at=2000.0 + 3000 * one, priority=1, tenant="a", **LARGE) for one in range(6)]
    return trace(*sorted((*low, *high), key=lambda job: job.arrival_seconds))


def test_a_high_class_waits_less_with_pauses_and_nothing_is_run_twice():
    bounds = Preemption(least_stay_seconds=600.0, most_per_job=1)
    waits = {}
    for name, preemption in (("without", None), ("with", bounds)):
        outcome = audited(mixed(), Sharing(preemption=preemption), nodes=2)
        waits[name] = outcome.classes["1"].queued_hours.max
        assert outcome.slo_attainment == 1.0
    assert outcome.preemptions > 0 and outcome.most_preemptions == 1
    assert waits["with"] < waits["without"] / 2
    assert waits["with"] < 0.2, "an iteration or two"


def test_pauses_under_weave_are_audited_too():
    outcome = audited(mixed(), Sharing(preemption=Preemption(least_stay_seconds=600.0)), nodes=2, policy="weave")
    assert outcome.preemptions > 0


def test_more_deadlines_are_met_if_they_are_scheduled_by():
    plain = jobs(20)
    due = [row(f"due-{one}", at=100.0, tenant="a", iterations=6, deadline_seconds=7200.0, **LARGE) for one in range(4)]
    of = trace(*sorted((*plain, *due), key=lambda job: job.arrival_seconds))
    met = {}
    for deadlines in (None, Deadlines(first_start_seconds=140.0)):
        outcome = audited(of, Sharing(deadlines=deadlines), nodes=2)
        assert outcome.deadlines is not None and outcome.deadlines.jobs == 4
        met[deadlines is not None] = outcome.deadlines.met
    assert met == {False: 0, True: 4} or met[True] > met[False]


def test_a_deadline_that_cannot_be_met_alone_is_refused():
    of = trace(row("a", deadline_seconds=100.0), row("b"))
    outcome = simulate_heard(of, Setup(sharing=Sharing(deadlines=Deadlines())), ()).outcome
    assert outcome.jobs_finished == 1
    assert next(iter(outcome.refused)).startswith("job a cannot end by its deadline")


def test_sharing_that_nothing_calls_for_changes_no_decision():
    """One tenant, one class and no deadline: the order is that of arrival, as it is without."""
    of = trace(*(msgspec.structs.replace(job, tenant="a") for job in jobs(20)))
    figures = []
    for sharing in (None, Sharing(preemption=Preemption(), deadlines=Deadlines())):
        outcome = msgspec.to_builtins(audited(of, sharing, nodes=2))
        for key in ("parameters", "sharing", "decision_ms"):
            del outcome[key]
        figures.append(outcome)
    assert figures[0] == figures[1]
