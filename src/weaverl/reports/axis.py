"""Axes: round tick marks, never more than asked for whatever the range, and numbers as people write them."""

import math

_TIME_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)
_UNITS = (("d", 86400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0))


def ticks(low: float, high: float, most: int = 6) -> tuple[float, ...]:
    """At most ``most`` round values within ``[low, high]``, 1, 2 or 5 times a power of ten apart."""
    if not (math.isfinite(low) and math.isfinite(high)) or high <= low:
        return (low,) if math.isfinite(low) else ()
    return _multiples(low, high, _round_step((high - low) / most, high - low, most))


def time_ticks(seconds: float, most: int = 10) -> tuple[tuple[float, str], ...]:
    """Marks from 0 to ``seconds`` with their labels, at steps that clocks have."""
    if seconds <= 0:
        return ((0.0, "0 s"),)
    step = next((float(step) for step in _TIME_STEPS if seconds / step <= most - 1), 0.0)
    if seconds < most - 1 or not step:
        unit = 86400.0 if not step else 1.0
        step = _round_step(seconds / unit / (most - 1), seconds / unit, most - 1) * unit
    name, size = next((unit for unit in _UNITS if step >= unit[1]), _UNITS[-1])
    return tuple((mark, f"{mark / size:g} {name}") for mark in _multiples(0.0, seconds, step))


def duration(seconds: float) -> str:
    """A length of time for people: ``0.25 s``, ``6.1 s``, ``61 s``, ``12 min``, ``3.5 h``, ``14 d``."""
    if seconds < 1:
        return f"{seconds:.2g} s"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 300:
        return f"{seconds:.0f} s"
    name, size = ("min", 60.0) if seconds < 7200 else ("h", 3600.0) if seconds < 259200 else ("d", 86400.0)
    return f"{seconds / size:.1f}".removesuffix(".0") + f" {name}"


def _round_step(step: float, span: float, most: int) -> float:
    power = 10.0 ** math.floor(math.log10(step))
    return next(power * times for times in (1, 2, 5, 10) if span / (power * times) <= most * (1 + 1e-9))


def _multiples(low: float, high: float, step: float) -> tuple[float, ...]:
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return tuple(place * step for place in range(first, last + 1))
