"""A cluster's log becomes a trace that can be simulated."""

import json
from pathlib import Path

from live import Live

from weaverl.simulation.traces.read import read_trace


def test_jobs_that_ran_are_exported_with_their_measured_phases_and_can_be_simulated(live: Live, directory: Path):
    live.submit("traced-a", "--iterations", 3, "--seconds", 0.05, iterations=3, tenant="ours")
    live.submit("traced-b", "--iterations", 2, "--seconds", 0.02, iterations=2)
    live.await_finished("traced-a", "traced-b")
    exported = live.run("trace", "export", "--out", str(directory / "live.csv"))
    assert exported.returncode == 0, exported.stderr
    jobs = {job.job_id: job for job in read_trace(directory / "live.csv").jobs}
    first, second = jobs["traced-a"], jobs["traced-b"]
    assert (first.iterations, first.tenant, first.slo) == (3, "ours", 50.0)
    assert 0.05 <= first.rollout_mean_seconds <= first.rollout_max_seconds < 5
    assert 0.05 <= first.training_seconds < 5 and second.rollout_mean_seconds >= 0.02
    assert first.arrival_seconds < second.arrival_seconds and second.iterations == 2
    simulated = live.run("simulate", str(directory / "live.csv"), "--json", "-")
    assert simulated.returncode == 0, simulated.stderr
    assert json.loads(simulated.stdout)["jobs_finished"] == len(jobs)
