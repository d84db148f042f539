"""How a cluster that is too small for all is shared: tenants' weights, priorities, deadlines."""

from enum import StrEnum

import msgspec

from weaverl.errors import UsageError

DAY_SECONDS = 24 * 3600.0


class Measure(StrEnum):
    """What a tenant has used, of the nodes that its jobs held."""

    DOLLARS = "dollars"
    GPU_HOURS = "gpu_hours"


class Preemption(msgspec.Struct, frozen=True, kw_only=True):
    """When running jobs are paused so that one of a higher priority can start.

    ``from_priority``: only jobs of this priority or a higher one have others paused. A job is paused at most
    ``most_per_job`` times, and not within ``least_stay_seconds`` of its start.
    """

    from_priority: int = 1
    most_per_job: int = 2
    least_stay_seconds: float = 1800.0


class Deadlines(msgspec.Struct, frozen=True, kw_only=True):
    """Deadlines are kept. ``first_start_seconds``: of a cold start, where the job's own was not measured yet."""

    first_start_seconds: float = 180.0


class Sharing(msgspec.Struct, frozen=True, kw_only=True):
    """The ``sharing`` of a cluster file.

    ``tenants``: weights; who is not named has 1. What was used ``half_life_seconds`` ago counts half. A job's priority
    rises by one for each ``ageing_seconds`` that it waits.
    """

    by: Measure = Measure.DOLLARS
    tenants: dict[str, float] = {}
    half_life_seconds: float = 7 * DAY_SECONDS
    ageing_seconds: float = DAY_SECONDS
    preemption: Preemption | None = None
    deadlines: Deadlines | None = None

    def __post_init__(self) -> None:
        """Raises UsageError where a number would divide by zero."""
        for name, weight in self.tenants.items():
            if not weight > 0:
                raise UsageError(f"tenant {name} has weight {weight:g}: give a number above 0")
        for what, seconds in (("half_life", self.half_life_seconds), ("ageing", self.ageing_seconds)):
            if not seconds >= 1:
                raise UsageError(f"{what} is {seconds:g} s: give 1 s or more")

    def weight(self, tenant: str) -> float:
        """A tenant's weight."""
        return self.tenants.get(tenant, 1.0)
