"""The published inter-group algorithm read word by word and computed by brute force, with nothing of the package's.

Whole nodes only. A job is a dict of seconds and gibibytes; a group a list of members with the nodes they are pinned to.
The round is simulated phase by phase, in exact fractions, until its state repeats.
"""

from fractions import Fraction
from itertools import count

ROLLOUT_USD, TRAINING_USD = Fraction(185, 100) * 8, Fraction(528, 100) * 8


class Published:
    """The cluster as the algorithm sees it; ``arrive`` places a job or returns None."""

    def __init__(self, rollout_nodes: list[str], training_nodes: list[str], usable_gib: int, switch: tuple) -> None:
        self.nodes = {"rollout": sorted(rollout_nodes), "training": sorted(training_nodes)}
        self.usable_gib, self.switch = usable_gib, switch
        self.groups: list[list[dict]] = []

    def arrive(self, job: dict) -> tuple[str, tuple[str, ...], tuple[str, ...]] | None:
        """Kind of placement and nodes of each pool; among the cheapest the kind tried first, then the oldest group."""
        found = [one for one in self._candidates(job) if self._keeps_every_promise(one, job)]
        if not found:
            return None
        _, _, kind, group, rollout, training = min(found, key=lambda one: one[:2])
        member = {**job, "on": {"rollout": rollout, "training": training}}
        if group is None:
            self.groups.append([member])
        else:
            self.groups[group].append(member)
        return kind, rollout, training

    def depart(self, name: str) -> None:
        """The job is gone, and nodes that nobody uses are free."""
        self.groups = [[one for one in group if one["name"] != name] for group in self.groups]
        self.groups = [group for group in self.groups if group]

    def _candidates(self, job: dict):
        """Price, rank, kind, group and nodes of every placement of the family that host memory allows."""
        order = count()
        for place, group in enumerate(self.groups):
            if self._is_saturated(group):
                continue
            own = {pool: self._nodes_of(group, pool) for pool in self.nodes}
            training = self._least_loaded(group, "training", own["training"], job)
            if training is None:
                continue
            rollout = self._least_loaded(group, "rollout", own["rollout"], job)
            if rollout is not None:
                yield Fraction(0), (0, next(order)), "pack", place, rollout, training
            free = [node for node in self._free("rollout") if job["gib"]["rollout"] <= self.usable_gib]
            for opened in range(1, min(job["nodes"]["rollout"], len(free)) + 1):
                kept = job["nodes"]["rollout"] - opened
                rest = self._least_loaded(group, "rollout", own["rollout"], job, kept) if kept else ()
                if rest is not None:
                    nodes = (*free[:opened], *rest)
                    yield opened * ROLLOUT_USD, (1, next(order)), "scale rollout", place, nodes, training
        alone = {pool: self._free(pool)[: job["nodes"][pool]] for pool in self.nodes}
        roomy = all(job["gib"][pool] <= self.usable_gib for pool in self.nodes)
        if roomy and all(len(alone[pool]) == job["nodes"][pool] for pool in self.nodes):
            price = len(alone["rollout"]) * ROLLOUT_USD + len(alone["training"]) * TRAINING_USD
            yield price, (2, next(order)), "isolate", None, tuple(alone["rollout"]), tuple(alone["training"])

    def _keeps_every_promise(self, candidate: tuple, job: dict) -> bool:
        """Every member, old and new, that the job slows keeps its SLO in the simulated round."""
        _, _, _, group, rollout, training = candidate
        members = [*(self.groups[group] if group is not None else [])]
        members.append({**job, "on": {"rollout": rollout, "training": training}})
        touched = linked_with_last(members)
        cycle = simulated_round(touched, self.switch)
        return all(cycle <= round(one["slo"] * float(1_000_000 * solo(one))) for one in touched)

    def _is_saturated(self, group: list[dict]) -> bool:
        natural = max(solo(one) for one in group)
        return any(
            sum(held(one, pool, group, self.switch) for one in group if node in one["on"][pool]) >= natural
            for pool in self.nodes
            for node in self._nodes_of(group, pool)
        )

    def _least_loaded(self, group: list[dict], pool: str, nodes: list[str], job: dict, number: int | None = None):
        wanted = job["nodes"][pool] if number is None else number
        users = {node: [one for one in group if node in one["on"][pool]] for node in nodes}
        roomy = [
            node for node in nodes if sum(one["gib"][pool] for one in users[node]) + job["gib"][pool] <= self.usable_gib
        ]
        load = {node: sum(held(one, pool, group, self.switch) for one in users[node]) for node in roomy}
        chosen = sorted(roomy, key=lambda node: (load[node], node))[:wanted]
        return tuple(chosen) if len(chosen) == wanted else None

    def _nodes_of(self, group: list[dict], pool: str) -> list[str]:
        return sorted({node for one in group for node in one["on"][pool]})

    def _free(self, pool: str) -> list[str]:
        taken = {node for group in self.groups for one in group for node in one["on"][pool]}
        return [node for node in self.nodes[pool] if node not in taken]


def solo(job: dict) -> Fraction:
    """Seconds of an iteration alone."""
    return sum((Fraction(job[part]) for part in ("rollout", "training", "sync", "other")), Fraction(0))


def held(job: dict, pool: str, group: list[dict], switch: tuple) -> Fraction:
    """Seconds that a job holds its nodes of a pool a round: with its switch if it shares one of them."""
    shares = any(set(one["on"][pool]) & set(job["on"][pool]) for one in group if one is not job)
    return Fraction(job[pool]) + (Fraction(switch[pool == "training"]) if shares else 0)


def linked_with_last(group: list[dict]) -> list[dict]:
    """The last job and all that share nodes with it, also through others, in rotation order."""
    linked = [group[-1]]
    for _ in group:
        nodes = {node for one in linked for pool in one["on"].values() for node in pool}
        linked = [one for one in group if any(node in nodes for pool in one["on"].values() for node in pool)]
    return linked


def simulated_round(group: list[dict], switch: tuple) -> Fraction:
    """Microseconds a round once the simulation repeats itself: every job once a round, one order on all nodes."""
    free = {node: Fraction(0) for one in group for nodes in one["on"].values() for node in nodes}
    ready = [Fraction(0)] * len(group)
    seen: dict[tuple, tuple[int, Fraction]] = {}
    for turn in count():
        for place, one in enumerate(group):
            at = ready[place]
            for pool in ("rollout", "training"):
                at = max([at, *(free[node] for node in one["on"][pool])]) + held(one, pool, group, switch)
                free.update(dict.fromkeys(one["on"][pool], at))
            ready[place] = at + Fraction(one["sync"]) + Fraction(one["other"])
        now = min(ready)
        shape = tuple(value - now for value in (*free.values(), *ready))
        if shape in seen:
            before, then = seen[shape]
            return (now - then) / (turn - before) * 1_000_000
        seen[shape] = (turn, now)
    raise AssertionError
