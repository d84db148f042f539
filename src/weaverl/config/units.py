"""Sizes and times as people write them: one number, one unit from the tables here, nothing else.

Decimal and binary units are different things: ``24G`` is 24,000,000,000 bytes, ``24Gi`` is 25,769,803,776.
There is no default unit, and ``m`` is none: it is milli to some, mega or minute to others.
"""

import re
from enum import StrEnum
from fractions import Fraction

from weaverl.errors import SpecError

BYTES = {
    "B": 1,
    "K": 10**3,
    "KB": 10**3,
    "Ki": 2**10,
    "KiB": 2**10,
    "M": 10**6,
    "MB": 10**6,
    "Mi": 2**20,
    "MiB": 2**20,
    "G": 10**9,
    "GB": 10**9,
    "Gi": 2**30,
    "GiB": 2**30,
    "T": 10**12,
    "TB": 10**12,
    "Ti": 2**40,
    "TiB": 2**40,
}
SECONDS = {"ms": Fraction(1, 1000), "s": Fraction(1), "min": Fraction(60), "h": Fraction(3600)}

MAX_BYTES = 2**60
MAX_SECONDS = 10**9
MICROSECOND = Fraction(1, 10**6)

_MAX_NUMBER_LENGTH = 40
_NUMBER = re.compile(r"[+-]?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?")
_QUANTITY = re.compile(r"(?P<number>[^A-Za-z ]*([eE][+-]?[0-9]+)?) *(?P<unit>[^ ]*)")


class Rounding(StrEnum):
    """Which way a fraction of a byte goes: ``down`` for what is offered, ``up`` for what is asked."""

    DOWN = "down"
    UP = "up"


def parse_number(text: str) -> Fraction | None:
    """A number in plain decimal digits, exactly; None for anything else (``nan``, ``1_000``, ``010``)."""
    if len(text) > _MAX_NUMBER_LENGTH or not _NUMBER.fullmatch(text):
        return None
    return Fraction(text)


def parse_bytes(text: str, rounding: Rounding) -> int:
    """A size of at least one byte; SpecError says what is wrong with the text."""
    number, unit = _split(text, tuple(BYTES), example="64Gi")
    exact = number * BYTES[unit]
    if exact <= 0:
        raise SpecError(f"must be above zero, got {text!r}: give a size such as 64Gi")
    if exact > MAX_BYTES:
        raise SpecError(f"more than 1 EiB, got {text!r}: check the unit")
    size = int(exact) if rounding is Rounding.DOWN else -int(-exact // 1)
    if size == 0:
        raise SpecError(f"less than one byte, got {text!r}: check the unit")
    return size


def parse_seconds(text: str, *, above_zero: bool) -> float:
    """A time in seconds; SpecError says what is wrong with the text."""
    number, unit = _split(text, tuple(SECONDS), example="1.5s")
    exact = number * SECONDS[unit]
    if exact < 0 or (above_zero and exact == 0):
        bound = "above zero" if above_zero else "zero or more"
        raise SpecError(f"must be {bound}, got {text!r}: give a time such as 1.5s")
    if 0 < exact < MICROSECOND:
        raise SpecError(f"shorter than a microsecond, got {text!r}: check the unit")
    if exact > MAX_SECONDS:
        raise SpecError(f"longer than {MAX_SECONDS:,} s, got {text!r}: check the unit")
    return float(exact)


def format_bytes(size: int) -> str:
    """A size in the largest unit that expresses it exactly; ``parse_bytes`` gives it back."""
    units = ("Ti", "T", "Gi", "G", "Mi", "M", "Ki", "K")
    unit = max((unit for unit in units if size % BYTES[unit] == 0), key=BYTES.__getitem__, default="B")
    return f"{size // BYTES[unit]}{unit}"


def format_seconds(seconds: float) -> str:
    """A time as a whole number of its largest unit, or in seconds; ``parse_seconds`` gives it back."""
    exact = Fraction(seconds)
    unit = next((unit for unit in ("h", "min", "s") if exact and (exact / SECONDS[unit]).denominator == 1), "")
    return f"{exact / SECONDS[unit]}{unit}" if unit else f"{seconds!r}s"


def _split(text: str, units: tuple[str, ...], *, example: str) -> tuple[Fraction, str]:
    shown = repr(text[:_MAX_NUMBER_LENGTH])
    parts = _QUANTITY.fullmatch(text) if len(text) <= _MAX_NUMBER_LENGTH else None
    number = parse_number(parts["number"]) if parts else None
    if parts is None or number is None:
        raise SpecError(f"not a number with a unit, got {shown}: write it like {example}")
    if parts["unit"] not in units:
        what = "unknown unit" if parts["unit"] else "the unit is missing"
        raise SpecError(f"{what}, got {shown}: write it like {example}, with one of {', '.join(units)}")
    return number, parts["unit"]
