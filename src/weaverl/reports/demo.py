"""The demo's record: the same jobs alone and woven, and the figures made from it."""

from collections.abc import Sequence

import msgspec

from weaverl.domain.cluster import Cluster, PoolKind
from weaverl.domain.timeline import Timeline
from weaverl.reports.axis import duration
from weaverl.reports.metrics import (
    USEFUL,
    JobFigures,
    PoolFigures,
    RunFigures,
    pool_figures,
    run_figures,
    throughput_ratio,
)

_WORDS = ("No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten")


class DemoJob(msgspec.Struct, frozen=True, kw_only=True):
    """One job of the demo: its run alone, and its rewards by iteration in both runs."""

    name: str
    slo: float
    solo: Timeline
    rewards_solo: tuple[float, ...] = ()
    rewards_woven: tuple[float, ...] = ()


class DemoFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured: the woven run, and the solo runs one after the other on the same devices.

    ``interference`` is that of all jobs and phases together, 1 where nothing ran alone.
    """

    throughput_ratio: float | None
    interference: float
    seconds_solo: float
    usd_solo: float
    pools_solo: tuple[PoolFigures, ...]
    woven: RunFigures

    @property
    def undisturbed_ratio(self) -> float | None:
        """The throughput ratio that phases as fast as alone would have given: what a prediction is compared with."""
        return None if self.throughput_ratio is None else self.throughput_ratio * self.interference

    def job(self, name: str) -> JobFigures:
        """Figures of one job in the woven run."""
        return next(job for job in self.woven.jobs if job.name == name)


class DemoReport(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the demo's page, tables and JSON are made from.

    ``predicted_ratio`` was logged before the woven run; ``schedule_efficiency`` and ``bit_equal`` are the caller's
    findings; ``parameters`` and ``machine`` are shown as they are.
    """

    cluster: Cluster
    jobs: tuple[DemoJob, ...]
    woven: Timeline
    predicted_ratio: float
    schedule_efficiency: float
    bit_equal: bool
    algorithm: str = "GRPO"
    parameters: dict[str, str | int | float | bool | None] = {}
    machine: dict[str, str | int | float | None] = {}

    def figures(self) -> DemoFigures:
        """Measure both runs."""
        names = [job.name for job in self.jobs]
        solo = [job.solo for job in self.jobs]
        pools = pool_figures(self.cluster, solo)
        alone = [run_figures(self.cluster, timeline) for timeline in solo]
        return DemoFigures(
            throughput_ratio=throughput_ratio(solo, self.woven),
            interference=_interference(solo, self.woven),
            seconds_solo=sum(run.seconds for run in alone),
            usd_solo=sum(pool.usd for pool in pools),
            pools_solo=pools,
            woven=run_figures(self.cluster, self.woven, names, solo={job.name: job.solo for job in self.jobs}),
        )

    def to_json_dict(self) -> dict[str, object]:
        """The keys of ``weaverl demo --json -`` (design, section 11) and more; None where nothing was measured."""
        figures = self.figures()
        return {
            "throughput_ratio": figures.throughput_ratio,
            "schedule_efficiency": self.schedule_efficiency,
            "predicted_ratio": self.predicted_ratio,
            "bit_equal": self.bit_equal,
            "moved_gib": figures.woven.moved_gib,
            "sync_mib": figures.woven.sync_mib,
            **bubbles(figures),
            "usd_solo": figures.usd_solo,
            "usd_woven": figures.woven.usd,
            "seconds_solo": figures.seconds_solo,
            "seconds_woven": figures.woven.seconds,
            "handovers": figures.woven.handovers,
            "jobs": [_job(job, figures.job(job.name)) for job in self.jobs],
            "parameters": self.parameters,
            "machine": self.machine,
        }


def _interference(solo: Sequence[Timeline], woven: Timeline) -> float:
    """Seconds in phase bodies woven over solo: the work is the same."""
    alone = sum(_body_us(timeline) for timeline in solo)
    return _body_us(woven) / alone if alone else 1.0


def _body_us(timeline: Timeline) -> int:
    return sum(one.ended_at - one.started_at for one in timeline.intervals if one.phase in USEFUL)


def bubbles(figures: DemoFigures) -> dict[str, float | None]:
    """Bubble fractions by pool and run: ``bubble_rollout_solo`` and so on."""
    return {
        f"bubble_{kind}_{name}": next(pool.bubble for pool in pools if pool.pool is kind)
        for kind in PoolKind
        for name, pools in (("solo", figures.pools_solo), ("woven", figures.woven.pools))
    }


def headline(report: DemoReport, figures: DemoFigures) -> str:
    """The result in one sentence, as ``Two GRPO jobs in 61 s instead of 108 s: 1.77x, same bits``."""
    number = len(report.jobs)
    count = _WORDS[number] if number < len(_WORDS) else str(number)
    jobs = f"{count} {report.algorithm} job{'' if number == 1 else 's'}"
    bits = "same bits" if report.bit_equal else "NOT the same bits"
    if figures.throughput_ratio is None:
        return f"{jobs}: nothing was measured"
    spans = f"{duration(figures.woven.seconds)} instead of {duration(figures.seconds_solo)}"
    return f"{jobs} in {spans}: {figures.throughput_ratio:.2f}x, {bits}"


def _job(job: DemoJob, figures: JobFigures) -> dict[str, object]:
    return {
        "name": job.name,
        "slowdown": figures.slowdown,
        "slo": job.slo,
        "worst_window": figures.worst_window,
        "interference_rollout": figures.interference_rollout,
        "interference_training": figures.interference_training,
        "reward_first": job.rewards_woven[0] if job.rewards_woven else None,
        "reward_last": job.rewards_woven[-1] if job.rewards_woven else None,
        "iterations": figures.iterations,
        "moved_gib": figures.moved_gib,
        "wait_seconds": figures.wait_seconds,
        "switch_seconds": figures.switch_seconds,
    }
