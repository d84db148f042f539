"""The generator: documented marginals, the same bytes for a seed everywhere, and traces as large as asked for."""

import hashlib
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared_data import shared_file
from weaverl.errors import UsageError
from weaverl.simulation.costs import Costs
from weaverl.simulation.traces.generate import DECREASING, INCREASING, Drift, Order, Preset, generate
from weaverl.simulation.traces.profiles import solo_iteration_seconds
from weaverl.simulation.traces.read import read_trace
from weaverl.simulation.traces.records import Trace, TraceJob
from weaverl.simulation.traces.schema import write_jobs
from weaverl.simulation.traces.summary import Summary, summarize

COSTS = Costs()
GOLDEN = "6526c1013300cfba3525a758bc30f056d02b446646a49c11f22a679ef996f0bb"
SEEDS = range(5)


def made(preset: Preset = Preset.PRODUCTION, seed: int = 0, **changes: object) -> Trace:
    return generate(Order(preset=preset, seed=seed, **changes), COSTS)


@pytest.fixture(scope="module")
def production() -> list[Trace]:
    return [made(seed=seed) for seed in SEEDS]


@pytest.fixture(scope="module")
def summaries(production: list[Trace]) -> list[Summary]:
    return [summarize(trace, COSTS) for trace in production]


def job_hours(trace: Trace) -> np.ndarray:
    return np.array([job.iterations * solo_iteration_seconds(job, COSTS) / 3600 for job in trace.jobs])


class TestProduction:
    def test_200_jobs_arrive_over_two_weeks_and_run_27_9_hours_on_average(self, production):
        for trace in production:
            arrivals = [job.arrival_seconds for job in trace.jobs]
            assert len(arrivals) == 200 and arrivals == sorted(arrivals)
            assert arrivals[0] >= 0 and arrivals[-1] <= 336 * 3600
            assert job_hours(trace).mean() == pytest.approx(27.9, abs=0.05)

    def test_dollars_an_hour_are_the_published_ones(self, summaries):
        assert np.mean([one.solo_usd_per_hour for one in summaries]) == pytest.approx(920, rel=0.05)
        assert np.mean([one.colocated_usd_per_hour for one in summaries]) == pytest.approx(685, rel=0.05)
        assert np.mean([one.hours for one in summaries]) == pytest.approx(370, rel=0.05)

    def test_a_cluster_without_bubbles_would_cost_what_the_design_says(self, summaries):
        without = np.mean([one.solo_usd / one.bound_usd_without_tail for one in summaries])
        with_tail = np.mean([one.solo_usd / one.bound_usd_with_tail for one in summaries])
        assert without == pytest.approx(2.42, rel=0.04)
        assert with_tail == pytest.approx(2.77, rel=0.04)

    def test_sizes_caps_and_promises_lie_in_the_published_ranges(self, production):
        jobs = [job for trace in production for job in trace.jobs]
        assert {job.model_billions for job in jobs} == {3, 7, 8, 14, 32}
        assert {job.max_tokens for job in jobs} == {4096, 8192, 16384, 32768}
        assert {(job.rollout_gpus, job.training_gpus) for job in jobs} == {(8, 8), (16, 16)}
        assert 0.05 <= sum(job.rollout_gpus == 16 for job in jobs) / len(jobs) <= 0.09
        slos = np.array([job.slo for job in jobs])
        assert slos.min() >= 1 and slos.max() <= 2 and slos.mean() == pytest.approx(1.5, abs=0.03)

    @pytest.mark.parametrize(
        ("name", "figure"),
        [
            ("mean over cap", lambda job: job.rollout_mean_seconds / job.rollout_max_seconds),
            ("training over rollout", lambda job: job.training_seconds / job.rollout_mean_seconds),
            ("seconds at the cap", lambda job: job.rollout_max_seconds),
            ("cv", lambda job: job.rollout_cv),
            ("p80", lambda job: job.rollout_p80),
            ("slo", lambda job: job.slo),
            ("hours", lambda job: job.iterations * solo_iteration_seconds(job, COSTS)),
        ],
    )
    def test_each_figure_is_distributed_as_in_the_shared_traces(self, production, name, figure):
        shared = [read_trace(shared_file(f"data/traces/production-200-s{seed}.csv")) for seed in range(3)]
        ours, theirs = (
            sorted(figure(job) for trace in traces for job in trace.jobs) for traces in (production, shared)
        )
        assert kolmogorov_smirnov(ours, theirs) < 0.085, name

    def test_host_memory_and_weights_follow_from_the_model_as_in_the_shared_traces(self, production):
        shared = read_trace(shared_file("data/traces/production-200-s0.csv"))
        ours = {memory(job) for trace in production for job in trace.jobs}
        assert {memory(job) for job in shared.jobs} <= ours


def memory(job: TraceJob) -> tuple[float, ...]:
    gib = (job.sync_gib, job.rollout_host_gib, job.training_host_gib)
    return (job.model_billions, job.rollout_gpus, *(round(one, 2) for one in gib))


def kolmogorov_smirnov(first: list[float], second: list[float]) -> float:
    """Largest distance between two empirical distributions."""
    points = np.array(first + second)
    shares = [np.searchsorted(one, points, "right") / len(one) for one in (first, second)]
    return float(np.abs(shares[0] - shares[1]).max())


class TestPhillyLike:
    def test_arrivals_come_in_bursts_and_lengths_are_heavy_tailed(self):
        traces = [made(Preset.PHILLY_LIKE, seed) for seed in SEEDS]
        hours = np.concatenate([job_hours(trace) for trace in traces])
        gaps = np.concatenate([np.diff([job.arrival_seconds for job in trace.jobs]) for trace in traces])
        assert all(len(trace.jobs) == 300 for trace in traces)
        assert hours.min() > 0.3 and hours.max() < 170
        assert hours.mean() == pytest.approx(40, rel=0.1) and np.median(hours) == pytest.approx(20, rel=0.15)
        assert gaps.min() >= 0 and gaps.std() / gaps.mean() == pytest.approx(2.0, rel=0.15)


class TestDrift:
    def test_a_drifting_trace_has_the_same_jobs(self):
        plain = made().jobs
        for drift in Drift:
            jobs = made(drift=drift).jobs
            assert tuple(msgspec.structs.replace(job, rollout_growth=1.0) for job in jobs) == plain

    def test_growth_lies_in_the_range_of_its_kind_and_mixed_takes_from_both(self):
        grown, shrunk, mixed = (
            [job.rollout_growth for job in made(drift=drift).jobs]
            for drift in (Drift.INCREASING, Drift.DECREASING, Drift.MIXED)
        )
        assert min(grown) >= INCREASING[0] and max(grown) <= INCREASING[1]
        assert min(shrunk) >= DECREASING[0] and max(shrunk) <= DECREASING[1]
        assert all(one in both for one, *both in zip(mixed, grown, shrunk, strict=True))
        assert 70 < sum(one > 1 for one in mixed) < 130


class TestSameEverywhere:
    def test_a_seed_gives_the_same_bytes_in_another_process(self, tmp_path: Path):
        write_jobs(made(num_jobs=50).jobs, tmp_path / "here.csv")
        command = [sys.executable, "-m", "weaverl.cli.main", "trace", "generate", "--jobs", "50", "--out", "there.csv"]
        subprocess.run(command, cwd=tmp_path, check=True, env={**os.environ, "PYTHONHASHSEED": "7"})
        assert (tmp_path / "here.csv").read_bytes() == (tmp_path / "there.csv").read_bytes()

    def test_these_are_the_bytes_of_seed_0(self, tmp_path: Path):
        write_jobs(made().jobs, tmp_path / "t.csv")
        assert hashlib.sha256((tmp_path / "t.csv").read_bytes()).hexdigest() == GOLDEN

    @pytest.mark.parametrize("preset", Preset)
    def test_what_is_written_is_read_again(self, tmp_path: Path, preset: Preset):
        trace = made(preset, drift=Drift.MIXED)
        write_jobs(trace.jobs, tmp_path / "t.csv")
        assert read_trace(tmp_path / "t.csv").jobs == trace.jobs

    def test_seeds_differ(self):
        assert made(seed=1).jobs != made(seed=2).jobs


class TestSize:
    def test_short_jobs_arrive_faster_so_that_as_many_run_as_in_the_preset(self):
        trace = made(num_jobs=3000, iterations=20)
        assert {job.iterations for job in trace.jobs} == {20}
        running = job_hours(trace).sum() / (trace.jobs[-1].arrival_seconds / 3600)
        assert running == pytest.approx(200 * 27.9 / 336, rel=0.02)

    def test_hours_say_over_which_time_jobs_arrive(self):
        for preset in Preset:
            assert 9 < made(preset, num_jobs=400, hours=10.0).jobs[-1].arrival_seconds / 3600 <= 10

    @given(num_jobs=st.integers(1, 30), seed=st.integers(0, 2**40), preset=st.sampled_from(Preset))
    @settings(max_examples=30, deadline=None)
    def test_any_trace_is_in_order_with_jobs_of_at_least_one_iteration(self, num_jobs, seed, preset):
        jobs = made(preset, seed, num_jobs=num_jobs).jobs
        assert len(jobs) == num_jobs and all(job.iterations >= 1 for job in jobs)
        assert all(one.arrival_seconds <= other.arrival_seconds for one, other in pairwise(jobs))
        assert all(job.rollout_mean_seconds <= job.rollout_max_seconds for job in jobs)

    @pytest.mark.parametrize(
        "change", [{"num_jobs": 0}, {"iterations": 0}, {"hours": 0.0}, {"hours": float("nan")}, {"seed": -1}]
    )
    def test_what_has_no_meaning_is_refused(self, change):
        with pytest.raises(UsageError, match=next(iter(change)).replace("num_", "")):
            made(**change)
