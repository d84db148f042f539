"""What-if answers are what the scheduler then does, with waits that can be worked out by hand."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weaverl.domain.cluster import Cluster
from weaverl.domain.commands import AdmitJob
from weaverl.domain.events import JobCancelled
from weaverl.domain.jobs import HostMemory, JobSpec, PhaseProfile, Role
from weaverl.errors import RefusedError
from weaverl.scheduling.scheduler import Scheduler
from weaverl.scheduling.state import Parameters
from weaverl.simulation.costs import Costs
from weaverl.simulation.standing import cluster_of, standing_scheduler, submit
from weaverl.simulation.what_if import NOT_LOOKED_AT, what_if

GIB = 2**30
CLUSTER = cluster_of(Costs())
OWN_NODES = 8 * (1.85 + 5.28)


def job(
    name: str,
    rollout: float,
    training: float,
    *,
    mean: float | None = None,
    iterations: int | None = 100,
    slo: float = 1.5,
) -> JobSpec:
    return JobSpec(
        name=name,
        roles=(Role(name="run", command=("python",)),),
        rollout_gpus=8,
        training_gpus=8,
        host_memory=HostMemory(rollout_bytes=GIB, training_bytes=GIB),
        slo=slo,
        iterations=iterations,
        profile=PhaseProfile(
            rollout_max_seconds=rollout, rollout_mean_seconds=mean or rollout, training_seconds=training
        ),
    )


def standing(*specs: JobSpec, cluster: Cluster = CLUSTER) -> Scheduler:
    scheduler = standing_scheduler(cluster, Parameters())
    for spec in specs:
        submit(scheduler, spec)
    return scheduler


def times(number: int) -> Cluster:
    """So many of each node."""
    nodes = (
        msgspec.structs.replace(node, name=f"{node.name}-{place}") for node in CLUSTER.nodes for place in range(number)
    )
    return msgspec.structs.replace(CLUSTER, nodes=tuple(nodes))


def test_a_job_that_fits_a_bubble_adds_nothing_and_everybody_is_told():
    scheduler = standing(job("a", 10, 10))
    answer = what_if(scheduler, job("b", 10, 8))
    assert (answer.kind, answer.group, answer.nodes) == ("pack", "g1", ("rollout", "training"))
    assert answer.added_usd_per_hour == 0.0 and answer.usd_per_hour_before == pytest.approx(OWN_NODES)
    assert answer.wait is None and not answer.profiled_first
    effects = {effect.job: (effect.before, effect.after) for effect in answer.effects}
    assert effects == {"a": (1.0, 1.0), "b": (None, pytest.approx(20 / 18))}


def test_the_answer_changes_nothing_and_is_what_the_scheduler_then_does():
    scheduler = standing(job("a", 10, 10))
    before = msgspec.msgpack.encode(scheduler.snapshot())
    new = job("b", 10, 8)
    answer = what_if(scheduler, new)
    assert msgspec.msgpack.encode(scheduler.snapshot()) == before
    (admitted,) = (command for command in submit(scheduler, new) if isinstance(command, AdmitJob))
    assert admitted.group.name == answer.group
    assert {effect.job: effect.after for effect in answer.effects} == admitted.predicted_slowdowns


def test_each_refusal_has_its_reason_and_who_is_there():
    answer = what_if(standing(job("a", 10, 10)), job("long", 100, 100))
    (pack, isolate) = answer.looked_at
    assert (pack.kind, pack.group, pack.members) == ("pack", "g1", ("a",))
    assert pack.refused == "would slow a to 10.00x, its SLO is 1.50x"
    assert isolate.kind == "isolate" and isolate.refused


def test_groups_that_cannot_be_cheaper_are_listed_as_not_looked_at():
    scheduler = standing(job("a", 10, 10), job("long", 100, 100), cluster=times(2))
    answer = what_if(scheduler, job("b", 10, 10))
    assert answer.group == "g1" and [looked.group for looked in answer.looked_at] == ["g1", "g2"]
    assert answer.looked_at[1].refused == NOT_LOOKED_AT and answer.looked_at[1].members == ("long",)


def test_each_of_many_groups_that_refuse_has_its_own_reason():
    scheduler = standing(*(job(f"a{place}", 10, 12, slo=1.0) for place in range(20)), cluster=times(20))
    answer = what_if(scheduler, job("long", 100, 100))
    assert answer.wait is not None and len(scheduler.state.groups) == 20
    assert {looked.group: looked.refused for looked in answer.looked_at if looked.kind == "pack"} == {
        f"g{place + 1}": f"would slow a{place} to 9.09x, its SLO is 1.00x" for place in range(20)
    }
    assert [looked.kind for looked in answer.looked_at if looked.kind != "pack"] == ["isolate"]


def test_groups_that_another_policy_only_counted_are_not_called_unseen():
    scheduler = standing_scheduler(times(20), Parameters(policy="weave"))
    for place in range(20):
        submit(scheduler, job(f"a{place}", 10, 12, slo=1.0))
    answer = what_if(scheduler, job("long", 100, 100))
    assert answer.wait is not None and any(looked.group.endswith(" more") for looked in answer.looked_at)
    assert all(looked.kind for looked in answer.looked_at)


def test_of_many_groups_those_before_the_one_taken_have_their_reasons_and_no_others():
    jobs = [job(f"a{place}", 10, 12, slo=1.0) for place in range(20)]
    jobs[17] = job("roomy", 100, 100)
    answer = what_if(standing(*jobs, cluster=times(20)), job("b", 10, 11, slo=20.0))
    assert answer.group == "g18"
    refused = {looked.group: looked.refused for looked in answer.looked_at}
    assert all(refused[f"g{place}"].startswith("would slow a") for place in range(1, 18))
    assert (refused["g18"], refused["g19"], refused["g20"]) == ("", NOT_LOOKED_AT, NOT_LOOKED_AT)


def test_a_wait_lasts_until_the_expected_end_at_mean_iterations():
    scheduler = standing(job("a", 12, 10, mean=10))
    answer = what_if(scheduler, job("long", 100, 100))
    assert answer.wait is not None
    assert answer.wait.seconds == pytest.approx(100 * 20) and answer.wait.after_jobs == ("a",)
    assert (answer.kind, answer.added_usd_per_hour) == ("isolate", pytest.approx(OWN_NODES))
    scheduler.state.jobs["a"].iterations_done = 40
    sooner = what_if(scheduler, job("long", 100, 100)).wait
    assert sooner is not None and sooner.seconds == pytest.approx(60 * 20)


def test_jobs_that_share_nodes_end_later_by_their_slowdown():
    scheduler = standing(job("a", 10, 10), job("b", 10, 8, iterations=10))
    answer = what_if(scheduler, job("long", 100, 100))
    # b ends after 10 rounds of 20 s, a after 90 more.
    assert answer.wait is not None
    assert answer.wait.after_jobs == ("b", "a") and answer.wait.seconds == pytest.approx(100 * 20)


def test_jobs_before_it_in_the_queue_go_first():
    scheduler = standing(job("a", 10, 10), job("long", 100, 100, iterations=5))
    answer = what_if(scheduler, job("longer", 400, 400))
    assert answer.wait is not None
    assert answer.wait.after_jobs == ("a", "long") and answer.wait.seconds == pytest.approx(100 * 20 + 5 * 200)


def test_a_job_of_unknown_length_makes_the_wait_unknown():
    answer = what_if(standing(job("a", 10, 10, iterations=None)), job("long", 100, 100))
    assert answer.wait is not None and answer.wait.seconds is None and answer.group == ""
    assert answer.wait.unknown.startswith("a did not say how many iterations")


def test_a_job_without_a_profile_is_measured_first():
    unknown = msgspec.structs.replace(job("new", 10, 10), profile=None)
    answer = what_if(standing(), unknown)
    assert answer.kind == "isolate" and answer.profiled_first


def test_what_can_never_run_is_refused():
    with pytest.raises(RefusedError, match="job huge asks 80 rollout GPUs"):
        what_if(standing(), msgspec.structs.replace(job("huge", 10, 10), rollout_gpus=80))
    with pytest.raises(RefusedError, match="job a is starting already"):
        what_if(standing(job("a", 10, 10)), job("a", 10, 10))


@settings(max_examples=20, deadline=None)
@given(
    jobs=st.lists(st.tuples(st.integers(5, 60), st.integers(5, 60), st.sampled_from((1.2, 1.5, 2.0))), max_size=4),
    new=st.tuples(st.integers(5, 60), st.integers(5, 60), st.sampled_from((1.2, 1.5, 2.0))),
)
def test_whatever_runs_the_answer_is_what_the_scheduler_does(
    jobs: list[tuple[int, int, float]], new: tuple[int, int, float]
):
    scheduler = standing(
        *(job(f"j{place}", rollout, training, slo=slo) for place, (rollout, training, slo) in enumerate(jobs))
    )
    spec = job("new", *new[:2], slo=new[2])
    answer = what_if(scheduler, spec)
    submit(scheduler, spec)
    record = scheduler.state.jobs["new"]
    if answer.wait is None:
        assert (answer.group, answer.kind) == (record.group, record.verdicts[-1].kind)
        assert all(effect.after <= effect.slo for effect in answer.effects)
    else:
        assert record.pin is None
        assert answer.wait.seconds is not None and answer.wait.seconds > 0 and answer.wait.after_jobs
        assert [looked.refused for looked in answer.looked_at[: len(record.verdicts)]] == [
            verdict.refused for verdict in record.verdicts
        ]


def test_a_job_that_is_stopping_is_not_waited_for():
    scheduler = standing(job("a", 10, 10))
    scheduler.handle(JobCancelled(at=0, job="a"))
    answer = what_if(scheduler, job("long", 100, 100))
    assert answer.wait is not None and answer.wait.seconds == 0.0 and answer.wait.after_jobs == ("a",)
