"""The same GRPO run as ``plain.py``, woven: two decorated functions, and weights pushed and pulled.

Started by weaverl's agents it is three processes (driver, rollout and training worker), or one (role ``run``).
Started by hand it is a plain run in one process: ``python examples/grpo/woven.py --preset tiny --out DIR``.
Where there is a checkpoint directory it goes on from the last finished iteration.
"""

import gc
from dataclasses import asdict
from typing import Any

import weaverl as weave
from counting import draw_prompts, reward
from grpo import Progress, Rollout, RolloutEngine, Samples, Trainer, TrainingMetrics, make_deterministic, score
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
        engine = job.load(RolloutEngine, config, arguments.device)

        @weave.phase("rollout", state=engine)
        def rollout(prompts: list[list[int]], iteration: int) -> Rollout:
            return engine.generate(prompts, iteration, on_progress=report_progress)

        workers.offer("rollout", rollout=rollout, pull=lambda: job.weights.pull(engine.model), resume=job.resume_from)
    if job.is_role("training"):
        trainer, finished = job.load(load_trainer, config, arguments.device)

        @weave.phase("training", state=trainer)
        def train(samples: Samples, iteration: int) -> tuple[TrainingMetrics, str]:
            metrics = trainer.train(samples, iteration)
            return metrics, weights_sha256(trainer.model) if iteration == config.iterations - 1 else ""

        def save(iteration: int, history: list[dict[str, Any]]) -> None:
            weave.checkpoint(iteration, {**parts(trainer), "history": history})

        push, done = lambda: job.weights.push(trainer.model), lambda: finished
        workers.offer("training", train=train, push=push, save=save, done=done)
    if not job.is_role("driver"):
        workers.serve()
        return

    history = workers.call("training", "done")
    digest = ""
    if history:
        workers.call("rollout", "resume", len(history))
        sync(workers)
    for iteration in range(len(history), config.iterations):
        prompts = draw_prompts(config.num_prompts, config.seed, iteration)
        sampled, rollout_seconds = timed(workers.call, "rollout", "rollout", prompts, iteration)
        samples = score(sampled, reward)
        (metrics, digest), training_seconds = timed(workers.call, "training", "train", samples, iteration)
        sync(workers)
        history.append(Iteration(samples.rewards.mean().item(), metrics, rollout_seconds, training_seconds))
        workers.call("training", "save", iteration, [asdict(one) for one in history])
        print(line(iteration, history[-1]), flush=True)
    workers.close()
    write_result(arguments.out, config, history, digest)


def load_trainer(config: GrpoConfig, device: str) -> tuple[Trainer, list[Iteration]]:
    """Build the trainer, go on from its newest checkpoint if there is one, and say what is finished by then."""
    trainer = Trainer(config, device)
    checkpoint = weave.resume(parts(trainer))
    saved = checkpoint.data["history"] if checkpoint else []
    return trainer, [Iteration(**{**one, "metrics": TrainingMetrics(**one["metrics"])}) for one in saved]


def parts(trainer: Trainer) -> dict[str, Any]:
    """What a checkpoint of a trainer holds."""
    return {"model": trainer.model, "optimizer": trainer.optimizer}


def sync(workers: Workers) -> None:
    """Carry the trainer's weights to the rollout engine."""
    workers.start("training", "push")
    workers.call("rollout", "pull")
    workers.result("training")


def report_progress(progress: Progress) -> None:
    """Tell weaverl how far the rollout has come."""
    weave.runtime_hook(done=progress.finished, total=progress.total, tokens=progress.tokens)


if __name__ == "__main__":
    main()
    # Python's search for cycles at exit, through all of torch and transformers, is a second of a core on which another
    # job's phase may be running by now.
    gc.freeze()
