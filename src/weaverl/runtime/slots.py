"""The slots that a process drives: the nodes they belong to, and their device memory."""

from pathlib import Path

import msgspec

from weaverl.channel import names
from weaverl.channel.store import Store
from weaverl.domain.cluster import Node, Slot
from weaverl.runtime.device_memory import DeviceMemory


def nodes_of(store: Store, slots: tuple[Slot, ...]) -> dict[str, Node]:
    """The nodes of slots, as their agents have published them."""
    found = {}
    for name in dict.fromkeys(slot.node for slot in slots):
        record = store.get(names.node_record(name))
        assert record is not None, f"the agent of {name} has published its node"
        found[name] = msgspec.json.decode(record, type=Node)
    return found


def device_memory(ledger: Path, nodes: dict[str, Node]) -> tuple[DeviceMemory, str]:
    """The ledger of this host, and the kind of the slots' devices.

    On a CUDA node the device enforces its own budget; it is only recorded.
    """
    budgets = {name: node.device_memory_bytes for name, node in nodes.items() if node.accelerator == "cpu"}
    return DeviceMemory(ledger, budgets), "cpu" if budgets else "cuda"
