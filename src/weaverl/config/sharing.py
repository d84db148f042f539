"""The ``sharing`` of a cluster file, and of a file of its own for simulations; ``docs/sharing.md`` is for users."""

from pathlib import Path

from weaverl.config.document import Mapping, Node, describe, file_label, parse_document, read_text
from weaverl.config.values import Section, choice, integer, number, seconds
from weaverl.domain.sharing import Deadlines, Measure, Preemption, Sharing

SHARING_KEYS = ("by", "tenants", "half_life", "ageing", "preemption", "deadlines")
PREEMPTION_KEYS = ("from_priority", "most_per_job", "least_stay")
DEADLINE_KEYS = ("first_start",)
MOST_WEIGHT = 1_000_000
LEAST_SECONDS = 1.0
_MOST_PRIORITY = 1_000_000


def load_sharing(path: Path) -> Sharing:
    """Read a file whose one key is ``sharing``; SpecError says what is wrong."""
    section = Section(parse_document(read_text(path), file=file_label(path)), ("sharing",))
    return section.required("sharing", sharing)


def sharing(node: Node) -> Sharing:
    """The value of the key."""
    section, default = Section(node, SHARING_KEYS), Sharing()
    return Sharing(
        by=section.optional("by", choice(Measure), default.by),
        tenants=section.optional("tenants", _weights, default.tenants),
        half_life_seconds=section.optional("half_life", _long, default.half_life_seconds),
        ageing_seconds=section.optional("ageing", _long, default.ageing_seconds),
        preemption=section.optional("preemption", _preemption, None),
        deadlines=section.optional("deadlines", _deadlines, None),
    )


def _weights(node: Node) -> dict[str, float]:
    if not isinstance(node, Mapping):
        raise node.place.refuse(f"expected weights, got {describe(node)}: write {{research: 2, product: 1}}")
    weight = number(at_least=0, at_most=MOST_WEIGHT, or_equal=False)
    return {tenant: weight(value) for tenant, value in node.entries.items()}


def _long(node: Node) -> float:
    given = seconds(above_zero=True)(node)
    if given < LEAST_SECONDS:
        raise node.place.refuse(f"must be at least {LEAST_SECONDS:g} s, got {describe(node)}: raise it")
    return given


def _preemption(node: Node) -> Preemption:
    section, default = Section(node, PREEMPTION_KEYS), Preemption()
    priority = integer(at_least=-_MOST_PRIORITY, at_most=_MOST_PRIORITY)
    return Preemption(
        from_priority=section.optional("from_priority", priority, default.from_priority),
        most_per_job=section.optional("most_per_job", integer(at_least=1, at_most=1000), default.most_per_job),
        least_stay_seconds=section.optional("least_stay", seconds(above_zero=False), default.least_stay_seconds),
    )


def _deadlines(node: Node) -> Deadlines:
    section, default = Section(node, DEADLINE_KEYS), Deadlines()
    return Deadlines(
        first_start_seconds=section.optional("first_start", seconds(above_zero=False), default.first_start_seconds)
    )
