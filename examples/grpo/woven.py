"""The same GRPO run as ``plain.py``, woven: two decorated functions, and weights pushed and pulled.

Started by weaverl's agents it is three processes (driver, rollout and training worker), or one (role ``run``).
Started by hand it is a plain run in one process: ``python examples/grpo/woven.py --preset tiny --out DIR``.
"""

import weaverl as weave
from counting import draw_prompts, reward
from grpo import Progress, Rollout, RolloutEngine, Samples, Trainer, TrainingMetrics, make_deterministic, score
from plain import Iteration, chosen_config, line, parse_arguments, timed, weights_sha256, write_result
from workers import Workers


def main() -> None:
    """Run a preset as the role that this process has."""
    arguments = parse_arguments()
    make_deterministic()
    config = chosen_config(arguments)

    job = weave.init()
    engine = job.load(RolloutEngine, config, arguments.device) if job.is_role("rollout") else None
    trainer = job.load(Trainer, config, arguments.device) if job.is_role("training") else None

    @weave.phase("rollout", state=engine)
    def rollout(prompts: list[list[int]], iteration: int) -> Rollout:
        return engine.generate(prompts, iteration, on_progress=report_progress)

    @weave.phase("training", state=trainer)
    def train(samples: Samples, iteration: int) -> tuple[TrainingMetrics, str]:
        metrics = trainer.train(samples, iteration)
        return metrics, weights_sha256(trainer.model) if iteration == config.iterations - 1 else ""

    def push() -> None:
        job.weights.push(trainer.model)

    def pull() -> None:
        job.weights.pull(engine.model)

    workers = Workers(job, {"rollout": {"rollout": rollout, "pull": pull}, "training": {"train": train, "push": push}})
    if not job.is_role("driver"):
        workers.serve()
        return

    iterations, digest = [], ""
    for iteration in range(config.iterations):
        prompts = draw_prompts(config.num_prompts, config.seed, iteration)
        sampled, rollout_seconds = timed(workers.call, "rollout", "rollout", prompts, iteration)
        samples = score(sampled, reward)
        (metrics, digest), training_seconds = timed(workers.call, "training", "train", samples, iteration)
        workers.start("training", "push")
        workers.call("rollout", "pull")
        workers.result("training")

        mean_reward = samples.rewards.mean().item()
        iterations.append(Iteration(mean_reward, metrics, rollout_seconds, training_seconds))
        print(line(iteration, iterations[-1]), flush=True)
    workers.close()
    write_result(arguments.out, config, iterations, digest)


def report_progress(progress: Progress) -> None:
    """Tell weaverl how far the rollout has come."""
    weave.runtime_hook(done=progress.finished, total=progress.total, tokens=progress.tokens)


if __name__ == "__main__":
    main()
