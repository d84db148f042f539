"""Traces as plain records: jobs in order of arrival, and what was left out on the way here."""

import msgspec


class TraceJob(msgspec.Struct, frozen=True, kw_only=True):
    """One row of a trace in our own schema. Times in seconds.

    ``rollout_max_seconds`` is the rollout when some response reaches the cap; true rollouts are lognormal with
    ``rollout_mean_seconds`` and ``rollout_cv``, capped at ``rollout_max_seconds`` times the growth so far.
    ``rollout_p80`` is the fraction of a rollout's time by which 80 % of its responses have ended. The mean grows
    linearly over the job's iterations from 1 to ``rollout_growth``. ``sync_gib`` is one copy of the bf16 weights. With
    a ``staleness`` of 1 the next rollout may run beside training. The
    deadline counts from the arrival.
    """

    job_id: str
    tenant: str
    arrival_seconds: float
    iterations: int
    model_billions: float
    max_tokens: int
    turns: int
    rollout_gpus: int
    training_gpus: int
    rollout_max_seconds: float
    rollout_mean_seconds: float
    rollout_cv: float
    rollout_p80: float
    training_seconds: float
    sync_gib: float
    rollout_host_gib: float
    training_host_gib: float
    slo: float
    rollout_growth: float = 1.0
    priority: int = 0
    deadline_seconds: float | None = None
    staleness: int = 0


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs sorted by arrival (stably), with the rows that were skipped counted by reason: nothing goes in silence."""

    name: str
    jobs: tuple[TraceJob, ...]
    skipped: dict[str, int] = {}

    @property
    def rows(self) -> int:
        """Rows that the source had: kept and skipped."""
        return len(self.jobs) + sum(self.skipped.values())


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """One job of a public cluster trace: what it asked for and how long it ran. ``gpus`` may be a fraction."""

    job_id: str
    tenant: str
    submit_seconds: float
    duration_seconds: float
    gpus: float


class Arrivals(msgspec.Struct, frozen=True, kw_only=True):
    """The usable jobs of a public trace, sorted stably by submission, the first of them at second 0.

    ``origin`` says what second 0 is on the trace's own clock; ``skipped`` counts what cannot be used by reason;
    ``warnings`` are to be shown once.
    """

    name: str
    origin: str
    arrivals: tuple[Arrival, ...]
    skipped: dict[str, int] = {}
    warnings: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """Jobs that the source had: kept and skipped."""
        return len(self.arrivals) + sum(self.skipped.values())

    @property
    def gpu_hours(self) -> float:
        """GPU-hours that the kept jobs used."""
        return sum(one.duration_seconds * one.gpus for one in self.arrivals) / 3600
