"""GRPO with a verifiable reward: a rollout engine that samples, a trainer that learns, what passes between.

Group Relative Policy Optimization is from DeepSeekMath (Shao et al. 2024, arXiv:2402.03300), here without its
KL term and so without a reference model. The engine and the trainer may live in different processes: built from
the same configuration they start from the same weights, and every random number comes from ``(seed,
iteration)``, never from a global generator or from what was drawn before. Shapes: N samples, G of them to each
prompt, P prompt tokens, T response tokens.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache, Qwen3Config, Qwen3ForCausalLM

from counting import PROMPT_LENGTH, VOCABULARY
from grpo_config import GrpoConfig


@dataclass(frozen=True)
class Progress:
    """How far a rollout has come: responses finished out of ``total``, and response tokens decoded so far."""

    finished: int
    total: int
    tokens: int


@dataclass(frozen=True)
class Rollout:
    """Sampled responses, on the CPU: the G samples of a prompt side by side, prompts in the order given."""

    prompt_ids: Tensor
    """int64, N x P."""
    response_ids: Tensor
    """int64, N x T."""
    log_probs: Tensor
    """float32, N x T, in nats: of each response token, under the policy that sampled it."""


@dataclass(frozen=True)
class Samples:
    """What the trainer learns from: a rollout and its rewards, float32, N."""

    rollout: Rollout
    rewards: Tensor


@dataclass(frozen=True)
class TrainingMetrics:
    """Means over the optimizer steps of one iteration."""

    loss: float
    gradient_norm: float
    """L2, before clipping."""
    clipped_fraction: float
    """Share of tokens whose probability ratio lies outside the clip range."""


class RolloutEngine:
    """Samples responses from a bf16 copy of the policy. ``model`` has the trainer's parameter names.

    On a CPU the copy is held and computed with in fp32: many CPUs are slow at bf16. Its values are bf16 all the same.
    """

    def __init__(self, config: GrpoConfig, device: str = "cpu") -> None:
        self.config = config
        self.device = torch.device(device)
        self.model = build_policy(config).to(self.device).requires_grad_(False).eval()
        compute_dtype = torch.bfloat16 if self.device.type == "cuda" else torch.float32
        for parameter in self.model.parameters():
            parameter.data = parameter.data.to(torch.bfloat16).to(compute_dtype)

    def load(self, weights: Mapping[str, Tensor]) -> None:
        """Copy weights in by parameter name."""
        for name, parameter in self.model.named_parameters():
            parameter.copy_(weights[name])

    @torch.no_grad()
    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        iteration: int,
        on_progress: Callable[[Progress], None] = lambda progress: None,
    ) -> Rollout:
        """Sample G responses at temperature 1 to each of the prompts (token ids, all P long).

        The result depends on the weights, the prompts and ``(seed, iteration)`` alone. ``on_progress`` is called
        after each decoding step, some milliseconds apart; its counts are totals, so a caller may drop any but
        the last.
        """
        generator = seeded_generator(f"rollout/{self.config.seed}/{iteration}", self.device)
        prompt_ids = torch.tensor(prompts).repeat_interleave(self.config.group_size, dim=0)
        total, length = len(prompt_ids), self.config.response_length
        response_ids = torch.empty(total, length, dtype=torch.int64)
        log_probs = torch.empty(total, length)
        for first in range(0, total, self.config.max_running_sequences):
            running = slice(first, min(first + self.config.max_running_sequences, total))
            for step, decoded in enumerate(self._decode(prompt_ids[running].to(self.device), generator)):
                response_ids[running, step], log_probs[running, step] = decoded
                finished = running.stop if step + 1 == length else first
                tokens = first * length + (running.stop - first) * (step + 1)
                on_progress(Progress(finished, total, tokens))
        return Rollout(prompt_ids, response_ids, log_probs)

    def _decode(self, prompt_ids: Tensor, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield, T times, the next token of each sequence and its log-probability."""
        cache = DynamicCache(config=self.model.config)
        token_ids = prompt_ids
        for _ in range(self.config.response_length):
            logits = self.model(token_ids, cache=cache, use_cache=True, logits_to_keep=1).logits[:, -1]
            log_probs = logits.float().log_softmax(dim=-1)
            token_ids = torch.multinomial(log_probs.exp(), num_samples=1, generator=generator)
            yield token_ids.squeeze(1), log_probs.gather(1, token_ids).squeeze(1)


class Trainer:
    """The fp32 policy and its optimizer. ``state_dict`` and the iteration's number are a whole checkpoint."""

    def __init__(self, config: GrpoConfig, device: str = "cpu") -> None:
        self.config = config
        self.device = torch.device(device)
        self.model = build_policy(config).to(self.device)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=config.learning_rate, weight_decay=0.0, fused=True
        )

    def train(self, samples: Samples, iteration: int) -> TrainingMetrics:
        """Take ``epochs`` x ``num_minibatches`` optimizer steps on one iteration's samples."""
        advantages = group_advantages(samples.rewards, self.config.group_size)
        rows_of_steps = self._minibatches(len(advantages), iteration)
        steps = torch.stack([self._step(samples.rollout, advantages, rows) for rows in rows_of_steps])
        return TrainingMetrics(*steps.mean(dim=0).tolist())

    def state_dict(self) -> dict[str, Any]:
        """Return the model's and the optimizer's state, sharing their storage."""
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Copy in what ``state_dict`` returned. The optimizer's moments are new tensors afterwards."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(deepcopy(state["optimizer"]))  # it would keep the tensors it is given

    def _minibatches(self, num_samples: int, iteration: int) -> Iterator[Tensor]:
        """Yield the sample indices of each optimizer step, every epoch in a new order."""
        generator = seeded_generator(f"minibatches/{self.config.seed}/{iteration}")
        for _ in range(self.config.epochs):
            yield from torch.randperm(num_samples, generator=generator).chunk(self.config.num_minibatches)

    def _step(self, rollout: Rollout, advantages: Tensor, rows: Tensor) -> Tensor:
        """Take one optimizer step; return loss, gradient norm and clipped fraction, in that order, on the CPU."""
        prompt_ids, response_ids, old_log_probs, advantages = (
            tensor[rows].to(self.device)
            for tensor in (rollout.prompt_ids, rollout.response_ids, rollout.log_probs, advantages)
        )
        log_probs = response_log_probs(self.model, prompt_ids, response_ids)
        loss, clipped_fraction = clipped_loss(log_probs, old_log_probs, advantages, self.config.clip_range)
        loss.backward()
        gradient_norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.config.max_gradient_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()  # after the step, not before the next: between iterations no gradients are held
        return torch.stack([loss.detach(), gradient_norm, clipped_fraction]).cpu()


def score(rollout: Rollout, reward: Callable[[Sequence[int], Sequence[int]], float]) -> Samples:
    """Reward every sample by a function of its prompt's and its response's token ids."""
    rewards = map(reward, rollout.prompt_ids.tolist(), rollout.response_ids.tolist())
    return Samples(rollout, torch.tensor(list(rewards)))


def group_advantages(rewards: Tensor, group_size: int) -> Tensor:
    """Normalise each reward against its group: ``(r - mean) / std``; 0 where a group's rewards are all the same.

    Rewards and advantages: float32, N, groups side by side. The deviation is the population's.
    """
    groups = rewards.view(-1, group_size)
    centred = groups - groups.mean(dim=1, keepdim=True)
    return (centred / (groups.std(dim=1, correction=0, keepdim=True) + 1e-6)).flatten()


def clipped_loss(
    log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, clip_range: float
) -> tuple[Tensor, Tensor]:
    """Return PPO's clipped surrogate (Schulman et al. 2017, equation 7), negated, and the clipped fraction.

    Log-probabilities: N x T, in nats; advantages: N. Both results are means over all tokens.
    """
    ratio = (log_probs - old_log_probs).exp()
    clipped_ratio = ratio.clamp(1 - clip_range, 1 + clip_range)
    weight = advantages.unsqueeze(1)
    loss = -torch.minimum(ratio * weight, clipped_ratio * weight).mean()
    return loss, (ratio != clipped_ratio).float().mean()


def response_log_probs(model: nn.Module, prompt_ids: Tensor, response_ids: Tensor) -> Tensor:
    """Compute the log-probability of every response token, float32, N x T, in nats, in one forward pass."""
    token_ids = torch.cat([prompt_ids, response_ids[:, :-1]], dim=1)
    logits = model(token_ids, use_cache=False, logits_to_keep=response_ids.shape[1]).logits
    return logits.float().log_softmax(dim=-1).gather(2, response_ids.unsqueeze(2)).squeeze(2)


def bf16_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return what the rollout engine loads: each parameter rounded to bf16, by name, a tied one once."""
    return {name: parameter.detach().to(torch.bfloat16) for name, parameter in model.named_parameters()}


def build_policy(config: GrpoConfig) -> Qwen3ForCausalLM:
    """Build the fp32 policy on the CPU with weights that depend on the configuration alone."""
    qwen3 = Qwen3Config(
        vocab_size=len(VOCABULARY),
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_hidden_layers=config.num_layers,
        num_attention_heads=config.num_heads,
        num_key_value_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        max_position_embeddings=PROMPT_LENGTH + config.response_length,
        tie_word_embeddings=True,
        attn_implementation="sdpa",
    )
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(config.seed)
        return Qwen3ForCausalLM(qwen3)


def seeded_generator(purpose: str, device: torch.device | str = "cpu") -> torch.Generator:
    """Return a generator whose seed is a hash of its purpose, such as ``rollout/<seed>/<iteration>``."""
    seed = int.from_bytes(sha256(purpose.encode()).digest()[:4])  # the CPU's generator takes 32 bits
    return torch.Generator(device).manual_seed(seed)


def make_deterministic() -> None:
    """Have torch compute the same bits in every process: process-wide options, to be set first in each."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    if torch.cuda.is_available():
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
        torch.utils.deterministic.fill_uninitialized_memory = False
