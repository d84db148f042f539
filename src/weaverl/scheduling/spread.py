"""How a job's rollouts are spread, by its profile."""

from functools import lru_cache
from math import exp, log, sqrt
from statistics import NormalDist

from weaverl.domain.jobs import PhaseProfile
from weaverl.scheduling.round_model import MICROSECONDS

QUANTILES = 13


@lru_cache(maxsize=4096)
def spread(profile: PhaseProfile, quantiles: int = QUANTILES) -> tuple[int, ...]:
    """Rollouts as a profile says that they are spread: lognormal, cut off at the response cap. Microseconds."""
    mean, cap = profile.rollout_mean_seconds, profile.rollout_max_seconds
    variance = log(1.0 + profile.rollout_cv**2)
    if not variance:
        return (round(mean * MICROSECONDS),)
    normal = NormalDist(log(mean) - variance / 2, sqrt(variance))
    middles = ((2 * place + 1) / (2 * quantiles) for place in range(quantiles))
    return tuple(round(min(exp(normal.inv_cdf(middle)), cap) * MICROSECONDS) for middle in middles)
