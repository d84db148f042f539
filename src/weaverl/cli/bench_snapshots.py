"""`weaverl bench snapshots`: how near ``weave`` is to the best regrouping of its jobs, at random moments."""

import time
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import NamedTuple

import msgspec

from weaverl.cli.machine import machine
from weaverl.scheduling.policies.regrouping import as_placed, best_regrouping, question_of
from weaverl.simulation.snapshots import Snapshot, snapshots


class Ratios(msgspec.Struct, frozen=True, kw_only=True):
    """Expected dollars of the work that is left over those of the best regrouping: 1 is the best, less is a bug.

    ``settled``: after all moves of one job that would pay if moves were free, so that what is left over is what such
    moves do not find; the rest is what moves that do not pay for themselves, or are yet to come, leave on the table.
    """

    mean_ratio: float
    worst_ratio: float
    least_ratio: float
    settled_mean_ratio: float
    settled_worst_ratio: float
    snapshots: int


class SnapshotFigures(Ratios, frozen=True, kw_only=True):
    """Of all snapshots, and by number of jobs; ``plays`` of groups in all, and seconds of the search alone."""

    by_jobs: dict[str, Ratios]
    seed: int
    plays: int
    search_seconds: float
    seconds: float
    machine: dict[str, str | int | float | None]


class _One(NamedTuple):
    num_jobs: int
    ratio: float
    settled_ratio: float
    plays: int
    seconds: float


def measure_snapshots(number: int, seed: int, progress: Callable[[], None]) -> SnapshotFigures:
    """Search the best regrouping of so many snapshots; ``progress`` is told of each."""
    begun, found = time.perf_counter(), list[_One]()
    for snapshot in snapshots(number, seed):
        found.append(_measured(snapshot))
        progress()
    sizes = sorted({one.num_jobs for one in found})
    return SnapshotFigures(
        **msgspec.structs.asdict(_ratios(found)),
        by_jobs={str(size): _ratios([one for one in found if one.num_jobs == size]) for size in sizes},
        seed=seed,
        plays=sum(one.plays for one in found),
        search_seconds=sum(one.seconds for one in found),
        seconds=time.perf_counter() - begun,
        machine=machine(),
    )


def _measured(snapshot: Snapshot) -> _One:
    question = question_of(snapshot.placed)
    placed, settled = as_placed(question), as_placed(question_of(snapshot.settled))
    begun = time.perf_counter()
    best = best_regrouping(question, settled.groups)
    seconds = time.perf_counter() - begun
    return _One(len(question.workers), placed.usd / best.usd, settled.usd / best.usd, best.num_plays, seconds)


def _ratios(found: Sequence[_One]) -> Ratios:
    ratios, settled = [one.ratio for one in found], [one.settled_ratio for one in found]
    return Ratios(
        mean_ratio=fmean(ratios),
        worst_ratio=max(ratios),
        least_ratio=min(ratios),
        settled_mean_ratio=fmean(settled),
        settled_worst_ratio=max(settled),
        snapshots=len(found),
    )
