"""A fixed fleet: no more nodes than there are, when all was done, and when it could have been at best."""

from collections.abc import Iterator, Mapping
from math import ceil
from typing import Any

import numpy as np

from weaverl.reports.audit.books import HOUR_US, last_draws
from weaverl.reports.audit.table import PHASES, AuditFinding, Record, Table

POOLS = ("rollout", "training")
SLOWER_ELSEWHERE = {"rollout": "gavel_training", "training": "colocated_rollout"}
"""How much longer the other pool's phase takes where all of a job is on one pool's GPUs, by that pool."""


def limits(parameters: Mapping[str, Any]) -> dict[str, int | None]:
    """The most nodes of each pool; None: as many as are needed."""
    general = parameters.get("max_nodes_per_pool")
    own = {pool: parameters.get(f"max_{pool}_nodes") for pool in POOLS}
    return {pool: general if own[pool] is None else own[pool] for pool in POOLS}


def too_many(table: Table, parameters: Mapping[str, Any]) -> Iterator[AuditFinding]:
    """Pools that had more nodes than their limit."""
    nodes = [node["pool"] for node in table.header["cluster"]["nodes"]]
    for pool, most in limits(parameters).items():
        if most is not None and nodes.count(pool) > most:
            yield AuditFinding("fleet", f"the {pool} pool had {nodes.count(pool)} nodes, {most} were allowed")


def makespan(
    table: Table, rows: Mapping[str, Record], finished: list[str], parameters: Mapping[str, Any]
) -> dict[str, float]:
    """Hours from the first arrival to the last end, and the least that any policy could take where there is a fleet."""
    first = min((round(row["arrival_seconds"] * 1e6) for row in rows.values()), default=0)
    last = max((span["given_back_at"] for span in table.spans), default=0)
    figures = {"makespan_hours": max(last - first, 0) / HOUR_US}
    if finished and None not in limits(parameters).values():
        figures["makespan_bound_hours"] = (_bound_us(table, rows, finished, parameters) - first) / HOUR_US
    return figures


def _bound_us(table: Table, rows: Mapping[str, Record], finished: list[str], parameters: Mapping[str, Any]) -> float:
    """The later of two moments: all jobs have lived their shortest lives, all devices have done their work."""
    draws = last_draws(table)
    solo = np.zeros((len(PHASES), len(table.jobs)))
    np.add.at(solo, (table["phase"][draws], table["job"][draws]), table["solo_us"][draws])
    number = {name: place for place, name in enumerate(table.jobs)}
    devices = sum(most or 0 for most in limits(parameters).values()) * parameters["gpus_per_node"]
    latest, to_do = 0.0, []
    for name in finished:
        seconds = {phase: solo[place, number[name]] for place, phase in enumerate(PHASES)}
        life, work = _least(rows[name], seconds, parameters)
        arrival = round(rows[name]["arrival_seconds"] * 1e6)
        latest = max(latest, arrival + life)
        to_do.append((arrival, work))
    arrivals, works = np.array(sorted(to_do, reverse=True)).T
    return max(latest, float((arrivals + np.cumsum(works) / devices).max()))


def _least(row: Record, phases: Mapping[str, float], parameters: Mapping[str, Any]) -> tuple[float, float]:
    """The shortest life of a job from its arrival, and the fewest device-microseconds that its phases take."""
    low, high = parameters["cold_start_seconds"]
    cold = round(max(low + (high - low) * (row["model_billions"] - 7) / 63, 0.0) * 1e6)
    head, stretch = _head(row, parameters), parameters["tail_stretch"]
    devices = ceil(row["rollout_gpus"] * parameters["tail_devices"])
    shortest = phases["rollout"] * (head + (1 - head) * min(stretch, 1.0))
    held = phases["rollout"] * (head + (1 - head) * min(devices * stretch / row["rollout_gpus"], 1.0))
    both = (shortest, phases["training"] + phases["sync"])
    lives = [max(both) if row.get("staleness", 0) else sum(both)]
    works = [held * row["rollout_gpus"] + phases["training"] * row["training_gpus"]]
    for pool in POOLS:
        slower = {other: parameters[SLOWER_ELSEWHERE[pool]] if other != pool else 1.0 for other in POOLS}
        lives.append(shortest * slower["rollout"] + phases["training"] * slower["training"])
        works.append((held * slower["rollout"] + phases["training"] * slower["training"]) * row[f"{pool}_gpus"])
    return cold + min(lives), min(works)


def _head(row: Record, parameters: Mapping[str, Any]) -> float:
    """The part of a rollout after which its tail can be moved; 1 if it has none."""
    devices = ceil(row["rollout_gpus"] * parameters["tail_devices"])
    moves = parameters["tail_migration"] and devices < row["rollout_gpus"]
    return float(row["rollout_p80"]) if moves else 1.0
