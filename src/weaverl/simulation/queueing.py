"""What waiting came to: hours in the queue by priority, pauses, deadlines, and how tenants shared while all waited."""

from array import array
from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from weaverl.domain.cluster import PoolKind
from weaverl.domain.groups import Group, Pin
from weaverl.domain.jobs import JobSpec
from weaverl.domain.sharing import Measure, Sharing
from weaverl.domain.units import HOUR_US
from weaverl.simulation.costs import Costs


class DeadlineFigures(msgspec.Struct, frozen=True):
    """Finished jobs with a deadline, and how many of them ended by it."""

    jobs: int
    met: int
    attainment: float


class ShareFigures(msgspec.Struct, frozen=True):
    """One tenant's usage, not decayed: of the whole run, and while every tenant had a job in the queue.

    ``per_weight``: the latter over weight, relative to the mean of all tenants; None if it was never so.
    """

    weight: float
    usage: float
    contended_usage: float
    per_weight: float | None


class SharingFigures(msgspec.Struct, frozen=True):
    """How a shared cluster was shared. Usage in dollars or GPU-hours."""

    contended_hours: float
    tenants: dict[str, ShareFigures]


class _Wait:
    """A job that has yet to end: since when it runs nowhere, how long it was in the queue, how often paused.

    ``moved``: it is there since it left its place at the end of an iteration.
    """

    __slots__ = ("moved", "pauses", "queued_us", "since", "spec", "submitted_at")

    def __init__(self, spec: JobSpec, at: int) -> None:
        self.spec, self.submitted_at, self.since = spec, at, at
        self.queued_us = self.pauses = 0
        self.moved = False


class Queueing:
    """Keeps the books; ``tenants`` are all that there will be."""

    def __init__(self, costs: Costs, sharing: Sharing | None, tenants: Sequence[str]) -> None:
        self.preemptions = self.most_preemptions = 0
        self.queued: dict[int, array[float]] = {}
        self.num_deadlines = self.num_met = 0
        self._waits: dict[str, _Wait] = {}
        self._used = None if sharing is None else _Usage(costs, sharing, tenants)

    def submitted(self, spec: JobSpec, at: int) -> None:
        """A job has come into the queue."""
        self._waits[spec.name] = _Wait(spec, at)
        if self._used is not None:
            self._used.wait(spec.tenant, 1, at)

    def refused(self, job: str, at: int) -> None:
        """It was not taken."""
        self._leaves(self._waits.pop(job), at)

    def admitted(self, job: str, pin: Pin, at: int) -> None:
        """It has left the queue."""
        wait = self._waits[job]
        if wait.moved and at > wait.since:
            wait.pauses += 1
            self.preemptions += 1
            self.most_preemptions = max(self.most_preemptions, wait.pauses)
        self._leaves(wait, at)
        if self._used is not None:
            self._used.pins[job] = (wait.spec.tenant, pin)

    def stopped(self, job: str, at: int) -> None:
        """It runs no more; it may come into the queue again."""
        self._waits[job].since = at

    def requeued(self, job: str, at: int, *, moved: bool) -> None:
        """It is in the queue again; ``moved``: since it left its place at the end of an iteration."""
        wait = self._waits[job]
        if self._used is not None:
            self._used.wait(wait.spec.tenant, 1, at)
        wait.moved = moved

    def regrouped(self, group: Group, pool_of: Callable[[str], PoolKind], at: int) -> None:
        """A group is as given here from now on."""
        if self._used is not None:
            self._used.regroup(group, pool_of, at)

    def ended(self, job: str, at: int, *, finished: bool) -> None:
        """A job has ended."""
        wait = self._waits.pop(job)
        if finished:
            self.queued.setdefault(wait.spec.priority, array("d")).append(wait.queued_us / HOUR_US)
            if wait.spec.deadline_seconds is not None:
                self.num_deadlines += 1
                self.num_met += at - wait.submitted_at <= round(wait.spec.deadline_seconds * 1e6)

    def queued_seconds(self, job: str) -> float:
        """How long a job was in the queue, all told."""
        return self._waits[job].queued_us / 1e6

    def deadlines(self) -> DeadlineFigures | None:
        """Attainment, if any job had a deadline."""
        number, met = self.num_deadlines, self.num_met
        return DeadlineFigures(number, met, met / number) if number else None

    def sharing(self) -> SharingFigures | None:
        """How tenants shared, if the cluster was shared."""
        return None if self._used is None else self._used.figures()

    def _leaves(self, wait: _Wait, at: int) -> None:
        wait.queued_us += at - wait.since
        if self._used is not None:
            self._used.wait(wait.spec.tenant, -1, at)


class _Usage:
    """Integrates what tenants hold."""

    def __init__(self, costs: Costs, sharing: Sharing, tenants: Sequence[str]) -> None:
        self.pins: dict[str, tuple[str, Pin]] = {}
        self._sharing, self._tenants = sharing, tenants
        dollars = {
            PoolKind.ROLLOUT: costs.rollout_usd_per_gpu_hour,
            PoolKind.TRAINING: costs.training_usd_per_gpu_hour,
        }
        by_dollars = sharing.by is Measure.DOLLARS
        self._per_hour = {pool: costs.gpus_per_node * (dollars[pool] if by_dollars else 1.0) for pool in PoolKind}
        self._waiting = dict.fromkeys(tenants, 0)
        self._groups: dict[str, dict[str, float]] = {}
        self._usage, self._contended = dict.fromkeys(tenants, 0.0), dict.fromkeys(tenants, 0.0)
        self._contended_us = self._since = 0

    def wait(self, tenant: str, change: int, at: int) -> None:
        self._advance(at)
        self._waiting[tenant] += change

    def regroup(self, group: Group, pool_of: Callable[[str], PoolKind], at: int) -> None:
        self._advance(at)
        self._groups.pop(group.name, None)
        if group.members:
            self._groups[group.name] = self._rates(group, pool_of)

    def figures(self) -> SharingFigures:
        weights = {tenant: self._sharing.weight(tenant) for tenant in self._tenants}
        ratios = {tenant: self._contended[tenant] / weights[tenant] for tenant in self._tenants}
        mean = sum(ratios.values()) / len(ratios) if ratios else 0.0
        found = {
            tenant: ShareFigures(
                weights[tenant],
                self._usage[tenant],
                self._contended[tenant],
                ratios[tenant] / mean if mean else None,
            )
            for tenant in self._tenants
        }
        return SharingFigures(self._contended_us / HOUR_US, found)

    def _rates(self, group: Group, pool_of: Callable[[str], PoolKind]) -> dict[str, float]:
        holders: dict[str, Counter[str]] = {}
        for member in group.members:
            tenant, pin = self.pins[member]
            for node in dict.fromkeys(slot.node for slot in pin.rollout + pin.training):
                holders.setdefault(node, Counter())[tenant] += 1
        rates: dict[str, float] = {}
        for node, tenants in holders.items():
            for tenant, number in tenants.items():
                part = self._per_hour[pool_of(node)] * number / tenants.total()
                rates[tenant] = rates.get(tenant, 0.0) + part
        return rates

    def _advance(self, at: int) -> None:
        if at > self._since:
            hours, contended = (at - self._since) / HOUR_US, all(self._waiting.values())
            self._contended_us += (at - self._since) * contended
            for rates in self._groups.values():
                for tenant, per_hour in rates.items():
                    self._usage[tenant] += per_hour * hours
                    self._contended[tenant] += per_hour * hours * contended
            self._since = at
