from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache
from multiprocessing import get_context

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import grpo  # noqa: E402
import plain  # noqa: E402
from counting import VOCABULARY, draw_prompts, reward  # noqa: E402
from grpo_config import PRESETS, GrpoConfig  # noqa: E402

TINY = PRESETS["tiny"]


@pytest.fixture(autouse=True, scope="module")
def deterministic_torch() -> Iterator[None]:
    num_threads = torch.get_num_threads()
    grpo.make_deterministic()
    yield
    torch.set_num_threads(num_threads)
    torch.set_flush_denormal(False)


def run(config: GrpoConfig) -> dict[str, object]:
    iterations, model = plain.run(config)
    record = plain.result(config, iterations, plain.weights_sha256(model))
    return {key: record[key] for key in ("rewards", "losses", "weights_sha256")}


def rollout_of(config: GrpoConfig, iteration: int = 0) -> grpo.Rollout:
    prompts = draw_prompts(config.num_prompts, config.seed, iteration)
    return grpo.RolloutEngine(config).generate(prompts, iteration)


def test_two_runs_are_equal_bit_for_bit():
    first = run(TINY)
    torch.rand(7)
    assert run(TINY) == first
    assert run(replace(TINY, seed=1)) != first


def test_a_run_leaves_the_global_generator_alone():
    state = torch.get_rng_state()
    run(TINY)
    assert torch.equal(torch.get_rng_state(), state)


@cache
def engine_of_this_process(config: GrpoConfig) -> grpo.RolloutEngine:
    return grpo.RolloutEngine(config)


@cache
def trainer_of_this_process(config: GrpoConfig) -> grpo.Trainer:
    return grpo.Trainer(config)


def generate(config: GrpoConfig, weights: dict | None, prompts: list[list[int]], iteration: int) -> grpo.Rollout:
    if weights:
        engine_of_this_process(config).load(weights)
    return engine_of_this_process(config).generate(prompts, iteration)


def train(config: GrpoConfig, samples: grpo.Samples, iteration: int) -> tuple[str, dict, str]:
    trainer = trainer_of_this_process(config)
    loss = trainer.train(samples, iteration).loss.hex()
    return loss, grpo.bf16_weights(trainer.model), plain.weights_sha256(trainer.model)


def test_engine_and_trainer_in_processes_of_their_own_give_the_run_of_one_process():
    spawn = get_context("spawn")
    rewards, losses, weights, digest = [], [], None, ""
    with ProcessPoolExecutor(1, spawn) as rollout_process, ProcessPoolExecutor(1, spawn) as training_process:
        rollout_process.submit(grpo.make_deterministic)
        training_process.submit(grpo.make_deterministic)
        for iteration in range(TINY.iterations):
            prompts = draw_prompts(TINY.num_prompts, TINY.seed, iteration)
            rollout = rollout_process.submit(generate, TINY, weights, prompts, iteration).result()
            samples = grpo.score(rollout, reward)
            loss, weights, digest = training_process.submit(train, TINY, samples, iteration).result()
            rewards.append(samples.rewards.mean().item().hex())
            losses.append(loss)
    assert {"rewards": rewards, "losses": losses, "weights_sha256": digest} == run(TINY)


def test_a_trainer_restored_from_its_state_goes_on_as_the_one_it_was_saved_from():
    samples = [grpo.score(rollout_of(TINY, iteration), reward) for iteration in range(2)]
    trainer, restored = grpo.Trainer(TINY), grpo.Trainer(TINY)
    trainer.train(samples[0], 0)
    restored.train(samples[1], 7)
    restored.load_state_dict(trainer.state_dict())
    assert restored.train(samples[1], 1) == trainer.train(samples[1], 1)
    assert plain.weights_sha256(restored.model) == plain.weights_sha256(trainer.model)


def test_the_engine_starts_from_the_trainers_weights_under_the_same_names():
    weights = grpo.bf16_weights(grpo.Trainer(TINY).model)
    engine = grpo.RolloutEngine(TINY)
    held = dict(engine.model.named_parameters())
    assert held.keys() == weights.keys()
    assert {parameter.dtype for parameter in held.values()} == {torch.float32}
    assert all(torch.equal(held[name], weights[name].float()) for name in weights)
    assert engine.model.lm_head.weight is engine.model.model.embed_tokens.weight
    assert "lm_head.weight" not in held


def test_log_probs_recorded_at_sampling_in_bf16_match_one_forward_pass():
    config = replace(TINY, seed=3)
    engine = grpo.RolloutEngine(config)
    engine.model.bfloat16()
    rollout = engine.generate(draw_prompts(config.num_prompts, 3, 0), 0)
    with torch.no_grad():
        in_bf16 = grpo.response_log_probs(engine.model, rollout.prompt_ids, rollout.response_ids)
        engine.model.float()
        in_fp32 = grpo.response_log_probs(engine.model, rollout.prompt_ids, rollout.response_ids)
    torch.testing.assert_close(rollout.log_probs, in_bf16, rtol=0, atol=2e-2)
    torch.testing.assert_close(rollout.log_probs, in_fp32, rtol=0, atol=2e-2)


def test_log_probs_decoded_in_fp32_match_one_forward_pass_to_rounding():
    engine = grpo.RolloutEngine(TINY)
    rollout = engine.generate(draw_prompts(TINY.num_prompts, TINY.seed, 0), 0)
    with torch.no_grad():
        expected = grpo.response_log_probs(engine.model, rollout.prompt_ids, rollout.response_ids)
    torch.testing.assert_close(rollout.log_probs, expected, rtol=0, atol=1e-5)


def test_a_rollout_depends_on_the_iteration_and_not_on_rollouts_before_it():
    engine = grpo.RolloutEngine(TINY)
    prompts = draw_prompts(TINY.num_prompts, TINY.seed, 0)
    first, second = engine.generate(prompts, 0), engine.generate(prompts, 1)
    again = engine.generate(prompts, 0)
    assert torch.equal(again.response_ids, first.response_ids)
    assert torch.equal(again.log_probs, first.log_probs)
    assert not torch.equal(second.response_ids, first.response_ids)


def test_a_rollout_keeps_the_samples_of_a_prompt_side_by_side():
    rollout = rollout_of(TINY)
    prompts = draw_prompts(TINY.num_prompts, TINY.seed, 0)
    assert rollout.prompt_ids.tolist() == [prompt for prompt in prompts for _ in range(TINY.group_size)]
    assert rollout.response_ids.shape == rollout.log_probs.shape == (64, 8)


def test_progress_counts_responses_and_tokens_up_to_the_whole():
    config = replace(TINY, num_prompts=1, group_size=4, response_length=2, max_running_sequences=3)
    reports: list[grpo.Progress] = []
    grpo.RolloutEngine(config).generate(draw_prompts(1, 0, 0), 0, reports.append)
    assert reports == [
        grpo.Progress(finished=0, total=4, tokens=3),
        grpo.Progress(finished=3, total=4, tokens=6),
        grpo.Progress(finished=3, total=4, tokens=7),
        grpo.Progress(finished=4, total=4, tokens=8),
    ]


def test_advantages_are_rewards_normalised_within_their_group():
    rewards = torch.tensor([0.0, 1.0, 0.5, 0.5, 0.25, 0.75])
    advantages = grpo.group_advantages(rewards, group_size=2)
    torch.testing.assert_close(advantages, torch.tensor([-1.0, 1.0, 0.0, 0.0, -1.0, 1.0]), rtol=0, atol=1e-5)


def test_the_loss_clips_only_a_ratio_that_has_gone_far_enough():
    log_probs = torch.tensor([[1.5, 1.0], [0.5, 1.5]]).log()
    loss, clipped_fraction = grpo.clipped_loss(log_probs, torch.zeros(2, 2), torch.tensor([1.0, -2.0]), 0.25)
    terms = [1.25, 1.0, 0.75 * -2, 1.5 * -2]
    assert loss.item() == pytest.approx(-sum(terms) / 4)
    assert clipped_fraction.item() == 0.75


def test_the_reward_is_the_fraction_of_tokens_that_count_up():
    start, plus = VOCABULARY.index("<s>"), VOCABULARY.index("+")
    prompt = [start, 7, 8, 9]
    assert reward(prompt, [0, 1, 2, 3]) == 1.0
    assert reward(prompt, [0, 5, 6, 6]) == 0.5
    assert reward(prompt, [plus, 1, 2, plus]) == 0.25
    assert reward(prompt, [9, start, plus, 0]) == 0.0


def test_prompts_follow_from_seed_and_iteration():
    prompts = draw_prompts(num_prompts=50, seed=0, iteration=3)
    assert prompts == draw_prompts(num_prompts=50, seed=0, iteration=3)
    assert prompts != draw_prompts(num_prompts=50, seed=0, iteration=4)
    assert prompts != draw_prompts(num_prompts=50, seed=1, iteration=3)
    assert {prompt[0] for prompt in prompts} == {VOCABULARY.index("<s>")}
    assert all(reward(prompt[:2], prompt[2:]) == 1.0 for prompt in prompts)


def test_no_gradients_are_held_between_iterations():
    trainer = grpo.Trainer(TINY)
    trainer.train(grpo.score(rollout_of(TINY), reward), 0)
    assert all(parameter.grad is None for parameter in trainer.model.parameters())


def test_the_policy_learns_to_count():
    config = replace(
        TINY,
        iterations=12,
        hidden_size=64,
        num_prompts=32,
        group_size=16,
        response_length=12,
        num_minibatches=16,
        max_running_sequences=512,
        learning_rate=2e-3,
    )
    iterations, _ = plain.run(config)
    assert iterations[-1].mean_reward - iterations[0].mean_reward > 0.5


def test_minibatches_that_do_not_divide_the_samples_are_refused():
    with pytest.raises(ValueError, match="num_minibatches is 5, which does not divide the 64 samples"):
        replace(TINY, num_minibatches=5)
