"""Which nodes groups have, over time: what is paid for, whether it is used or not."""

from weaverl.domain.cluster import Node, PoolKind
from weaverl.domain.groups import Group


class Ownership:
    """Integrates devices in groups, by pool.

    ``devices`` are in groups now; ``device_us``, in microseconds, is what was provisioned so far.
    """

    def __init__(self) -> None:
        self.device_us = dict.fromkeys(PoolKind, 0)
        self.peak_devices = dict.fromkeys(PoolKind, 0)
        self._nodes: dict[str, Node] = {}
        self._owner: dict[str, str] = {}
        self._groups: dict[str, Group] = {}
        self.devices = dict.fromkeys(PoolKind, 0)
        self._since = 0

    def add(self, node: Node) -> None:
        """A node is there."""
        self._nodes[node.name] = node

    def pool(self, node: str) -> PoolKind:
        """The pool that a node is in."""
        return self._nodes[node].pool

    def group(self, name: str) -> Group | None:
        """A group as it was regrouped last."""
        return self._groups.get(name)

    def regroup(self, group: Group, at: int) -> None:
        """A group's nodes are as given here from now on."""
        self.advance(at)
        before = self._groups.pop(group.name, None)
        for name in before.nodes if before is not None else ():
            if self._owner.get(name) == group.name:
                del self._owner[name]
                self._change(name, -1)
        if group.members:
            self._groups[group.name] = group
            for name in group.nodes:
                self._owner[name] = group.name
                self._change(name, 1)

    def advance(self, at: int) -> None:
        """Book the time until now; what was the case for no time at all is no peak."""
        if at > self._since:
            for pool, devices in self.devices.items():
                self.device_us[pool] += devices * (at - self._since)
                self.peak_devices[pool] = max(self.peak_devices[pool], devices)
            self._since = at

    def _change(self, name: str, sign: int) -> None:
        node = self._nodes[name]
        self.devices[node.pool] += sign * node.num_devices
