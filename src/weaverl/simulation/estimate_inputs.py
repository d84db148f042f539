"""What an estimate is made from: an iteration of a job, efficiencies, and how long its responses are."""

from math import erf, log, sqrt

import msgspec

from weaverl.simulation.hardware import GpuKind
from weaverl.simulation.models import ModelShape


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """One iteration of a job. Lengths in tokens; ``max_tokens`` caps a response, all its turns together.

    Lengths are lognormal with ``mean_tokens`` and ``length_cv`` before the cap. ``turn_seconds`` and ``turn_tokens``
    are what the environment takes and adds between two turns. ``log_prob_passes``: forward passes over all tokens for
    old and reference log-probabilities.
    """

    model: ModelShape
    max_tokens: int
    mean_tokens: float
    rollout_gpu: GpuKind
    training_gpu: GpuKind
    rollout_gpus: int
    training_gpus: int
    prompt_tokens: int = 1024
    prompts: int = 64
    samples: int = 8
    turns: int = 1
    turn_seconds: float = 10.0
    turn_tokens: int = 256
    length_cv: float = 0.5
    epochs: int = 1
    log_prob_passes: int = 2
    recompute: bool = True
    tensor_parallel: int | None = None
    other_seconds: float = 0.0

    @property
    def responses(self) -> int:
        """Responses of an iteration."""
        return self.prompts * self.samples


class Efficiencies(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of the data sheet's rates that are reached, fixed times, and bytes a parameter or process takes.

    ``weights_share`` chooses the tensor parallelism: the smallest that leaves weights at most this share of a GPU's
    memory, the rest being for the key-value cache.
    """

    bandwidth: float = 0.6
    decode_flops: float = 0.5
    prefill_flops: float = 0.5
    training_flops: float = 0.35
    log_prob_flops: float = 0.45
    step_overhead_seconds: float = 0.004
    all_reduce_seconds: float = 40e-6
    usable_memory: float = 0.9
    weights_share: float = 0.25
    device_bytes_per_parameter: float = 16.0
    host_bytes_per_parameter: float = 18.0
    rollout_resident_gib_per_gpu: float = 7.5
    training_resident_gib_per_gpu: float = 10.0
    staging_copies: float = 1.0


SHARES = frozenset(
    (
        "bandwidth",
        "decode_flops",
        "prefill_flops",
        "training_flops",
        "log_prob_flops",
        "usable_memory",
        "weights_share",
    )
)
"""Efficiencies that are parts of a whole: at most 1."""


class Term(msgspec.Struct, frozen=True):
    """One quantity: its value in a unit, and the formula with the numbers that went in."""

    name: str
    value: float
    unit: str
    formula: str


def mean_length(workload: Workload) -> float:
    """Mean length of a response after the cap."""
    mu, sigma = _lognormal(workload)
    cap = workload.max_tokens
    below = workload.mean_tokens * _normal((log(cap) - mu) / sigma - sigma)
    return below + cap * (1 - _normal((log(cap) - mu) / sigma))


def _lognormal(workload: Workload) -> tuple[float, float]:
    sigma = sqrt(log(1 + workload.length_cv**2))
    return log(workload.mean_tokens) - sigma * sigma / 2, sigma


def ended_share(workload: Workload, length: float) -> float:
    """Share of responses that are shorter than a length below the cap."""
    mu, sigma = _lognormal(workload)
    return _normal((log(length) - mu) / sigma)


def _normal(value: float) -> float:
    """Distribution function of the standard normal."""
    return (1 + erf(value / sqrt(2))) / 2
