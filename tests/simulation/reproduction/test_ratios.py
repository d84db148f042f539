"""Dollars are set in proportion only for the same work."""

from math import isnan, nan

import msgspec
import pytest

from reports.reproduction_example import result
from weaverl.simulation.outcome import usd_ratio
from weaverl.simulation.reproduction.replay import OURS, POLICIES, cost_ratios, span
from weaverl.simulation.reproduction.sharing import equal_cost_ratios

RESULTS = {policy: result(policy, "s0", 600.0) for policy in POLICIES}


def less(one):
    """The same run, but a job has not finished."""
    return msgspec.structs.replace(
        one, outcome=msgspec.structs.replace(one.outcome, jobs_finished=one.outcome.jobs_finished - 1)
    )


def test_the_same_work_is_compared_and_any_other_is_not():
    ours, other = RESULTS[OURS].outcome, RESULTS["solo"].outcome
    assert usd_ratio(other, ours) == pytest.approx(other.usd / ours.usd)
    assert usd_ratio(less(RESULTS["solo"]).outcome, ours) is None
    assert usd_ratio(other, less(RESULTS[OURS]).outcome) is None
    assert usd_ratio(other, msgspec.structs.replace(ours, usd=0.0)) is None


def test_a_policy_that_left_a_job_has_no_ratio_in_replay_and_mixes():
    results = RESULTS | {"colocated": less(RESULTS["colocated"])}
    by_trace = {policy: [one] for policy, one in results.items()}
    assert isnan(cost_ratios(by_trace, "colocated")["s0"]) and not isnan(cost_ratios(by_trace, "solo")["s0"])
    mix = equal_cost_ratios({"mix": results})["mix"]
    assert isnan(mix["colocated"]) and not isnan(mix["gavel"])


def test_what_is_not_a_number_is_left_out_of_a_span_and_counted():
    assert span([1.0, nan, 2.0]) == "1.50x (1.00x to 2.00x), without 1 of 3"
    assert span([nan]) == "cannot be told"
