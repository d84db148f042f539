"""What each tenant pays and gets: a group's cost is split among its members by what their work would cost alone."""

import msgspec

from weaverl.domain.groups import Group
from weaverl.domain.jobs import JobSpec
from weaverl.domain.units import HOUR_US
from weaverl.simulation.costs import Costs
from weaverl.simulation.workload import Work

ROUNDING = 1 + 1e-9


class TenantFigures(msgspec.Struct, kw_only=True):
    """One tenant's part. ``speed`` is solo time over the time from arrival to end, of all its jobs."""

    usd: float = 0.0
    jobs: int = 0
    slo_attainment: float = 1.0
    speed: float = 1.0


class _Account:
    def __init__(self) -> None:
        self.usd = 0.0
        self.jobs = self.met = 0
        self.solo_seconds = self.wall_seconds = 0.0


class Tenants:
    """Accounts by tenant."""

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self._accounts: dict[str, _Account] = {}
        self._weights: dict[str, tuple[str, float]] = {}
        self._groups: dict[str, tuple[int, float, list[tuple[str, float]]]] = {}

    @property
    def num_known(self) -> int:
        """Jobs that are members of groups."""
        return len(self._weights)

    def admitted(self, spec: JobSpec, work: Work) -> None:
        """A job will be a member of groups until it has left."""
        self._weights[spec.name] = (spec.tenant, self._usd_a_second_alone(spec, work))

    def left(self, job: str) -> None:
        """A job has ended."""
        self._weights.pop(job, None)

    def regroup(self, group: Group, at: int) -> None:
        """A group is as given here from now on; what it cost until now is booked."""
        if group.name in self._groups:
            self._book(*self._groups.pop(group.name), at)
        if group.members:
            usd = self._costs.gpus_per_node * (
                len(group.rollout_nodes) * self._costs.rollout_usd_per_gpu_hour
                + len(group.training_nodes) * self._costs.training_usd_per_gpu_hour
            )
            self._groups[group.name] = (at, usd, [self._weights[name] for name in group.members])

    def finished(self, spec: JobSpec, solo_seconds: float, wall_seconds: float, slowdown: float) -> None:
        """A job has ended well."""
        account = self._account(spec.tenant)
        account.jobs += 1
        account.met += slowdown <= spec.slo * ROUNDING
        account.solo_seconds += solo_seconds
        account.wall_seconds += wall_seconds

    def figures(self) -> dict[str, TenantFigures]:
        """By tenant."""
        return {
            name: TenantFigures(
                usd=account.usd,
                jobs=account.jobs,
                slo_attainment=account.met / account.jobs if account.jobs else 1.0,
                speed=account.solo_seconds / account.wall_seconds if account.wall_seconds else 1.0,
            )
            for name, account in sorted(self._accounts.items())
        }

    def _book(self, since: int, usd_per_hour: float, weights: list[tuple[str, float]], at: int) -> None:
        total = sum(weight for _, weight in weights)
        usd = usd_per_hour * (at - since) / HOUR_US
        for tenant, weight in weights:
            self._account(tenant).usd += usd * weight / total

    def _account(self, tenant: str) -> _Account:
        return self._accounts.setdefault(tenant, _Account())

    def _usd_a_second_alone(self, spec: JobSpec, work: Work) -> float:
        rollout = sum(work.rollout_us) * spec.rollout_gpus * self._costs.rollout_usd_per_gpu_hour
        training = sum(work.training_us) * spec.training_gpus * self._costs.training_usd_per_gpu_hour
        return (rollout + training) / sum(work.solo_us())


def jain(values: list[float]) -> float | None:
    """Jain's fairness index: 1 if all are equal, 1/n if one has all (Jain, Chiu and Hawe, 1984)."""
    squares = len(values) * sum(value * value for value in values)
    return sum(values) ** 2 / squares if squares else None
