"""What a reproduction is made of: runs, rows of published figures beside ours, and sweeps of one parameter."""

from typing import Any

import msgspec

from weaverl.domain.timeline import Interval
from weaverl.simulation.costs import Costs
from weaverl.simulation.outcome import Outcome
from weaverl.simulation.traces.records import Trace


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One simulated run to make."""

    study: str
    trace: Trace
    policy: str
    costs: Costs = Costs()
    seed: int | None = 0


class CostStep(msgspec.Struct, frozen=True, kw_only=True):
    """Dollars an hour paid for each pool from a moment on, until the next step."""

    hours: float
    rollout_usd_per_hour: float
    training_usd_per_hour: float


class Life(msgspec.Struct, kw_only=True):
    """When a job ran, hours since the first admission; None while it still does."""

    job: str
    began_hours: float
    ended_hours: float | None = None


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What came out of a simulated run. ``slowdowns`` and ``slos`` are by job, in the order in which they ended."""

    study: str
    outcome: Outcome
    slowdowns: tuple[float, ...]
    slos: tuple[float, ...]
    steps: tuple[CostStep, ...]
    lives: tuple[Life, ...] = ()


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One published figure beside ours. ``values`` are ours by name; without any, nothing of ours was measured.

    ``low`` and ``high`` span what was published where that is a number.
    """

    key: str
    section: str
    what: str
    published: str
    ours: str
    differs: str
    values: dict[str, float] = {}
    low: float | None = None
    high: float | None = None


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """Costs at one value of a parameter: `solo` and `colocated` dollars over ours, mean of the seeds."""

    value: float
    solo_ratio: float
    colocated_ratio: float
    slo_attainment: float


class Sweep(msgspec.Struct, frozen=True, kw_only=True):
    """One parameter varied, all else as in the evaluation protocol. ``standard`` is the protocol's own value."""

    key: str
    title: str
    axis: str
    points: tuple[Point, ...]
    answer: str
    standard: float | None = None
    logarithmic: bool = False


class DecisionPoint(msgspec.Struct, frozen=True, kw_only=True):
    """Time of one placement decision with so many jobs running."""

    jobs: int
    p50_ms: float
    p99_ms: float


class Excerpt(msgspec.Struct, frozen=True, kw_only=True):
    """Some minutes of a woven group, to look at."""

    title: str
    jobs: tuple[str, ...]
    intervals: tuple[Interval, ...]
    start_us: int
    minutes: float


class Drift(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of drift: dollars over hourly ideal regrouping, and SLOs met; means of the traces."""

    kind: str
    over_ideal: float
    slo_attainment: float


class Reproduction(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the report shows. ``replay`` is by policy; ``mixes`` are cost ratios by mix and policy.

    ``confirmed`` runs are those that the auditor agrees with; ``refuted`` names the others.
    """

    rows: tuple[Row, ...]
    replay: dict[str, tuple[Result, ...]]
    mixes: dict[str, dict[str, float]]
    drifts: tuple[Drift, ...]
    sweeps: tuple[Sweep, ...]
    decisions: tuple[DecisionPoint, ...]
    excerpt: Excerpt
    parameters: dict[str, Any]
    machine: dict[str, Any]
    quick: bool
    confirmed: int
    refuted: tuple[str, ...]
