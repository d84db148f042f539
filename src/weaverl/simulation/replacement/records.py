"""What came of runs with other moves than the policy's own."""

import msgspec


class AgainstHourly(msgspec.Struct, frozen=True, kw_only=True):
    """Policy ``weave`` on a trace beside its running jobs regrouped every hour at no cost, by the same planner.

    ``ratio``: dollars over those of hourly regrouping.
    """

    trace: str
    jobs: int
    usd: float
    hourly_usd: float
    ratio: float
    slo_attainment: float
    hourly_slo_attainment: float
    moves: int
    hourly_moves: int
    audited: bool | None


class Reacted(msgspec.Struct, frozen=True, kw_only=True):
    """A trace under one reaction to drift.

    ``drift``: to which factor each job's rollouts grow; None: as in the trace. ``error``: how much what is measured is
    off a profile before its job has drifted, as a share. ``plans``: how often that was; ``plan_*_ms``: a plan's time
    on a processor.
    """

    trace: str
    jobs: int
    reaction: str
    drift: float | None
    error: float
    usd: float
    slo_attainment: float
    slo_missed: int
    largest_slowdown: float
    moves: int
    plans: int
    plan_p50_ms: float
    plan_p99_ms: float
    audited: bool | None
