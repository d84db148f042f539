"""Hyper-parameters of a GRPO run, and presets by how rollout time compares with training time."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class GrpoConfig:
    """One run. Together with the code it determines every reward, loss and weight, bit for bit."""

    seed: int = 0
    iterations: int = 12
    staleness: int = 0
    """How many versions old the weights are that samples are drawn with; 1: one-step off-policy."""

    hidden_size: int = 192
    intermediate_size: int = 512
    num_layers: int = 3
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 48

    num_prompts: int = 32
    group_size: int = 16
    """Responses to each prompt; their rewards are normalised against one another."""
    response_length: int = 12
    """Tokens in every response. Fixed, so that an iteration takes as long as the one before."""
    max_running_sequences: int = 20
    """Responses decoded together; the rest wait their turn."""

    epochs: int = 1
    """Passes over an iteration's samples."""
    num_minibatches: int = 16
    """Optimizer steps an epoch."""
    learning_rate: float = 5e-4
    clip_range: float = 0.3
    max_gradient_norm: float = 1.0

    def __post_init__(self) -> None:
        if self.num_samples % self.num_minibatches:
            raise ValueError(
                f"num_minibatches is {self.num_minibatches}, which does not divide the {self.num_samples} samples "
                f"of an iteration (num_prompts x group_size); choose a divisor"
            )

    @property
    def num_samples(self) -> int:
        """Responses an iteration, over all prompts."""
        return self.num_prompts * self.group_size


PRESETS = {
    "balanced": GrpoConfig(),
    "rollout_heavy": GrpoConfig(num_prompts=20, max_running_sequences=6),
    "training_heavy": GrpoConfig(num_prompts=20, epochs=2, learning_rate=3e-4),
    "small": GrpoConfig(num_prompts=14),
    "tiny": GrpoConfig(
        iterations=4,
        hidden_size=32,
        intermediate_size=64,
        num_layers=2,
        num_heads=2,
        num_kv_heads=1,
        head_dim=16,
        num_prompts=8,
        group_size=8,
        response_length=8,
        num_minibatches=4,
        max_running_sequences=24,
    ),
}
