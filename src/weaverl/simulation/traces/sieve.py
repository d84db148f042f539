"""Collects the jobs of a public trace: kept ones sorted from second 0, the others counted by reason."""

from collections import Counter
from collections.abc import Callable
from operator import itemgetter

from weaverl.errors import TraceError
from weaverl.simulation.traces.records import Arrival, Arrivals
from weaverl.simulation.traces.stamps import NO_ZONE, Stamps

NO_GPUS = "asked for no GPU"
NEVER_STARTED = "never started"
NO_SUBMISSION = "has no submission time"
STILL_RUNNING = "has no end: it was still running"
NO_TIME = "ran for 0 s"
BACKWARD = "ended before it started"
OLDER = "is older than the trace"
OLDER_AND_OUTLIVES = "is older than the trace and outlives it"
OUTLIVES = "outlives the trace"


class Sieve:
    """The jobs so far. Every job is either kept or skipped, so that nothing is lost in silence."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.warnings: list[str] = []
        self._kept: list[tuple[float, str, str, float, float]] = []
        self._ids: set[str] = set()
        self._skipped: Counter[str] = Counter()

    def skip(self, reason: str) -> None:
        """Count a job that cannot be used."""
        self._skipped[reason] += 1

    def keep(self, job_id: str, tenant: str, submit: float, duration: float, gpus: float) -> None:
        """Keep a job, or count why it cannot be used: a job of 0 s has no slowdown, and none ran backward.

        Raises:
            TraceError: an id that is there twice.
        """
        if job_id in self._ids:
            raise TraceError(f"{self.source}: job {job_id} is there twice: ids are unique")
        self._ids.add(job_id)
        if gpus <= 0:
            self.skip(NO_GPUS)
        elif duration == 0:
            self.skip(NO_TIME)
        elif duration < 0:
            self.skip(BACKWARD)
        else:
            self._kept.append((submit, job_id, tenant, duration, gpus))

    def arrivals(self, name: str, clock: Callable[[float], str]) -> Arrivals:
        """What was kept, from second 0 on; ``clock`` shows a time as the trace does."""
        kept = sorted(self._kept, key=itemgetter(0))
        first = kept[0][0] if kept else 0.0
        return Arrivals(
            name=name,
            origin=clock(first),
            arrivals=tuple(
                Arrival(
                    job_id=job_id,
                    tenant=tenant,
                    submit_seconds=round(submit - first, 6),
                    duration_seconds=duration,
                    gpus=gpus,
                )
                for submit, job_id, tenant, duration, gpus in kept
            ),
            skipped=dict(self._skipped),
            warnings=tuple(self.warnings),
        )

    def arrivals_by_stamps(self, name: str, stamps: Stamps) -> Arrivals:
        """The same for a trace with wall-clock stamps, with a warning if they have no zone."""
        if stamps.had_no_zone:
            self.warnings.append(NO_ZONE)
        return self.arrivals(name, stamps.text)
