"""Where nothing is random and nobody shares, dollars are what a person works out by hand."""

import msgspec
import pytest

from shared_data import shared_file
from weaverl.simulation.costs import Costs
from weaverl.simulation.fluid import colocated_usd, solo_usd
from weaverl.simulation.simulate import Setup, simulate
from weaverl.simulation.traces.read import read_trace

BY_HAND = {"solo": solo_usd, "colocated": colocated_usd}


def production(number, shorter=1):
    """A trace of the shared data; ``shorter`` jobs that come as much closer together."""
    trace = read_trace(shared_file(f"data/traces/production-200-s{number}.csv"))
    jobs = tuple(
        msgspec.structs.replace(
            job, iterations=max(job.iterations // shorter, 1), arrival_seconds=job.arrival_seconds / shorter
        )
        for job in trace.jobs
    )
    return msgspec.structs.replace(trace, jobs=jobs)


def by_hand(policy, trace):
    """Dollars where every rollout takes its plain mean, as that of a job without variation does."""
    jobs = tuple(msgspec.structs.replace(job, rollout_cv=0.0) for job in trace.jobs)
    return BY_HAND[policy](msgspec.structs.replace(trace, jobs=jobs), Costs())


@pytest.mark.parametrize("policy", BY_HAND)
def test_short_jobs_cost_what_they_should(policy):
    trace = production(0, shorter=50)
    usd = simulate(trace, Setup(policy=policy, seed=None)).usd
    assert usd == pytest.approx(by_hand(policy, trace), rel=0.001)


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("policy", BY_HAND)
def test_the_traces_cost_what_they_should(policy, number):
    trace = production(number)
    outcome = simulate(trace, Setup(policy=policy, seed=None))
    assert outcome.jobs_finished == 200
    assert outcome.usd == pytest.approx(by_hand(policy, trace), rel=0.001)
