"""What the demo found out, beside the report's own figures: prediction, efficiency, equality."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from weaverl.domain.groups import Pin
from weaverl.domain.jobs import PhaseKind, PhaseProfile
from weaverl.domain.timeline import Interval, Timeline
from weaverl.reports.demo import DemoReport
from weaverl.reports.iterations import iteration_times
from weaverl.scheduling.round_model import Durations, Member, Switches, makespan_us, simulate


class DemoOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The report, and figures that compare it with the model."""

    report: DemoReport
    model_limit: float

    def to_json_dict(self) -> dict[str, object]:
        """The keys of the measuring command, and more.

        ``predicted_error`` is the measured ratio over the predicted one divided by interference, minus 1.
        """
        figures = self.report.figures()
        measured, undisturbed = figures.throughput_ratio, figures.undisturbed_ratio
        error = None if undisturbed is None else undisturbed / self.report.predicted_ratio - 1
        limit = None if measured is None else measured / self.model_limit
        return {
            **self.report.to_json_dict(),
            "interference_mean": figures.interference,
            "predicted_error": error,
            "model_limit": self.model_limit,
            "limit_fraction": limit,
        }

    def failures(self) -> list[str]:
        """What the demo promises and this run did not keep."""
        figures = self.report.figures()
        slowdowns = {job.name: figures.job(job.name).slowdown for job in self.report.jobs}
        broken = [
            f"{job.name} was slowed to {slowdowns[job.name]:.2f}x, its SLO is {job.slo:.2f}x"
            for job in self.report.jobs
            if (slowdowns[job.name] or 0.0) > job.slo
        ]
        return broken if self.report.bit_equal else [*broken, "the runs did not give the same bits"]


def measured_durations(timeline: Timeline, *, with_switches: bool) -> list[Durations]:
    """Phase times of one job's iterations as they were measured, in microseconds."""
    switches: dict[tuple[int, PhaseKind], int] = {}
    for one in timeline.intervals:
        if with_switches:
            switches[(one.iteration, one.phase)] = one.restore_us + one.save_us
    return [
        Durations(
            round(time.rollout_seconds * 1e6) + switches.get((time.iteration, PhaseKind.ROLLOUT), 0),
            round(time.training_seconds * 1e6) + switches.get((time.iteration, PhaseKind.TRAINING), 0),
            round(time.sync_seconds * 1e6),
            round(time.other_seconds * 1e6),
        )
        for time in iteration_times(timeline.intervals)
    ]


def modelled_makespan(pins: Mapping[str, Pin], durations: Mapping[str, list[Durations]], switches: Switches) -> float:
    """Seconds that the round model gives for jobs woven with these times, in the order given."""
    members = [Member(name, pins[name], durations[name][0], switches) for name in durations]
    counts = {name: len(times) for name, times in durations.items()}
    phases = simulate(members, counts.__getitem__, lambda name, turn: durations[name][turn])
    last = max(
        phase.end_us + durations[phase.job][phase.iteration].sync_us for phase in phases if phase.pool == "training"
    )
    return max(makespan_us(phases), last) / 1e6


def profile_of(solo: Timeline) -> PhaseProfile:
    """The profile that a run alone gives.

    Every response of the example reaches the cap, so the mean rollout is the rollout at the cap; what single ones
    took longer is the machine's noise.
    """
    durations = measured_durations(solo, with_switches=False)
    rollouts = [one.rollout_us / 1e6 for one in durations]
    mean = sum(rollouts) / len(rollouts)
    deviation = (sum((value - mean) ** 2 for value in rollouts) / len(rollouts)) ** 0.5

    def average(of: Callable[[Durations], int]) -> float:
        return sum(of(one) for one in durations) / len(durations) / 1e6

    return PhaseProfile(
        rollout_max_seconds=mean,
        rollout_mean_seconds=mean,
        rollout_cv=deviation / mean,
        training_seconds=average(lambda one: one.training_us),
        sync_seconds=average(lambda one: one.sync_us),
        other_seconds=average(lambda one: one.other_us),
    )


def split(timeline: Timeline, job: str | None, attempt: int) -> Timeline:
    """The intervals of an attempt, of one job or of all."""

    def belongs(one: Interval) -> bool:
        return one.attempt == attempt and job in (None, one.job)

    return Timeline(intervals=tuple(one for one in timeline.intervals if belongs(one)))


class Result(msgspec.Struct, frozen=True):
    """What a run of the example wrote: exact values as hexadecimal floats."""

    rewards: tuple[str, ...]
    losses: tuple[str, ...]
    weights_sha256: str

    @classmethod
    def read(cls, folder: Path) -> "Result":
        """The result in a folder."""
        return msgspec.convert(json.loads((folder / "result.json").read_text()), cls)

    def reward_values(self) -> tuple[float, ...]:
        """Mean rewards by iteration."""
        return tuple(float.fromhex(text) for text in self.rewards)
