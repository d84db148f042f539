"""From a node of a document to a value of one type: what a key's converter is made of.

A converter takes a node and gives the value, or raises the SpecError that names the node's place. Numbers are
written without quotes. Text is taken as written, but what another YAML reader would take for something else
(``no``, ``22:10``, ``1.10``, a date) must be quoted, so that a file means the same to every reader.
"""

import difflib
import re
from collections.abc import Callable, Collection
from enum import StrEnum
from fractions import Fraction
from typing import TypeVar

from weaverl.config.document import MAX_SHOWN, Mapping, Node, Place, Scalar, Sequence, describe, show
from weaverl.config.units import Rounding, parse_bytes, parse_number, parse_seconds
from weaverl.errors import SpecError

T = TypeVar("T")
D = TypeVar("D")
Choice = TypeVar("Choice", bound=StrEnum)
Convert = Callable[[Node], T]

MAX_NUMBER = 10**9

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_OTHER_READINGS = {
    "a boolean": re.compile(r"(?i:y|yes|n|no|true|false|on|off)"),
    "a date": re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt ][ -~]*)?"),
    "a base-60 number": re.compile(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?"),
    "a number": re.compile(
        r"[-+]?(0[xob][0-9A-Fa-f_]+|\.(?i:inf|nan)|(\.[0-9_]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?)"
    ),
}


class Section:
    """A mapping of a file whose keys are known; each is asked for once, with its converter."""

    def __init__(self, node: Node, keys: tuple[str, ...]) -> None:
        if not isinstance(node, Mapping):
            raise node.place.refuse(f"expected the keys {', '.join(keys)}, got {describe(node)}: write key: value")
        self.place = node.place
        self._entries = node.entries
        for key in node.entries:
            if key not in keys:
                raise _unknown_key(node, key, keys)

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def required(self, key: str, convert: Convert[T]) -> T:
        """The value of a key that must be there."""
        if key not in self._entries:
            raise self.place.refuse(f"the key '{key}' is missing: add it")
        return convert(self._entries[key])

    def subsection(self, key: str, keys: tuple[str, ...]) -> "Section":
        """The mapping under a key that must be there."""
        return self.required(key, lambda node: Section(node, keys))

    def optional(self, key: str, convert: Convert[T], default: D) -> T | D:
        """The value of a key, or the default where the key is left out."""
        return convert(self._entries[key]) if key in self._entries else default

    def place_of(self, key: str) -> Place:
        """Where a key that is there was given."""
        return self._entries[key].place


def text(node: Node) -> str:
    """A text of at least one character."""
    given = text_or_nothing(node)
    if not given:
        raise node.place.refuse(f"empty text, {given!r}: give a value, or leave the key out")
    return given


def text_or_nothing(node: Node) -> str:
    """A text, which may be the empty one in quotes."""
    scalar = _scalar(node, "text")
    for reading, pattern in _OTHER_READINGS.items():
        if scalar.plain and pattern.fullmatch(scalar.text):
            quoted = f'"{scalar.text[:MAX_SHOWN]}"'
            raise node.place.refuse(f"expected text, got {show(scalar.text)}, {reading} to YAML: write {quoted}")
    return scalar.text


def name(node: Node) -> str:
    """A name of up to 63 lower-case letters, digits and inner hyphens."""
    given = text(node)
    if not _NAME.fullmatch(given):
        rule = "use up to 63 of a-z, 0-9 and -, with no hyphen at either end"
        raise node.place.refuse(f"not a name, {show(given)}: {rule}")
    return given


def choice(kind: type[Choice], among: Collection[Choice] | None = None) -> Convert[Choice]:
    """One of the words of an enumeration, or of some of them."""

    def convert(node: Node) -> Choice:
        given = text(node)
        words = [member.value for member in kind if among is None or member in among]
        if given not in words:
            raise node.place.refuse(f"not one of the choices, {show(given)}: write {' or '.join(words)}")
        return kind(given)

    return convert


def integer(*, at_least: int, at_most: int = MAX_NUMBER) -> Convert[int]:
    """A whole number between two bounds; ``1e1`` is 10."""

    def convert(node: Node) -> int:
        exact = _number(node, at_least, at_most)
        if exact.denominator != 1:
            raise node.place.refuse(f"expected a whole number, got {describe(node)}: write {int(exact)}, for example")
        return int(exact)

    return convert


def number(*, at_least: float, at_most: float = MAX_NUMBER, or_equal: bool = True) -> Convert[float]:
    """A finite number between two bounds; the lower is not itself allowed unless ``or_equal``."""

    def convert(node: Node) -> float:
        bound = "at least" if or_equal else "above"
        given = float(_number(node, at_least, at_most, bound))
        if given == at_least and not or_equal:
            raise _too_low(node, at_least, bound)
        return given

    return convert


def memory(rounding: Rounding) -> Convert[int]:
    """A size with its unit, in bytes: offers are rounded down, demands up."""
    return _quantity(lambda given: parse_bytes(given, rounding), "a size such as 64Gi")


def seconds(*, above_zero: bool) -> Convert[float]:
    """A time with its unit, in seconds."""
    return _quantity(lambda given: parse_seconds(given, above_zero=above_zero), "a time such as 1.5s")


def list_of(node: Node, convert: Convert[T]) -> tuple[T, ...]:
    """A list of at least one item, each converted."""
    if not isinstance(node, Sequence):
        raise node.place.refuse(f"expected a list, got {describe(node)}: write [a, b] or one '- a' a line")
    if not node.items:
        raise node.place.refuse("the list is empty: give at least one item")
    return tuple(convert(item) for item in node.items)


def _number(node: Node, at_least: float, at_most: float, bound: str = "at least") -> Fraction:
    scalar = _scalar(node, "a number")
    exact = parse_number(scalar.text)
    if exact is None:
        problem = f"expected a number, got {show(scalar.text)}: write plain decimal digits such as 12 or 1.5"
        raise node.place.refuse(problem)
    if not scalar.plain:
        raise node.place.refuse(f"expected a number, got the text {show(scalar.text)}: write it without quotes")
    if exact < at_least:
        raise _too_low(node, at_least, bound)
    if exact > at_most:
        raise node.place.refuse(f"must be at most {at_most:,}, got {show(scalar.text)}: lower it")
    return exact


def _too_low(node: Node, at_least: float, bound: str) -> SpecError:
    return node.place.refuse(f"must be {bound} {at_least:,}, got {describe(node)}: raise it")


def _quantity(parse: Callable[[str], T], what: str) -> Convert[T]:
    def convert(node: Node) -> T:
        scalar = _scalar(node, what)
        try:
            return parse(scalar.text)
        except SpecError as error:
            raise node.place.refuse(str(error)) from error

    return convert


def _scalar(node: Node, what: str) -> Scalar:
    if not isinstance(node, Scalar):
        raise node.place.refuse(f"expected {what}, got {describe(node)}: give a single value")
    if node.is_empty:
        raise node.place.refuse(f"has no value, {show(node.text)}: give one, or leave the key out")
    return node


def _unknown_key(node: Mapping, key: str, keys: tuple[str, ...]) -> SpecError:
    value = node.entries[key]
    close = difflib.get_close_matches(key[:80], keys, n=1)
    if close:
        remedy = f"did you mean {close[0]}?"
    elif node.in_braces and isinstance(value, Scalar) and value.is_empty:
        remedy = "a comma inside braces begins a new key, so put quotes around a value that has one"
    else:
        remedy = f"the keys here are {', '.join(keys)}"
    return value.place.refuse(f"unknown key {show(key)}: {remedy}")
