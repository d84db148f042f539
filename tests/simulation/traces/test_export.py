"""A live cluster's log as a trace: what was asked, when it came, and how long its phases really took."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weaverl.control.timeline import timeline_of
from weaverl.domain.cluster import PoolKind, Slot
from weaverl.domain.commands import AcceptJob, AnyCommand, GrantPermit, LearnProfile, RefuseRequest
from weaverl.domain.events import (
    AnyEvent,
    JobSubmitted,
    PermitRequested,
    PhaseEnded,
    PhaseMeasured,
    PhaseReport,
    RankId,
    TailReached,
    Token,
)
from weaverl.domain.facts import SCHEMA, Fact
from weaverl.domain.jobs import HostMemory, JobSpec, PhaseKind, PhaseProfile, Role
from weaverl.simulation.traces.export import NO_ITERATION, export_trace, fit_rollouts
from weaverl.simulation.traces.read import read_trace
from weaverl.simulation.traces.records import Trace
from weaverl.simulation.traces.schema import write_jobs

GIB = 2**30
SECOND = 1_000_000
SLOT = Slot(node="n0", device=0)


def spec(name: str, **more: object) -> JobSpec:
    return JobSpec(
        name=name,
        roles=(Role(name="run", command=("python", "run.py")),),
        rollout_gpus=1,
        training_gpus=2,
        host_memory=HostMemory(rollout_bytes=GIB, training_bytes=3 * GIB),
        slo=1.6,
        tenant="team",
        **more,
    )


class Log:
    """Facts as a controller writes them; phases follow each other from ``now`` on."""

    def __init__(self) -> None:
        self.facts: list[Fact] = []
        self.now = 50 * SECOND
        self.counter = 0

    def add(self, event: AnyEvent, *commands: AnyCommand) -> None:
        self.facts.append(Fact(schema=SCHEMA, code="0", policy="weave-paper", event=event, commands=commands))

    def submit(self, job: JobSpec, *, accepted: bool = True) -> None:
        answer = AcceptJob(job=job.name, request="q") if accepted else RefuseRequest(request="q", reason="no")
        self.add(JobSubmitted(at=self.now, spec=job, request="q"), answer)

    def run(self, job: str, phase: PhaseKind, iteration: int, seconds: float, attempt: int = 1) -> Token:
        self.counter += 1
        token = Token(epoch=1, counter=self.counter)
        pool = PoolKind.ROLLOUT if phase is PhaseKind.ROLLOUT else PoolKind.TRAINING
        about = {"job": job, "attempt": attempt, "role": "run", "phase": phase, "pool": pool, "iteration": iteration}
        grant = GrantPermit(**about, token=token, slots=(SLOT,), ranks=1, vacate=False)
        self.add(PermitRequested(at=self.now, **about), grant)
        self.now += round(seconds * SECOND)
        ended = PhaseEnded(
            at=self.now,
            rank=RankId(job=job, attempt=attempt, role="run", rank=0),
            token=token,
            phase=phase,
            iteration=iteration,
            vacated=True,
            report=PhaseReport(body_us=round(seconds * SECOND)),
        )
        self.add(ended)
        return token

    def sync(self, job: str, iteration: int, moved_bytes: int, rank: int = 0) -> None:
        one = RankId(job=job, attempt=1, role="run", rank=rank)
        report = PhaseReport(body_us=SECOND)
        self.add(
            PhaseMeasured(
                at=self.now, rank=one, phase=PhaseKind.SYNC, iteration=iteration, report=report, moved_bytes=moved_bytes
            )
        )

    def iterate(self, job: str, rollouts: list[float], training: float = 4.0) -> None:
        for iteration, seconds in enumerate(rollouts):
            self.run(job, PhaseKind.ROLLOUT, iteration, seconds)
            self.run(job, PhaseKind.TRAINING, iteration, training)

    def trace(self) -> Trace:
        return export_trace("live", self.facts, timeline_of(self.facts))


@pytest.fixture
def log() -> Log:
    return Log()


def test_a_job_has_its_arrival_its_promise_and_its_measured_phases(log: Log, tmp_path: Path):
    log.submit(spec("a"))
    log.iterate("a", [10.0, 12.0])
    log.submit(spec("b"))
    log.iterate("b", [6.0])
    log.sync("b", 0, GIB // 2)
    log.sync("b", 0, GIB, rank=1)
    first, second = log.trace().jobs
    assert (first.arrival_seconds, second.arrival_seconds) == (0.0, 30.0)
    assert (first.iterations, first.rollout_mean_seconds, first.training_seconds) == (2, 11.0, 4.0)
    assert (first.tenant, first.slo, first.rollout_gpus, first.training_gpus) == ("team", 1.6, 1, 2)
    assert (first.rollout_host_gib, first.training_host_gib) == (1.0, 3.0)
    assert first.rollout_max_seconds == 12.0 and first.rollout_p80 == 1.0
    assert (second.sync_gib, second.model_billions) == (1.0, 0.536871)
    write_jobs(log.trace().jobs, tmp_path / "t.csv")
    assert read_trace(tmp_path / "t.csv").jobs == (first, second)


def test_the_learned_profile_says_how_long_a_rollout_at_the_cap_is(log: Log):
    log.submit(spec("a"))
    log.iterate("a", [10.0, 12.0])
    learned = PhaseProfile(rollout_max_seconds=40.0, rollout_mean_seconds=11.0, training_seconds=4.0)
    log.add(JobSubmitted(at=log.now, spec=spec("b")), LearnProfile(job="a", profile=learned))
    assert log.trace().jobs[0].rollout_max_seconds == 40.0


def test_an_iteration_that_was_repeated_counts_once_with_its_last_attempt(log: Log):
    log.submit(spec("a"))
    log.iterate("a", [10.0, 30.0])
    log.run("a", PhaseKind.ROLLOUT, 1, 20.0, attempt=2)
    log.run("a", PhaseKind.TRAINING, 1, 6.0, attempt=2)
    (job,) = log.trace().jobs
    assert (job.iterations, job.rollout_mean_seconds, job.training_seconds) == (2, 15.0, 5.0)


def test_tails_that_were_reported_give_the_fraction_where_they_begin(log: Log):
    log.submit(spec("a"))
    for iteration, reached in enumerate((4.0, 6.0)):
        start = log.now
        token = log.run("a", PhaseKind.ROLLOUT, iteration, 10.0)
        rank, at = RankId(job="a", attempt=1, role="run", rank=0), start + round(reached * SECOND)
        log.add(TailReached(at=at, rank=rank, token=token, iteration=iteration, keep=(SLOT,)))
        log.run("a", PhaseKind.TRAINING, iteration, 4.0)
    assert log.trace().jobs[0].rollout_p80 == 0.5


def test_jobs_without_a_whole_iteration_are_counted_and_refused_ones_are_none(log: Log):
    log.submit(spec("refused"), accepted=False)
    log.submit(spec("waits"))
    log.submit(spec("begins"))
    log.run("begins", PhaseKind.ROLLOUT, 0, 5.0)
    assert log.trace().jobs == () and log.trace().skipped == {NO_ITERATION: 2}


def test_an_empty_log_is_an_empty_trace(log: Log):
    assert log.trace().rows == 0


class TestFit:
    def test_a_clear_trend_is_growth_and_the_spread_is_around_it(self):
        fitted = fit_rollouts([10.0, 11.0, 12.0, 13.0, 14.0, 15.0])
        assert fitted.mean_seconds == pytest.approx(10.0) and fitted.growth == pytest.approx(1.5)
        assert fitted.cv == pytest.approx(0.0, abs=1e-9)

    def test_times_without_a_trend_have_mean_and_spread_only(self):
        fitted = fit_rollouts([9.0, 11.0, 10.0, 11.0, 9.0, 10.0])
        assert (fitted.mean_seconds, fitted.growth) == (10.0, 1.0)
        assert fitted.cv == pytest.approx(0.0894, abs=1e-4)

    def test_two_rollouts_have_neither_spread_nor_growth(self):
        assert fit_rollouts([8.0, 12.0]) == fit_rollouts([10.0])

    def test_what_the_generator_of_true_rollouts_was_given_is_found_again(self):
        random = np.random.Generator(np.random.PCG64(5))
        sigma = np.sqrt(np.log1p(0.1**2))
        times = 20.0 * np.linspace(1.0, 1.4, 400) * random.lognormal(-(sigma**2) / 2, sigma, 400)
        fitted = fit_rollouts(list(times))
        assert fitted.mean_seconds == pytest.approx(20.0, rel=0.03)
        assert fitted.growth == pytest.approx(1.4, rel=0.04)
        assert fitted.cv == pytest.approx(0.1, rel=0.1)

    @given(st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=30))
    def test_any_times_give_a_row_that_can_be_simulated(self, times):
        fitted = fit_rollouts(times)
        assert fitted.mean_seconds > 0 and fitted.growth > 0 and fitted.cv >= 0
