"""Whatever the trace, the policy and the faults: every job ends or is refused, and the auditor finds nothing."""

from hypothesis import given, settings
from hypothesis import strategies as st

from simulation.small import row, trace
from weaverl.domain.jobs import PhaseKind
from weaverl.reports.recorded import audit_recorded
from weaverl.simulation.costs import Costs, LinkSharing
from weaverl.simulation.simulate import Setup, simulate_heard
from weaverl.simulation.timeline import Recorder

SECONDS = st.integers(1, 400).map(float)


@st.composite
def rows(draw):
    found = []
    for number in range(draw(st.integers(1, 6))):
        rollout = draw(SECONDS)
        found.append(
            row(
                f"j{number}",
                at=draw(st.sampled_from([0.0, 0.0, 50.0, 700.0])),
                iterations=draw(st.integers(1, 6)),
                rollout=rollout,
                training=draw(SECONDS),
                slo=draw(st.sampled_from([1.0, 1.3, 2.0, 5.0])),
                rollout_gpus=draw(st.sampled_from([1, 4, 8, 12, 16])),
                training_gpus=draw(st.sampled_from([1, 4, 8, 16])),
                rollout_max_seconds=rollout * draw(st.sampled_from([1.0, 1.5])),
                rollout_cv=draw(st.sampled_from([0.0, 0.4])),
                rollout_p80=draw(st.sampled_from([0.1, 0.5, 0.9, 1.0])),
                rollout_growth=draw(st.sampled_from([0.5, 1.0, 2.0])),
                sync_gib=draw(st.sampled_from([0.0, 20.0])),
                rollout_host_gib=draw(st.sampled_from([10.0, 500.0, 1000.0])),
                staleness=draw(st.sampled_from([0, 0, 1])),
            )
        )
    return trace(*sorted(found, key=lambda one: one.arrival_seconds))


@settings(max_examples=40, deadline=None)
@given(
    rows(),
    st.sampled_from(["weave-paper", "weave-paper", "weave", "gavel", "colocated", "solo"]),
    st.builds(
        Costs,
        tail_migration=st.booleans(),
        link_sharing=st.sampled_from(LinkSharing),
        max_nodes_per_pool=st.sampled_from([None, 2, 3]),
        job_mtbf_hours=st.sampled_from([None, None, 2.0]),
        node_mtbf_hours=st.sampled_from([None, None, 10.0]),
        interference_rollout=st.sampled_from([1.0, 1.2]),
        interference_training=st.sampled_from([1.0, 1.5]),
    ),
    st.integers(0, 5),
)
def test_every_job_ends_and_the_auditor_finds_nothing(jobs, policy, costs, seed):
    recorder = Recorder()
    finished = simulate_heard(jobs, Setup(policy=policy, seed=seed, costs=costs), (), recorder=recorder)
    outcome = finished.outcome
    assert outcome.unfinished == {}
    assert outcome.jobs_finished + sum(outcome.refused.values()) == len(jobs.jobs)
    assert audit_recorded(jobs, finished.cluster, recorder, outcome).findings == ()
    assert (
        outcome.slowdown is None
        or policy != "solo"
        or costs.link_sharing is LinkSharing.SHARED
        or (outcome.retries > 0 or outcome.slowdown.max == 1.0)
    )


def test_a_sync_that_a_crash_cuts_off_is_work_that_was_done():
    jobs = trace(row("a", iterations=10, rollout=244.0, training=399.0, sync_gib=200.0))
    cut_off = 0
    for seed in range(5):
        recorder = Recorder()
        costs = Costs(job_mtbf_hours=0.4)
        finished = simulate_heard(jobs, Setup(seed=seed, costs=costs), (), recorder=recorder)
        assert audit_recorded(jobs, finished.cluster, recorder, finished.outcome).findings == ()
        syncs = [one for one in recorder.intervals() if one.phase is PhaseKind.SYNC]
        cut_off += any(one.released_at - one.started_at < one.solo_us for one in syncs)
    assert cut_off
