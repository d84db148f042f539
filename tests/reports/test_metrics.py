import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.example import cluster
from reports.hand import interval, timeline
from weaverl.domain.cluster import PoolKind, Slot
from weaverl.domain.jobs import PhaseKind
from weaverl.domain.units import GIB
from weaverl.reports.iterations import iteration_times, union_length, worst_window
from weaverl.reports.metrics import (
    MIB,
    handovers,
    interference,
    job_figures,
    makespan,
    pool_figures,
    run_figures,
    throughput_ratio,
    window,
)

ONE = cluster(1)


def two_iterations(job="a", start=0.0, rollout=4.0, wait=0.0):
    """Rollout, 0.5 other, training 2, sync 1, 0.5 other; ``wait`` before each second rollout."""
    found = []
    for iteration in range(2):
        asked = start
        begin = asked + (wait if iteration else 0)
        end = begin + rollout
        found += [
            interval(job, "rollout", iteration, begin, end, requested=asked, granted=begin, tokens=100),
            interval(job, "training", iteration, end + 0.5, end + 2.5),
            interval(job, "sync", iteration, end + 2.5, end + 3.5, moved_bytes=10 * MIB),
        ]
        start = end + 4
    return found


def test_makespan_is_from_the_first_grant_to_the_last_end():
    run = timeline(
        interval("a", "rollout", 0, 3, 5, requested=0, granted=2), interval("a", "training", 0, 6, 9, released=12)
    )
    assert window(run) == (2_000_000, 9_000_000)
    assert makespan(run) == 7.0
    assert makespan(timeline()) == 0.0


def test_busy_is_a_union_and_an_idle_device_counts_as_provisioned():
    run = timeline(interval("a", "rollout", 0, 0, 10), interval("b", "rollout", 0, 5, 15))
    rollout, training = pool_figures(cluster(2), (run,))
    assert (rollout.busy_seconds, rollout.summed_body_seconds) == (15.0, 20.0)
    assert (rollout.num_devices, rollout.provisioned_seconds, rollout.bubble) == (2, 30.0, 0.5)
    assert (training.busy_seconds, training.bubble) == (0.0, 1.0)


def test_back_to_back_phases_do_not_overlap():
    assert union_length([(0, 60), (60, 120)]) == 120
    assert union_length([(0, 10), (2, 3), (20, 30)]) == 20
    assert union_length([]) == 0


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)).map(sorted)))
def test_union_counts_each_moment_once(spans):
    assert union_length(spans) == len({at for start, end in spans for at in range(start, end)})


def test_switching_and_loading_are_not_busy():
    run = timeline(interval("a", "loading", 0, 0, 2), interval("a", "rollout", 0, 4, 8, granted=2, released=10))
    assert pool_figures(ONE, (run,))[0].busy_seconds == 4.0
    assert pool_figures(ONE, (run,))[0].bubble == pytest.approx(1 / 3)


def test_dollars_are_devices_times_hours_times_price():
    run = timeline(interval("a", "rollout", 0, 0, 3600))
    assert [pool.usd for pool in pool_figures(cluster(8), (run,))] == [8 * 1.85, 8 * 5.28]
    assert run_figures(cluster(8), run).usd == pytest.approx(8 * 7.13)


def test_runs_one_after_the_other_add_up():
    first, second = timeline(interval("a", "rollout", 0, 0, 4)), timeline(interval("b", "training", 0, 100, 106))
    rollout, training = pool_figures(ONE, (first, second))
    assert (rollout.provisioned_seconds, rollout.bubble) == (10.0, pytest.approx(0.6))
    assert training.bubble == pytest.approx(0.4)
    assert throughput_ratio([first, second], timeline(interval("a", "rollout", 0, 0, 5))) == 2.0
    assert throughput_ratio([first], timeline()) is None


def test_a_device_that_the_cluster_does_not_know_counts_once_used():
    rollout, _ = pool_figures(ONE, (timeline(interval("a", "rollout", 0, 0, 4, slots=(Slot("gone", 3),))),))
    assert (rollout.num_devices, rollout.bubble) == (2, 0.5)


def test_an_iteration_lasts_to_the_next_rollouts_request_and_the_last_to_its_end():
    times = iteration_times(two_iterations())
    assert [time.wall_seconds for time in times] == [8.0, 7.5]
    assert [time.other_seconds for time in times] == [1.0, 0.5]
    assert (times[0].rollout_seconds, times[0].training_seconds, times[0].sync_seconds) == (4.0, 2.0, 1.0)


def test_slowdown_counts_waits_and_switches_but_not_interference():
    solo = timeline(*two_iterations())
    woven = two_iterations(rollout=5.0, wait=3.1)
    figures = job_figures("a", woven, solo)
    assert (figures.interference_rollout, figures.interference_training) == (1.25, 1.0)
    assert figures.solo_seconds == pytest.approx(15.5)
    assert figures.wall_seconds == pytest.approx(15.5 + 2 + 3.1)
    assert figures.slowdown == pytest.approx(20.6 / 15.5)
    assert figures.wait_seconds == pytest.approx(3.1)
    assert figures.sync_mib == 20.0


def test_without_a_solo_run_phases_count_as_they_are():
    figures = job_figures("a", two_iterations(rollout=5.0))
    assert (figures.slowdown, figures.interference_rollout) == (1.0, None)


def test_queueing_and_the_first_start_do_not_slow_a_job():
    loading = interval("a", "loading", 0, 0, 50)
    late = [loading, *two_iterations(start=60)]
    assert job_figures("a", late).slowdown == 1.0


def test_a_repeated_iteration_and_the_cold_start_before_it_count():
    second = [
        interval("a", "loading", 1, 100, 103, attempt=2),
        interval("a", "rollout", 1, 103, 107, attempt=2),
        interval("a", "training", 1, 107, 109, attempt=2),
    ]
    times = iteration_times([*two_iterations(), *second])
    assert [time.wall_seconds for time in times] == [8.0, 7.5 + 9.0]
    assert times[1].other_seconds == 0.0
    assert job_figures("a", [*two_iterations(), *second]).slowdown == pytest.approx(24.5 / 14)


def test_the_worst_window_has_twenty_iterations():
    phases = []
    for iteration in range(40):
        start = iteration * 2 + (5 if iteration >= 30 else 0)
        phases.append(interval("a", "rollout", iteration, start, start + 2))
    times = iteration_times(phases)
    # Iteration 29 waits 5 s for its successor, as other; make it a wait instead.
    assert worst_window(times, 1, 1) == 1.0
    phases[29] = interval("a", "rollout", 29, 63, 65, requested=58)
    assert worst_window(iteration_times(phases), 1, 1) == pytest.approx(45 / 40)
    assert worst_window(iteration_times(phases[28:]), 1, 1) == pytest.approx(29 / 24)
    assert worst_window((), 1, 1) is None


@pytest.mark.parametrize(
    ("woven", "solo", "expected"),
    [
        (dict(tokens=100), dict(tokens=200), 4.0),
        (dict(tokens=100, samples=1), dict(samples=1), 2.0),
        (dict(tokens=100), dict(), 2.0),
    ],
)
def test_interference_is_per_token_or_sample_where_both_report_it(woven, solo, expected):
    shared, alone = interval("a", "rollout", 0, 0, 4, **woven), interval("a", "rollout", 0, 0, 2, **solo)
    assert interference([shared], [alone], PhaseKind.ROLLOUT) == expected
    assert interference([shared], [alone], PhaseKind.TRAINING) is None


def test_handovers_count_changes_of_holder_on_each_slot():
    both = (Slot("r0", 0), Slot("r0", 1))
    run = [
        interval("a", "rollout", 0, 0, 1, slots=both),
        interval("a", "rollout", 1, 1, 2, slots=both),
        interval("b", "rollout", 0, 2, 3, slots=both[:1]),
        interval("a", "rollout", 2, 3, 4, slots=both),
    ]
    assert handovers(reversed(run)) == 2


def test_moved_state_and_synced_weights_are_told_apart():
    run = timeline(
        interval("a", "rollout", 0, 0, 1, restored_bytes=GIB, saved_bytes=2 * GIB, moved_bytes=7),
        interval("a", "sync", 0, 1, 2, moved_bytes=3 * MIB),
    )
    figures = run_figures(ONE, run)
    assert (figures.moved_gib, figures.sync_mib) == (2.0, 3.0)


def test_jobs_come_in_the_order_asked_and_missing_ones_are_empty():
    figures = run_figures(ONE, timeline(*two_iterations("a")), ["z", "a"])
    assert [job.name for job in figures.jobs] == ["z", "a"]
    assert (figures.jobs[0].slowdown, figures.jobs[0].iterations, figures.jobs[0].worst_window) == (None, 0, None)


def test_an_empty_run_has_no_bubbles_and_costs_nothing():
    figures = run_figures(ONE, timeline())
    assert (figures.seconds, figures.usd, figures.jobs) == (0.0, 0.0, ())
    assert [(pool.pool, pool.bubble) for pool in figures.pools] == [(PoolKind.ROLLOUT, None), (PoolKind.TRAINING, None)]


@given(
    st.lists(st.tuples(st.sampled_from(["rollout", "training"]), st.integers(0, 30), st.integers(0, 30)), min_size=1)
)
def test_bubbles_stay_between_nothing_and_all(phases):
    run = timeline(*(interval("a", phase, i, s, s + length) for i, (phase, s, length) in enumerate(phases)))
    for pool in pool_figures(cluster(2), (run,)):
        assert pool.bubble is None or 0 <= pool.bubble <= 1
