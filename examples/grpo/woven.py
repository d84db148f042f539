"""The same GRPO run as ``plain.py``, woven: two decorated functions, and weights pushed and pulled.

Started by weaverl's agents it is three processes (driver, rollout and training worker), or one (role ``run``).
Started by hand it is a plain run in one process: ``python examples/grpo/woven.py --preset tiny --out DIR``.
Where there is a checkpoint directory it goes on from the last finished iteration. With ``--staleness 1`` it is the
one-step off-policy run of ``plain.py``: the next rollout runs beside training.
"""

import gc
from dataclasses import asdict
from typing import Any

from torch import Tensor

import weaverl as weave
from counting import draw_prompts, reward
from grpo import (
    Progress,
    Rollout,
    RolloutEngine,
    Samples,
    Trainer,
    TrainingMetrics,
    bf16_weights,
    build_policy,
    make_deterministic,
    score,
)
from grpo_config import GrpoConfig
from plain import Iteration, chosen_config, line, parse_arguments, timed, weights_sha256, write_result
from workers import Workers


def main() -> None:
    """Run a preset as the role that this process has."""
    arguments = parse_arguments()
    make_deterministic()
    config = chosen_config(arguments)

    job = weave.init()
    workers = Workers(job)
    if job.is_role("rollout"):
        offer_rollouts(job, workers, config, arguments.device)
    if job.is_role("training"):
        offer_trainings(job, workers, config, arguments.device)
    if not job.is_role("driver"):
        workers.serve()
        return

    history = workers.call("training", "done")
    if history:
        workers.call("rollout", "resume", len(history))
        sync(workers, len(history) - config.staleness, "push" if not config.staleness else "push_before")
    digest = a_step_ahead(workers, config, history) if config.staleness else in_turn(workers, config, history)
    workers.close()
    write_result(arguments.out, config, history, digest)


def offer_rollouts(job: weave.Job, workers: Workers, config: GrpoConfig, device: str) -> None:
    """What the rollout role does when it is asked."""
    engine = job.load(RolloutEngine, config, device)

    @weave.phase("rollout", state=engine)
    def rollout(prompts: list[list[int]], iteration: int) -> Rollout:
        return engine.generate(prompts, iteration, on_progress=report_progress)

    def rollout_beside(prompts: list[list[int]], iteration: int) -> Rollout:
        job.weights.fetch(engine.model)  # those of the training beside it, so that its sync need not wait for us
        return rollout(prompts, iteration)

    def pull(version: int) -> None:
        job.weights.pull(engine.model, version)

    workers.offer("rollout", rollout=rollout, rollout_beside=rollout_beside, pull=pull, resume=job.resume_from)


def offer_trainings(job: weave.Job, workers: Workers, config: GrpoConfig, device: str) -> None:
    """What the training role does when it is asked."""
    before = bf16_weights(build_policy(config)) if config.staleness else {}
    trainer, finished = job.load(load_trainer, config, device, before)

    @weave.phase("training", state=trainer)
    def train(samples: Samples, iteration: int) -> tuple[TrainingMetrics, str]:
        for name, weights in bf16_weights(trainer.model).items() if before else ():
            before[name].copy_(weights)
        metrics = trainer.train(samples, iteration)
        return metrics, weights_sha256(trainer.model) if iteration == config.iterations - 1 else ""

    def save(iteration: int, history: list[dict[str, Any]]) -> None:
        weave.checkpoint(iteration, {**parts(trainer, before), "history": history})

    def push(version: int) -> None:
        job.weights.push(trainer.model, version)

    def push_before(version: int) -> None:
        job.weights.push(before, version)

    workers.offer("training", train=train, push=push, push_before=push_before, save=save, done=lambda: finished)


def in_turn(workers: Workers, config: GrpoConfig, history: list[Iteration]) -> str:
    """Run what is left, one phase after the other; the hash of the final weights."""
    digest = ""
    for iteration in range(len(history), config.iterations):
        prompts = draw_prompts(config.num_prompts, config.seed, iteration)
        sampled, rollout_seconds = timed(workers.call, "rollout", "rollout", prompts, iteration)
        digest = train_on(workers, sampled, rollout_seconds, iteration, history)
        sync(workers, iteration + 1)
        keep(workers, iteration, history)
    return digest


def a_step_ahead(workers: Workers, config: GrpoConfig, history: list[Iteration]) -> str:
    """Run what is left, each training beside the next rollout; the hash of the final weights.

    Version k + 1 is what training k ends with. It is written into the engine after rollout k + 1, whenever it came. A
    run that goes on from a checkpoint draws its first samples with the version before the last, as it would have.
    """
    digest, first = "", len(history)
    if first < config.iterations:
        prompts = draw_prompts(config.num_prompts, config.seed, first)
        sampled, rollout_seconds = timed(workers.call, "rollout", "rollout", prompts, first)
        if first:
            sync(workers, first)
    for iteration in range(first, config.iterations - 1):
        prompts = draw_prompts(config.num_prompts, config.seed, iteration + 1)
        workers.start("rollout", "rollout_beside", prompts, iteration + 1)
        digest = train_on(workers, sampled, rollout_seconds, iteration, history)
        keep(workers, iteration, history)
        workers.call("training", "push", iteration + 1)
        sampled, rollout_seconds = timed(workers.result, "rollout")
        workers.call("rollout", "pull", iteration + 1)
    if first < config.iterations:
        digest = train_on(workers, sampled, rollout_seconds, config.iterations - 1, history)
        sync(workers, config.iterations)
        keep(workers, config.iterations - 1, history)
    return digest


def train_on(
    workers: Workers, sampled: Rollout, rollout_seconds: float, iteration: int, history: list[Iteration]
) -> str:
    """Train on an iteration's samples and add it to the history; the hash of the weights after the last one."""
    samples = score(sampled, reward)
    (metrics, digest), training_seconds = timed(workers.call, "training", "train", samples, iteration)
    history.append(Iteration(samples.rewards.mean().item(), metrics, rollout_seconds, training_seconds))
    return digest


def keep(workers: Workers, iteration: int, history: list[Iteration]) -> None:
    """Save what it takes to go on after an iteration."""
    workers.call("training", "save", iteration, [asdict(one) for one in history])
    print(line(iteration, history[-1]), flush=True)


def load_trainer(config: GrpoConfig, device: str, before: dict[str, Tensor]) -> tuple[Trainer, list[Iteration]]:
    """Build the trainer, go on from its newest checkpoint if there is one, and say what is finished by then."""
    trainer = Trainer(config, device)
    checkpoint = weave.resume(parts(trainer, before))
    saved = checkpoint.data["history"] if checkpoint else []
    return trainer, [Iteration(**{**one, "metrics": TrainingMetrics(**one["metrics"])}) for one in saved]


def parts(trainer: Trainer, before: dict[str, Tensor]) -> dict[str, Any]:
    """What a checkpoint of a trainer holds; a step off-policy, also the weights before its last training."""
    rolled_with = {f"before {name}": weights for name, weights in before.items()}
    return {"model": trainer.model, "optimizer": trainer.optimizer, **rolled_with}


def sync(workers: Workers, version: int, push: str = "push") -> None:
    """Carry the trainer's weights to the rollout engine."""
    workers.start("training", push, version)
    workers.call("rollout", "pull", version)
    workers.result("training")


def report_progress(progress: Progress) -> None:
    """Tell weaverl how far the rollout has come."""
    weave.runtime_hook(done=progress.finished, total=progress.total, tokens=progress.tokens)


if __name__ == "__main__":
    main()
    # Python's search for cycles at exit, through all of torch and transformers, is a second of a core on which another
    # job's phase may be running by now.
    gc.freeze()
