"""Nodes by what placement asks of them: which are free, smallest sufficient first, and what each pool has at all."""

from bisect import bisect_left, insort
from collections.abc import Iterator
from heapq import merge
from typing import NamedTuple

from weaverl.domain.cluster import PoolKind


class NodeClass(NamedTuple):
    """Nodes that are alike to placement."""

    pool: PoolKind
    num_devices: int
    usable_bytes: int


class NodeCatalog:
    """All nodes by class, and the names of the free ones of each class in order."""

    def __init__(self) -> None:
        self._class_of: dict[str, NodeClass] = {}
        self._known: dict[NodeClass, int] = {}
        self._free: dict[NodeClass, list[str]] = {}

    def put(self, name: str, of: NodeClass, *, free: bool) -> None:
        """A node as it is now."""
        before = self._class_of.get(name)
        if before is not None:
            self._known[before] -= 1
            _discard(self._free[before], name)
        self._class_of[name] = of
        self._known[of] = self._known.get(of, 0) + 1
        names = self._free.setdefault(of, [])
        if free:
            insort(names, name)

    def copy(self) -> "NodeCatalog":
        """A catalogue that can be changed without changing this one."""
        other = NodeCatalog()
        other._class_of, other._known = dict(self._class_of), dict(self._known)
        other._free = {of: names[:] for of, names in self._free.items()}
        return other

    def free(self, pool: PoolKind, needs_bytes: int = 0) -> Iterator[str]:
        """Free nodes of a pool whose host memory holds that much, by name."""
        return merge(*(names for of, names in self._free.items() if of.pool is pool and of.usable_bytes >= needs_bytes))

    def free_like(self, name: str) -> Iterator[str]:
        """Free nodes that are alike to a node, by name."""
        return iter(self._free[self._class_of[name]])

    def by_fit(self, pool: PoolKind, num_gpus: int, needs_bytes: int) -> Iterator[tuple[str, int]]:
        """Free nodes and their devices: the smallest that holds all first, then those that hold a part."""
        roomy = [of for of in self._free if of.pool is pool and of.usable_bytes >= needs_bytes]
        for num_devices in sorted({of.num_devices for of in roomy}, key=lambda size: (size < num_gpus, size)):
            alike = (self._free[of] for of in roomy if of.num_devices == num_devices)
            yield from ((name, num_devices) for name in merge(*alike))

    def first_short(self, pool: PoolKind, needs_bytes: int) -> tuple[str, int] | None:
        """The first free node by name whose host memory does not hold that much, and what it has."""
        short = [
            (names[0], of.usable_bytes)
            for of, names in self._free.items()
            if names and of.pool is pool and of.usable_bytes < needs_bytes
        ]
        return min(short, default=None)

    def classes(self, pool: PoolKind) -> list[NodeClass]:
        """The classes that a pool's nodes, free or not, are of."""
        return [of for of, count in self._known.items() if count and of.pool is pool]

    def num_devices(self, pool: PoolKind) -> int:
        """Devices of a pool, free or not."""
        return sum(of.num_devices * count for of, count in self._known.items() if of.pool is pool)

    def devices_a_node(self, pool: PoolKind) -> int | None:
        """Devices of each of the pool's nodes; None where they differ."""
        sizes = {of.num_devices for of in self.classes(pool)}
        return sizes.pop() if len(sizes) == 1 else None


def _discard(names: list[str], name: str) -> None:
    place = bisect_left(names, name)
    if place < len(names) and names[place] == name:
        del names[place]
