"""Percentiles of figures, as they are printed."""

from collections.abc import Iterable

import numpy as np

PERCENTILES = {"p50": 50, "p90": 90, "p99": 99, "max": 100}


def spread(name: str, values: Iterable[float]) -> dict[str, float]:
    """The percentiles that are printed; none of no values."""
    found = list(values)
    if not found:
        return {}
    return {f"{name}.{key}": float(np.percentile(found, share)) for key, share in PERCENTILES.items()}
