"""Figures of a simulated run that are sums over its jobs: iterations, waits, the bubble-free bound, tenants."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from math import ceil, inf
from typing import Any

import numpy as np

from weaverl.reports.audit import sharing
from weaverl.reports.audit.ahead import boundaries, jobs_ahead, solo_by_iteration
from weaverl.reports.audit.lives import Life, has_faults
from weaverl.reports.audit.spreads import spread
from weaverl.reports.audit.table import LOADING, SYNC, TRAINING, AuditFinding, Column, Record, Table, runs_of

HOUR_US = 3600e6
WINDOW = 20


def last_draws(table: Table) -> Column:
    """One row for each phase of each iteration of each job: that of the last attempt at it."""
    rows = np.flatnonzero((table["phase"] != LOADING) & (table["part"] == 0))
    order = rows[np.lexsort([table[key][rows] for key in ("attempt", "phase", "iteration", "job")])]
    ends = np.append(runs_of([table[key][order] for key in ("job", "iteration", "phase")])[1:], len(order)) - 1
    return order[ends] if len(order) else order


def mean(name: str, values: Iterable[float]) -> dict[str, float]:
    """The mean; none of no values."""
    found = list(values)
    return {name: float(np.mean(found))} if found else {}


class Books:
    """Works the figures out; ``finished`` are the jobs that ran all their iterations."""

    def __init__(
        self, table: Table, lives: list[Life], rows: Mapping[str, Record], finished: list[str], parameters: Any
    ) -> None:
        self._table, self._rows, self._finished, self._parameters = table, rows, finished, parameters
        self._lives: dict[str, list[Life]] = defaultdict(list)
        for life in lives:
            self._lives[life.name].append(life)
        self._draws = last_draws(table)
        jobs, phases = table["job"][self._draws], table["phase"][self._draws]
        self._solo = np.zeros((len(table.jobs), SYNC + 1))
        np.add.at(self._solo, (jobs, phases), table["solo_us"][self._draws])
        self._number = {name: number for number, name in enumerate(table.jobs)}
        self._ahead = jobs_ahead(table)

    def figures(self, usd: float, slowdowns: Mapping[str, float]) -> dict[str, float]:
        """All of them, by their names in the JSON of the run; ``usd`` and ``slowdowns`` as found elsewhere."""
        finished = self._finished
        ended = {name: max(life.end for life in self._lives[name]) for name in finished}
        arrived = {name: round(self._rows[name]["arrival_seconds"] * 1e6) for name in finished}
        waits = {name: self._lives[name][0].begin - arrived[name] for name in finished}
        interrupted = sum(map(len, self._lives.values())) - len(finished)
        last = {id(self._lives[name][-1]) for name in finished}
        others = (life for lives in self._lives.values() for life in lives if id(life) not in last)
        moves = sum(life.moved for life in others)
        return {
            **self._bounds(usd),
            **spread("worst_window", [self._worst_window(name) for name in finished]),
            **spread("wait_hours", [wait / HOUR_US for wait in waits.values()]),
            **mean("mean_wait_hours", [wait / HOUR_US for wait in waits.values()]),
            **mean("mean_completion_hours", [(ended[name] - arrived[name]) / HOUR_US for name in finished]),
            **spread("completion_hours", [(ended[name] - arrived[name]) / HOUR_US for name in finished]),
            **self._tenants(slowdowns),
            **sharing.figures(self._table, self._lives, self._rows, finished, self._parameters),
            "jobs": len(self._rows),
            "jobs_admitted": len(self._table.header["jobs"]),
            "moves": moves,
            "retries": interrupted - moves,
        }

    def pauses(self, reported: Record) -> Iterable[AuditFinding]:
        """What is wrong with the pauses that are reported."""
        return sharing.bounds(self._lives, reported, self._parameters)

    def _price(self, pool: str) -> float:
        return float(self._parameters[f"{pool}_usd_per_gpu_hour"]) / HOUR_US

    def _bounds(self, usd: float) -> dict[str, float]:
        """Dollars over those of devices that are paid only while a phase uses them, tails moved or not."""
        whole = moved = 0.0
        for name in self._finished:
            row, (_, rollout, training, _) = self._rows[name], self._solo[self._number[name]]
            rollouts = row["rollout_gpus"] * rollout
            trainings = row["training_gpus"] * training * self._price("training")
            whole += rollouts * self._price("rollout") + trainings
            moved += min(rollouts, self._tail_moved(row, rollout)) * self._price("rollout") + trainings
        named = {
            "_without_tail": whole,
            "_with_tail": moved,
            "": moved if self._parameters["tail_migration"] else whole,
        }
        return {f"bound_multiple{name}": usd / bound for name, bound in named.items() if bound > 0}

    def _tail_moved(self, row: Record, rollout: float) -> float:
        devices = ceil(row["rollout_gpus"] * self._parameters["tail_devices"])
        if not (self._parameters["tail_migration"] and 0 < devices < row["rollout_gpus"]):
            return inf
        moves = row["iterations"] * self._parameters["tail_move_seconds"] * 1e6
        before = row["rollout_gpus"] * (rollout * row["rollout_p80"] + moves)
        return float(before + devices * rollout * (1 - row["rollout_p80"]) * self._parameters["tail_stretch"])

    def _worst_window(self, name: str) -> float:
        """The largest slowdown of 20 iterations in a row."""
        walls, solo = self.walls(name), self._solo_by_iteration(name)
        num = self._rows[name]["iterations"]
        size = min(WINDOW, num)
        over, under = (np.convolve(times, np.ones(size), "valid") for times in (walls, solo))
        return float((over / under).max())

    def _solo_by_iteration(self, name: str) -> Column:
        draws = self._draws[self._table["job"][self._draws] == self._number[name]]
        num = self._rows[name]["iterations"]
        if self._ahead[self._number[name]]:
            return solo_by_iteration(self._table, draws, num)
        return np.bincount(self._table["iteration"][draws], weights=self._table["solo_us"][draws], minlength=num)

    def _solo_us(self, name: str) -> float:
        number = self._number[name]
        times = self._solo_by_iteration(name) if self._ahead[number] else self._solo[number]
        return float(times.sum())

    def walls(self, name: str) -> Column:
        """Time of each iteration from its first request to the next one's; its training's, where rollouts run beside.

        An attempt's cold start, but for the first one's, counts with the iteration that the one before it ended in.
        """
        walls, table = np.zeros(self._rows[name]["iterations"] + 1), self._table
        current = trained = 0
        for life in self._lives[name]:
            begin = life.begin if life.attempt > 1 else life.loaded_at
            if begin is None:
                continue
            if life.loaded_at is None:
                walls[current] += life.end - begin
                continue
            walls[current] += life.loaded_at - begin
            edges = np.concatenate(([life.loaded_at], self._boundaries(life), [life.end]))
            walls[trained : trained + len(edges) - 1] += np.diff(edges)
            current = trained + len(edges) - 2
            done = table["iteration"][life.rows[table["phase"][life.rows] == TRAINING]]
            trained = max(trained, int(done.max(initial=-1)) + 1)
        return walls[:-1]

    def _boundaries(self, life: Life) -> Column:
        """When one iteration of an attempt ended and the next began."""
        table = self._table
        if self._ahead[life.job]:
            return boundaries(table, life.rows, life.last_iteration)
        whole = (table["phase"][life.rows] == SYNC) & (table["iteration"][life.rows] < life.last_iteration)
        return np.sort(table["ended_at"][life.rows[whole]])

    def _tenants(self, slowdowns: Mapping[str, float]) -> dict[str, float]:
        """Jobs, promises and speed of each tenant; dollars too, but only where nothing fails.

        When a job that was lost has left its group is not in the timeline; then only the sum is known.
        """
        by_tenant: dict[str, list[str]] = {self._rows[name]["tenant"]: [] for name in self._lives}
        for name in self._finished:
            by_tenant[self._rows[name]["tenant"]].append(name)
        figures, speeds = {}, []
        for tenant, names in by_tenant.items():
            solo = sum(self._solo_us(name) for name in names)
            wall = sum(self.walls(name).sum() + sharing.in_queue(self._rows, self._lives[name]) for name in names)
            met = sum(slowdowns[name] <= self._rows[name]["slo"] * (1 + 1e-9) for name in names)
            speed = solo / wall if wall else 1.0
            figures[f"tenants.{tenant}.jobs"] = float(len(names))
            figures[f"tenants.{tenant}.slo_attainment"] = met / len(names) if names else 1.0
            figures[f"tenants.{tenant}.speed"] = speed
            speeds += [speed] if names else []
        squares = len(speeds) * sum(speed * speed for speed in speeds)
        if squares:
            figures["fairness"] = sum(speeds) ** 2 / squares
        if not has_faults(self._parameters):
            paid = self._paid()
            figures |= {f"tenants.{tenant}.usd": paid.get(tenant, 0.0) for tenant in by_tenant}
        return figures

    def _paid(self) -> dict[str, float]:
        """What each tenant pays: a group's nodes, split at each moment by what its members would cost alone."""
        nodes = {node["name"]: node for node in self._table.header["cluster"]["nodes"]}
        changes: dict[str, list[tuple[int, str, float]]] = defaultdict(list)
        for span in self._table.spans:
            node = nodes[span["node"]]
            usd = node["num_devices"] * self._price(node["pool"])
            changes[span["group"]] += [(span["taken_at"], "", usd), (span["given_back_at"], "", -usd)]
        for name, lives in self._lives.items():
            weight = self._usd_alone(name)
            for life in lives:
                if life.group is not None:
                    changes[life.group] += [(life.begin, name, weight), (life.end, name, -weight)]
        paid: dict[str, float] = defaultdict(float)
        for steps in changes.values():
            for name, usd in _split(sorted(steps)):
                paid[self._rows[name]["tenant"]] += usd
        return paid

    def _usd_alone(self, name: str) -> float:
        _, rollout, training, _ = self._solo[self._number[name]]
        row = self._rows[name]
        usd = rollout * row["rollout_gpus"] * self._price("rollout")
        usd += training * row["training_gpus"] * self._price("training")
        return float(usd / self._solo_us(name))


def _split(steps: list[tuple[int, str, float]]) -> Iterable[tuple[str, float]]:
    """Each member's part of what a group costs from one step to the next."""
    members: dict[str, float] = {}
    rate, since = 0.0, 0
    for at, name, change in steps:
        total = sum(members.values())
        if at > since and total:
            yield from ((one, rate * (at - since) * weight / total) for one, weight in members.items())
        since = at
        if not name:
            rate += change
        elif change > 0:
            members[name] = change
        else:
            members.pop(name, None)
