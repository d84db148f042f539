"""The policies that WEAVE is compared with, seen through the one door."""

import msgspec
import pytest
from builders import World, cluster, job, node

from weaverl.domain.cluster import SwitchCost
from weaverl.domain.jobs import JobState, PhaseProfile
from weaverl.errors import UsageError
from weaverl.scheduling.policies.gavel import QUANTUM_US
from weaverl.scheduling.state import POLICIES, Parameters

TWO_OF_EACH = [node(name) for name in ("r0", "r1", "t0", "t1")]


def world(policy: str, *nodes: object, switch: SwitchCost | None = None) -> World:
    return World(cluster(*(nodes or TWO_OF_EACH), switch=switch), parameters=Parameters(policy=policy))


def test_a_policy_that_is_not_known_is_refused_with_those_that_are():
    with pytest.raises(UsageError, match="policy 'weve' is not known: choose one of weave-paper, weave, solo"):
        Parameters(policy="weve")
    with pytest.raises(UsageError, match="'weve'"):
        msgspec.json.decode(b'{"policy": "weve"}', type=Parameters)


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_that_is_known_places_a_job_and_gives_its_nodes_back(policy: str):
    of = world(policy)
    of.submit(job("a"))
    of.run()
    assert of.state("a") is JobState.FINISHED
    assert not of.scheduler.state.groups


def test_solo_gives_every_job_nodes_of_its_own_and_lets_it_wait_otherwise():
    of = world("solo")
    for name in ("a", "b", "c"):
        of.submit(job(name))
    assert [of.admitted(name).group.nodes for name in ("a", "b")] == [("r0", "t0"), ("r1", "t1")]
    assert of.state("c") is JobState.QUEUED


def test_colocated_runs_both_phases_on_training_nodes_whatever_the_promise():
    of = world("colocated", switch=SwitchCost(rollout_seconds=1.0, training_seconds=3.0))
    of.submit(job("a", 10, 9, slo=1.0))
    admitted = of.admitted("a")
    assert admitted.pin.rollout == admitted.pin.training
    assert (admitted.group.rollout_nodes, admitted.group.training_nodes) == ((), ("t0",))
    assert admitted.verdicts[-1].added_usd_per_hour == pytest.approx(8 * 5.28)
    assert admitted.predicted_slowdowns == {"a": (11 + 1 + 9 + 3) / 19}


def test_a_colocated_jobs_weights_do_not_cross_the_slow_link():
    of = world("colocated")
    profile = PhaseProfile(
        rollout_max_seconds=10, rollout_mean_seconds=10, training_seconds=10, sync_seconds=4, other_seconds=1
    )
    of.submit(msgspec.structs.replace(job("a"), profile=profile))
    assert of.admitted("a").predicted_slowdowns == {"a": (11 + 10 + 1) / 25}


def test_a_colocated_job_keeps_both_states_in_its_nodes_memory():
    of = world("colocated", node("r0"), node("t0", host_gib=150))
    (refusal,) = of.submit(job("a", host_gib=(100, 100)))
    assert "asks 200.0 GiB of host memory on each training node, the largest has 150.0 GiB" in refusal.reason


def test_gavel_chooses_the_gpus_with_the_most_solo_work_per_dollar_that_keep_the_promise():
    of = world("gavel")
    of.submit(job("rollout-heavy", 100, 1, slo=1.5))
    of.submit(job("training-heavy", 10, 100, slo=1.5))
    of.submit(job("tight", 10, 10, slo=1.0))
    kinds = [of.admitted(n).verdicts[-1].kind for n in ("rollout-heavy", "training-heavy", "tight")]
    assert kinds == ["colocate on rollout GPUs", "colocate on training GPUs", "isolate"]
    assert of.admitted("rollout-heavy").predicted_slowdowns == {"rollout-heavy": (100 + 6.7) / 101}


def test_gavel_lets_whole_jobs_take_turns_where_no_node_is_free():
    of = world("gavel", node("r0"), node("t0"), switch=SwitchCost(rollout_seconds=2.0, training_seconds=5.0))
    of.submit(job("a", 10, 10, slo=2.5))
    of.submit(job("b", 10, 10, slo=2.5))
    of.submit(job("c", 10, 10, slo=2.5))
    admitted = of.admitted("b")
    assert (admitted.group.quantum_us, admitted.group.members) == (QUANTUM_US, ("a", "b"))
    assert admitted.predicted_slowdowns == {"a": 2 * 367 / 360, "b": 2 * 367 / 360}
    assert of.state("c") is JobState.QUEUED
