"""Random draws that are the same on every machine: uniform doubles of PCG64, turned into everything else here.

numpy promises the stream of its bit generators, not that of its distributions; so only the former is used.
"""

import math
from collections.abc import Mapping
from statistics import NormalDist
from typing import TypeVar

import numpy as np

_Choice = TypeVar("_Choice")
_STANDARD = NormalDist()


class Draws:
    """One stream of a seed. Streams of different names do not disturb each other."""

    def __init__(self, seed: int, stream: int) -> None:
        sequence = np.random.SeedSequence(entropy=seed, spawn_key=(stream,))
        self._random = np.random.Generator(np.random.PCG64(sequence)).random

    def unit(self) -> float:
        """Uniform on [0, 1)."""
        return float(self._random())

    def uniform(self, low: float, high: float) -> float:
        """Uniform on [low, high)."""
        return low + (high - low) * self.unit()

    def log_uniform(self, low: float, high: float) -> float:
        """Uniform in the logarithm, on [low, high)."""
        return low * math.exp(math.log(high / low) * self.unit())

    def lognormal(self, median: float, sigma: float) -> float:
        """Lognormal with standard deviation ``sigma`` of the logarithm."""
        return median * math.exp(sigma * _STANDARD.inv_cdf(self._open_unit()))

    def truncated_lognormal(self, median: float, sigma: float, low: float, high: float) -> float:
        """Lognormal given that it lies on [low, high]."""
        first, last = (_STANDARD.cdf(math.log(bound / median) / sigma) for bound in (low, high))
        value = median * math.exp(sigma * _STANDARD.inv_cdf(first + (last - first) * self._open_unit()))
        return min(max(value, low), high)

    def weibull(self, mean: float, shape: float) -> float:
        """Weibull with the given mean."""
        return mean / math.gamma(1 + 1 / shape) * math.pow(-math.log(self._open_unit()), 1 / shape)

    def choice(self, weights: Mapping[_Choice, float]) -> _Choice:
        """A key, with probability in proportion to its weight."""
        left = self.unit() * sum(weights.values())
        for key, weight in weights.items():
            left -= weight
            if left < 0:
                return key
        return key

    def _open_unit(self) -> float:
        """Uniform on (0, 1): the quantile of 0 is not finite."""
        return self.unit() + 2.0**-54
