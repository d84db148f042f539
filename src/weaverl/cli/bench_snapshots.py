"""`weaverl bench snapshots`: how near ``weave`` is to the best regrouping of its jobs, at random moments."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from itertools import count
from math import isinf
from multiprocessing import get_context
from statistics import fmean
from typing import NamedTuple

import msgspec

from weaverl.cli.machine import machine
from weaverl.domain.units import HOUR_US
from weaverl.scheduling.objectives import HORIZON_US
from weaverl.scheduling.policies.regrouping import as_placed, best_regrouping, question_of
from weaverl.scheduling.state import ClusterState
from weaverl.simulation.reproduction.runner import end_with_parent
from weaverl.simulation.snapshots import snapshot_of, states


class Ratios(msgspec.Struct, frozen=True, kw_only=True):
    """Expected dollars over those of the best regrouping: 1 is the best, less is a bug.

    They are those that it can change: of the hours to the horizon, and of the work beyond it that slowdowns put off.
    ``settled``: after all moves that would pay if moves were free, so that what is left over is what the planner does
    not find; the rest is what moves that do not pay for themselves, or are yet to come, leave on the table.
    """

    mean_ratio: float
    worst_ratio: float
    least_ratio: float
    settled_mean_ratio: float
    settled_worst_ratio: float
    snapshots: int


class SnapshotFigures(Ratios, frozen=True, kw_only=True):
    """Of all snapshots, and by number of jobs; ``plays`` of groups in all, and seconds of a core that searched.

    No horizon: dollars until all jobs end.
    """

    by_jobs: dict[str, Ratios]
    horizon_hours: float | None
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


def measure_snapshots(
    number: int, seed: int, workers: int, progress: Callable[[], None], horizon_us: float = HORIZON_US
) -> SnapshotFigures:
    """Search the best regrouping of so many snapshots on ``workers`` processes; ``progress`` is told of each.

    The snapshots and what is found of them do not depend on ``workers``.
    """
    begun = time.perf_counter()
    with ProcessPoolExecutor(workers, get_context("spawn"), end_with_parent) as pool:
        try:
            found = [future.result() for future in _searches(pool, number, seed, workers, progress, horizon_us)]
        finally:
            pool.shutdown(cancel_futures=True)
    sizes = sorted({one.num_jobs for one in found})
    return SnapshotFigures(
        **msgspec.structs.asdict(_ratios(found)),
        by_jobs={str(size): _ratios([one for one in found if one.num_jobs == size]) for size in sizes},
        horizon_hours=None if isinf(horizon_us) else horizon_us / HOUR_US,
        seed=seed,
        plays=sum(one.plays for one in found),
        search_seconds=sum(one.seconds for one in found),
        seconds=time.perf_counter() - begun,
        machine=machine(),
    )


def _searches(
    pool: Executor, number: int, seed: int, workers: int, progress: Callable[[], None], horizon_us: float
) -> list[Future[_One]]:
    """The searches under way: of the first snapshots in the order of the traces, whichever is simulated first."""
    searches, first = list[Future[_One]](), deque(pool.submit(states, seed, trace) for trace in range(workers))
    for trace in count(workers):
        for state in first.popleft().result()[: number - len(searches)]:
            searches.append(pool.submit(_measured, state, horizon_us))
            searches[-1].add_done_callback(lambda _: progress())
        if len(searches) == number:
            break
        first.append(pool.submit(states, seed, trace))
    for future in first:
        future.cancel()
    return searches


def _measured(state: bytes, horizon_us: float) -> _One:
    snapshot = snapshot_of(msgspec.msgpack.decode(state, type=ClusterState))
    question = question_of(snapshot.placed, horizon_us)
    placed, settled = as_placed(question), as_placed(question_of(snapshot.settled, horizon_us))
    begun = time.process_time()
    best = best_regrouping(question, settled.groups)
    seconds = time.process_time() - begun
    least_usd = best.usd - question.later_usd
    ratio, settled_ratio = ((one.usd - question.later_usd) / least_usd for one in (placed, settled))
    return _One(len(question.workers), ratio, settled_ratio, best.num_plays, seconds)


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
