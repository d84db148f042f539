"""The cells of the jobs and pools tables, the same on the page and in the terminal."""

import math
from collections.abc import Mapping, Sequence

from weaverl.reports.axis import duration
from weaverl.reports.metrics import JobFigures, PoolFigures

Row = tuple[str, ...]
NOTHING = "–"

JOB_COLUMNS: Row = (
    "job",
    "slowdown",
    "SLO",
    "worst 20",
    "rollout interference",
    "training interference",
    "reward, first → last",
    "iterations",
    "attempts",
    "moves",
    "waited",
    "switching",
    "state moved",
)
POOL_COLUMNS: Row = ("pool", "devices", "run", "busy", "provisioned", "bubble", "dollars")


def job_row(job: JobFigures, slo: float | None, rewards: Sequence[float] = ()) -> Row:
    """One job; ``rewards`` by iteration."""
    return (
        job.name,
        times(job.slowdown),
        times(slo),
        times(job.worst_window),
        times(job.interference_rollout),
        times(job.interference_training),
        f"{rewards[0]:.3g} → {rewards[-1]:.3g}" if rewards else NOTHING,
        str(job.iterations),
        *((str(job.attempts), str(job.moves)) if job.attempts > 1 else (NOTHING, NOTHING)),
        duration(job.wait_seconds),
        duration(job.switch_seconds),
        gib(job.moved_gib),
    )


def pool_rows(runs: Mapping[str, Sequence[PoolFigures]]) -> tuple[Row, ...]:
    """Both pools in each run, a pool's runs next to each other. Keys name the runs."""
    rows = [
        (
            str(pool.pool),
            f"{pool.num_devices} {pool.gpu}",
            run,
            f"{pool.busy_seconds:,.1f} s",
            f"{pool.provisioned_seconds:,.1f} s",
            percent(pool.bubble),
            usd(pool.usd) if pool.usd else NOTHING,
        )
        for run, pools in runs.items()
        for pool in pools
    ]
    return tuple(sorted(rows, key=lambda row: row[0]))


def used_columns(columns: Row, rows: Sequence[Row]) -> list[int]:
    """Places of the columns that have something in some row."""
    return [place for place in range(len(columns)) if any(row[place] not in ("", NOTHING) for row in rows)]


def over_slo(job: JobFigures, slo: float | None) -> bool:
    """Whether the job's promise was broken."""
    return slo is not None and job.slowdown is not None and job.slowdown > slo


def counted(number: int, noun: str) -> str:
    """``1 job``, ``1,200 jobs``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def times(value: float | None) -> str:
    """A ratio as ``1.04x``; nothing where there is none or no bound."""
    return NOTHING if value is None or math.isinf(value) else f"{value:.2f}x"


def percent(value: float | None) -> str:
    """A fraction as ``17 %``."""
    return NOTHING if value is None else f"{value * 100:.0f} %"


def usd(value: float) -> str:
    """Dollars, small sums with more digits."""
    return f"${value:,.2f}" if value >= 1 or value == 0 else f"${value:.2g}" if value < 0.01 else f"${value:.3f}"


def gib(value: float) -> str:
    """GiB; TiB from 1024 on, MiB below one."""
    if value == 0:
        return "0 GiB"
    if value >= 1024:
        return f"{value / 1024:,.1f} TiB"
    return f"{value:,.1f} GiB" if value >= 1 else f"{value * 1024:,.0f} MiB"


def mib(value: float) -> str:
    """MiB; GiB from 1024 on."""
    return gib(value / 1024) if value >= 1024 else f"{value:,.0f} MiB"
