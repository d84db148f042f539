"""Run GRPO in one process, a phase at a time: ``python examples/grpo/plain.py --preset balanced --out DIR``."""

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from typing import TypeVar

import torch
from torch import nn

from counting import draw_prompts, reward
from grpo import Rollout, RolloutEngine, Trainer, TrainingMetrics, bf16_weights, make_deterministic, score
from grpo_config import PRESETS, GrpoConfig

Result = TypeVar("Result")


@dataclass(frozen=True)
class Iteration:
    """What one iteration came to, and how long its phases took."""

    mean_reward: float
    metrics: TrainingMetrics
    rollout_seconds: float
    training_seconds: float


def run(config: GrpoConfig, device: str = "cpu") -> tuple[list[Iteration], nn.Module]:
    """Run every iteration; return what each came to, and the final policy.

    With a staleness of 1 the next iteration's samples are drawn before the weights of this one are loaded.
    """
    engine, trainer = RolloutEngine(config, device), Trainer(config, device)
    iterations = []

    def sample(iteration: int) -> tuple[Rollout, float]:
        prompts = draw_prompts(config.num_prompts, config.seed, iteration)
        return timed(engine.generate, prompts, iteration)

    drawn = [sample(iteration) for iteration in range(config.staleness)]
    for iteration in range(config.iterations):
        if iteration + config.staleness < config.iterations:
            drawn.append(sample(iteration + config.staleness))
        rollout, rollout_seconds = drawn.pop(0)
        samples = score(rollout, reward)
        metrics, training_seconds = timed(trainer.train, samples, iteration)
        engine.load(bf16_weights(trainer.model))

        mean_reward = samples.rewards.mean().item()
        iterations.append(Iteration(mean_reward, metrics, rollout_seconds, training_seconds))
        print(line(iteration, iterations[-1]), flush=True)
    return iterations, trainer.model


def timed(phase: Callable[..., Result], *arguments: object) -> tuple[Result, float]:
    """Run a phase; return its result and the seconds it took."""
    started = perf_counter()
    outcome = phase(*arguments)
    return outcome, perf_counter() - started


def line(number: int, iteration: Iteration) -> str:
    """Describe an iteration in a line of text."""
    return (
        f"iteration {number:2d}  reward {iteration.mean_reward:.3f}  loss {iteration.metrics.loss:+.4f}  "
        f"rollout {iteration.rollout_seconds:.2f} s  training {iteration.training_seconds:.2f} s"
    )


def write_result(out: Path, config: GrpoConfig, iterations: list[Iteration], digest: str) -> None:
    """Write ``result.json``, to compare runs by: rewards and losses as hexadecimal floats, which round nothing."""
    out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(result(config, iterations, digest), indent=2)
    (out / "result.json").write_text(text + "\n")


def result(config: GrpoConfig, iterations: list[Iteration], digest: str) -> dict[str, object]:
    """Return the record of a run; ``digest`` is that of the final weights."""
    return {
        "config": asdict(config),
        "rewards": [iteration.mean_reward.hex() for iteration in iterations],
        "losses": [iteration.metrics.loss.hex() for iteration in iterations],
        "rollout_seconds": [iteration.rollout_seconds for iteration in iterations],
        "training_seconds": [iteration.training_seconds for iteration in iterations],
        "weights_sha256": digest,
    }


def weights_sha256(model: nn.Module) -> str:
    """Hash the names and the bytes of a model's parameters."""
    digest = sha256()
    for name, parameter in sorted(model.named_parameters()):
        digest.update(name.encode())
        digest.update(parameter.detach().cpu().contiguous().view(torch.uint8).numpy())
    return digest.hexdigest()


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", choices=sorted(PRESETS), default="balanced")
    parser.add_argument("--iterations", type=int, help="instead of the preset's")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--staleness", type=int, choices=(0, 1), default=0, help="1: a step off-policy")
    present = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", default=present, help="cpu or cuda; cuda where there is one")
    parser.add_argument("--out", type=Path, required=True, help="folder for result.json")
    return parser.parse_args()


def chosen_config(arguments: argparse.Namespace) -> GrpoConfig:
    """The preset asked for, with the seed and the number of iterations asked for."""
    preset = PRESETS[arguments.preset]
    iterations = arguments.iterations or preset.iterations
    return replace(preset, seed=arguments.seed, iterations=iterations, staleness=arguments.staleness)


def main() -> None:
    """Run a preset and write its result."""
    arguments = parse_arguments()
    make_deterministic()
    config = chosen_config(arguments)
    iterations, model = run(config, arguments.device)
    write_result(arguments.out, config, iterations, weights_sha256(model))


if __name__ == "__main__":
    main()
