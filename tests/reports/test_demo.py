import msgspec
import pytest

from reports.example import cluster, example_report
from reports.hand import interval, timeline
from weaverl.reports.demo import DemoJob, DemoReport, headline

KEYS = {
    "throughput_ratio",
    "schedule_efficiency",
    "predicted_ratio",
    "bit_equal",
    "moved_gib",
    "sync_mib",
    "bubble_rollout_solo",
    "bubble_rollout_woven",
    "bubble_training_solo",
    "bubble_training_woven",
    "jobs",
}
JOB_KEYS = {
    "name",
    "slowdown",
    "slo",
    "interference_rollout",
    "interference_training",
    "reward_first",
    "reward_last",
}


def small_report(**changes):
    def run(job, start=0.0):
        return (interval(job, "rollout", 0, start, start + 6), interval(job, "training", 0, start + 6, start + 10))

    report = DemoReport(
        cluster=cluster(1),
        jobs=tuple(
            DemoJob(name=name, slo=1.5, solo=timeline(*run(name, 50)), rewards_solo=(0, 1), rewards_woven=(0.25, 0.5))
            for name in "ab"
        ),
        woven=timeline(*run("a"), *run("b", 6)),
        predicted_ratio=1.3,
        schedule_efficiency=0.9,
        bit_equal=True,
    )
    return msgspec.structs.replace(report, **changes)


def test_the_json_has_the_keys_of_the_interface():
    found = example_report().to_json_dict()
    assert set(found) >= KEYS
    assert set(found) - KEYS == {
        "usd_solo",
        "usd_woven",
        "seconds_solo",
        "seconds_woven",
        "handovers",
        "parameters",
        "machine",
    }
    assert all(set(job) >= JOB_KEYS for job in found["jobs"])
    assert msgspec.json.decode(msgspec.json.encode(found)) == found


def test_figures_of_a_small_demo():
    found = small_report().to_json_dict()
    assert found["throughput_ratio"] == 20 / 16
    assert (found["seconds_solo"], found["seconds_woven"]) == (20.0, 16.0)
    assert found["bubble_rollout_solo"] == pytest.approx(8 / 20)
    assert found["bubble_rollout_woven"] == pytest.approx(4 / 16)
    assert found["bubble_training_woven"] == pytest.approx(0.5)
    assert found["usd_woven"] == pytest.approx(16 / 3600 * 7.13)
    assert found["usd_solo"] == pytest.approx(20 / 3600 * 7.13)
    assert found["handovers"] == 2
    job = found["jobs"][1]
    assert (job["name"], job["slowdown"], job["reward_first"], job["reward_last"]) == ("b", 1.0, 0.25, 0.5)


def test_a_prediction_is_compared_with_what_was_measured_without_interference():
    slowed = timeline(
        interval("a", "rollout", 0, 0, 9),
        interval("a", "training", 0, 9, 15),
        interval("b", "rollout", 0, 9, 16),
        interval("b", "training", 0, 16, 20),
        interval("b", "sync", 0, 20, 20),
    )
    figures = small_report(woven=slowed).figures()
    assert (figures.throughput_ratio, figures.interference) == (20 / 20, 26 / 20)
    assert figures.undisturbed_ratio == 26 / 20
    assert small_report(woven=timeline()).figures().undisturbed_ratio is None


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "Two GRPO jobs in 16 s instead of 20 s: 1.25x, same bits"),
        ({"bit_equal": False, "algorithm": "PPO"}, "Two PPO jobs in 16 s instead of 20 s: 1.25x, NOT the same bits"),
        ({"woven": timeline()}, "Two GRPO jobs: nothing was measured"),
    ],
)
def test_the_headline(changes, expected):
    report = small_report(**changes)
    assert headline(report, report.figures()) == expected


def test_one_job_is_one_job():
    report = small_report()
    report = msgspec.structs.replace(report, jobs=report.jobs[:1], woven=report.jobs[0].solo)
    assert headline(report, report.figures()) == "One GRPO job in 10 s instead of 10 s: 1.00x, same bits"


def test_what_was_not_measured_is_none_not_missing():
    report = small_report(woven=timeline())
    found = report.to_json_dict()
    assert set(found) >= KEYS
    assert (found["throughput_ratio"], found["bubble_rollout_woven"], found["jobs"][0]["slowdown"]) == (None,) * 3
