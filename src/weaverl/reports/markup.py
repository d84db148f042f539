"""XML and HTML elements as strings; whatever is not markup already is escaped."""

import re
from collections.abc import Iterable
from html import escape

# Characters that XML 1.0 does not allow at all, and lone surrogates, which no file can hold.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
_VOID = frozenset({"meta", "br", "hr", "img"})


class Markup(str):
    """Text that is markup already and goes out as it is."""

    __slots__ = ()


def text(value: object) -> Markup:
    """Any value as safe text."""
    if isinstance(value, Markup):
        return value
    return Markup(escape(_FORBIDDEN.sub("\ufffd", str(value))))


def join(parts: Iterable[object]) -> Markup:
    """Parts one after the other."""
    return Markup("".join(map(text, parts)))


def element(tag: str, /, *children: object, **attributes: object) -> Markup:
    """One element. ``class_`` gives ``class``, ``text_anchor`` ``text-anchor``; None leaves an attribute out."""
    opened = f"<{tag}" + "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if tag in _VOID:
        return Markup(f"{opened}>")
    return Markup(f"{opened}>{''.join(map(text, children))}</{tag}>")


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return str(value) if isinstance(value, int) else text(value)
