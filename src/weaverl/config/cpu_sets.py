"""Sets of CPUs as Linux writes them: ``0-7,16-23``."""

import re
from collections.abc import Iterable, Iterator

from weaverl.config.document import Node, Scalar, describe
from weaverl.config.values import integer, list_of

MAX_CPU = 8191

_RANGES = re.compile(r"[0-9]{1,4}(-[0-9]{1,4})?(,[0-9]{1,4}(-[0-9]{1,4})?)*")


def cpu_set(node: Node) -> tuple[int, ...]:
    """A list of CPU numbers, or ranges as one text; in rising order."""
    numbers = integer(at_least=0, at_most=MAX_CPU)
    cpus: set[int] = set()
    for cpu in _ranges(node) if isinstance(node, Scalar) else list_of(node, numbers):
        if cpu in cpus:
            raise node.place.refuse(f"cpu {cpu} is named twice: name it once")
        cpus.add(cpu)
    return tuple(sorted(cpus))


def format_cpus(cpus: Iterable[int]) -> str:
    """CPUs as ranges: ``0-7,16-23``."""
    ranges: list[list[int]] = []
    for cpu in sorted(cpus):
        if ranges and cpu == ranges[-1][1] + 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def _ranges(node: Scalar) -> Iterator[int]:
    if not _RANGES.fullmatch(node.text):
        raise node.place.refuse(f'not a set of CPUs, {describe(node)}: write [0, 1] or "0-7,16-23"')
    for part in node.text.split(","):
        first, _, last = part.partition("-")
        cpus = range(int(first), int(last or first) + 1)
        if not cpus or cpus[-1] > MAX_CPU:
            raise node.place.refuse(f"not a range of CPUs from 0 to {MAX_CPU}, '{part}': write the lower first")
        yield from cpus
