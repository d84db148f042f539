"""Estimates against numbers worked out by hand, and against the traces' jobs."""

import csv
from collections import defaultdict
from statistics import median

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared_data import TRACES
from weaverl.domain.units import GIB
from weaverl.errors import UsageError
from weaverl.simulation.costs import Costs
from weaverl.simulation.estimate import Estimate, estimate
from weaverl.simulation.estimate_inputs import Efficiencies, Workload
from weaverl.simulation.hardware import GpuKind, gpu_kind
from weaverl.simulation.models import ModelShape, model_shape

PERFECT = Efficiencies(
    bandwidth=1.0,
    decode_flops=1.0,
    prefill_flops=1.0,
    training_flops=1.0,
    log_prob_flops=1.0,
    step_overhead_seconds=0.0,
    all_reduce_seconds=0.0,
    usable_memory=1.0,
    weights_share=1.0,
)
PLAIN = ModelShape("plain", 1.0, 1, 0, 1, 1)
"""A billion parameters, no attention to speak of, 4 bytes of keys and values a token."""
GPU = GpuKind("test", 1000.0, 1.0, 100.0)


def workload(**changes: object) -> Workload:
    plain = Workload(
        model=PLAIN,
        max_tokens=1000,
        mean_tokens=100.0,
        rollout_gpu=GPU,
        training_gpu=GPU,
        rollout_gpus=1,
        training_gpus=1,
        prompt_tokens=100,
        prompts=1,
        samples=10,
    )
    return msgspec.structs.replace(plain, **changes)


def estimated(work: Workload, efficiencies: Efficiencies = PERFECT) -> Estimate:
    return estimate(work, efficiencies, Costs())


def value(found: Estimate, name: str) -> float:
    return next(term.value for term in found.terms if term.name == name)


def test_a_decode_step_reads_all_weights_once_so_a_thousand_take_two_seconds():
    found = estimated(workload())
    assert value(found, "decode to the cap") == pytest.approx(1000 * 2e9 / 1e12, rel=1e-4)


def test_a_large_batch_is_bound_by_compute():
    found = estimated(workload(prompts=1000, samples=10, max_tokens=101, mean_tokens=100.0, length_cv=0.001))
    step = 10_000 * 2 * 1e9 / 1e15
    assert value(found, "decode step, all responses") == pytest.approx(step * 1e3)
    assert value(found, "decode to the cap") == pytest.approx(101 * step, rel=0.02)


def test_prompts_are_read_once_for_all_their_samples():
    assert value(estimated(workload(prompts=50, samples=20)), "prefill") == pytest.approx(50 * 100 * 2e9 / 1e15)


def test_training_takes_eight_flops_a_parameter_and_token_and_two_a_log_probability_pass():
    found = estimated(workload(length_cv=0.1))
    tokens = 10 * (100 + 100)
    assert value(found, "tokens") == pytest.approx(tokens)
    assert value(found, "update") == pytest.approx(8 * 1e9 * tokens / 1e15)
    assert value(found, "log-probabilities") == pytest.approx(2 * 2 * 1e9 * tokens / 1e15)
    assert found.profile.training_seconds == pytest.approx(12 * 1e9 * tokens / 1e15)


def test_without_recomputation_it_takes_six():
    with_it, without = (value(estimated(workload(recompute=recompute)), "update") for recompute in (True, False))
    assert without / with_it == pytest.approx(6 / 8)


def test_attention_adds_to_the_flops_of_long_contexts():
    wide = msgspec.structs.replace(PLAIN, layers=10, attention_width=1000)
    plain, attending = (value(estimated(workload(model=m, length_cv=0.1)), "update") for m in (PLAIN, wide))
    assert attending / plain == pytest.approx(1 + 4 * 10 * 1000 * 100 / 2e9, rel=1e-3)


def test_turns_add_waits_and_the_tokens_of_the_environment():
    found = estimated(workload(turns=4, turn_seconds=3.0, turn_tokens=50, length_cv=0.1))
    assert value(found, "environment") == 9.0
    assert value(found, "tokens") == pytest.approx(10 * (100 + 100 + 150))


def test_responses_that_the_cache_does_not_hold_wait():
    work = workload(rollout_gpu=msgspec.structs.replace(GPU, memory_gb=2.0 + 11e-6), length_cv=0.1)
    # Room for 11 kB: 13.75 responses of 200 tokens at 4 bytes.
    assert value(estimated(work), "waiting for cache") == 0.0
    waiting = value(estimated(msgspec.structs.replace(work, samples=20)), "waiting for cache")
    assert waiting == pytest.approx((20 - 13.75) * 100 / 13.75 * 2e-3, rel=1e-3)


def test_the_mean_rollout_ends_with_the_longest_response():
    one, many = (estimated(workload(samples=samples)).profile for samples in (1, 1000))
    assert one.rollout_mean_seconds == pytest.approx(0.2, rel=0.05)
    assert one.rollout_cv == pytest.approx(0.5, rel=0.05)
    assert many.rollout_mean_seconds > 3 * one.rollout_mean_seconds
    assert many.rollout_cv < one.rollout_cv / 2


def test_tensor_parallelism_leaves_three_quarters_of_the_memory_to_the_cache():
    sizes = {"3": 1, "7": 1, "8": 1, "14": 2, "32": 4}
    h20, h800 = gpu_kind("h20"), gpu_kind("H800")
    for size, parallel in sizes.items():
        work = workload(model=model_shape(size), rollout_gpu=h20, training_gpu=h800, rollout_gpus=8, training_gpus=8)
        assert estimated(work, Efficiencies()).tensor_parallel == parallel


def test_host_memory_is_weights_staging_optimizer_state_and_processes():
    work = workload(model=model_shape("7"), rollout_gpus=8, training_gpus=16, rollout_gpu=gpu_kind("H20"))
    memory = estimated(work, Efficiencies()).host_memory
    weights = 7e9 * 2 / GIB
    assert memory.rollout_bytes / GIB == pytest.approx(9 * weights + 60)
    assert memory.training_bytes / GIB == pytest.approx(9 * weights / 2 + 80)


REFUSED = {
    "training": ({"model": model_shape("70")}, "70B .* does not fit 1 test for training: 1120.0 GB"),
    "rollout": (
        {"model": model_shape("70"), "training_gpus": 64},
        "does not fit 1 test for rollout: 140.0 GB of weights",
    ),
    "mean above the cap": ({"mean_tokens": 1000.0}, "mean length 1000 is not between 0 and the cap of 1000"),
    "not a number": ({"mean_tokens": float("nan")}, "mean length nan"),
    "parallelism": ({"rollout_gpus": 6, "tensor_parallel": 4}, "tensor parallelism 4 does not divide 6"),
}


@pytest.mark.parametrize(("changes", "message"), REFUSED.values(), ids=REFUSED)
def test_what_does_not_fit_is_refused_with_its_numbers(changes: dict[str, object], message: str):
    with pytest.raises(UsageError, match=message):
        estimated(workload(**changes))


def test_a_model_is_known_by_its_name_on_the_hub_or_by_its_size():
    assert model_shape("Qwen/Qwen2.5-7B-Instruct") == model_shape("qwen2.5-7b")
    assert model_shape("14B").billions == 14.0
    assert model_shape("0.5").name == "0.5B (shape of Qwen2.5-0.5B)"
    assert model_shape("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B").billions == 7.0
    for wrong in ("", "nan", "-7", "gpt", "0", "Qwen3-30B-A3B", "Mixtral-8x7B"):
        with pytest.raises(UsageError, match="is not known"):
            model_shape(wrong)


@settings(max_examples=30, deadline=None)
@given(cap=st.integers(500, 30_000), share=st.floats(0.05, 0.9), gpus=st.sampled_from((1, 2, 4)), size=st.floats(1, 7))
def test_more_tokens_take_longer_and_more_gpus_do_not(cap: int, share: float, gpus: int, size: float):
    work = workload(
        model=model_shape(f"{size}"), max_tokens=cap, mean_tokens=cap * share, rollout_gpus=gpus, training_gpus=8
    )
    here = estimated(work, Efficiencies()).profile
    longer = msgspec.structs.replace(work, max_tokens=2 * cap, mean_tokens=2 * cap * share)
    assert here.rollout_mean_seconds <= here.rollout_max_seconds
    assert estimated(longer, Efficiencies()).profile.rollout_max_seconds > here.rollout_max_seconds
    assert estimated(longer, Efficiencies()).profile.training_seconds > here.training_seconds
    more = msgspec.structs.replace(work, rollout_gpus=2 * gpus, tensor_parallel=1)
    fixed = msgspec.structs.replace(work, tensor_parallel=1)
    assert (
        estimated(more, Efficiencies()).profile.rollout_max_seconds
        <= estimated(fixed, Efficiencies()).profile.rollout_max_seconds
    )


@pytest.mark.skipif(not TRACES.is_dir(), reason=f"needs the traces in {TRACES}")
def test_defaults_are_near_the_jobs_of_the_traces():
    rows = [row for path in sorted(TRACES.glob("production-200-s?.csv")) for row in csv.DictReader(path.open())]
    ratios: dict[str, list[float]] = defaultdict(list)
    estimates: dict[tuple[str, ...], Estimate] = {}
    for row in (row for row in rows if row["turns"] == "1"):
        kind = tuple(row[name] for name in ("model_b", "max_tokens", "rollout_gpus", "training_gpus"))
        found = estimates.setdefault(kind, estimates.get(kind) or of_trace(*kind))
        ratios["rollout"].append(found.profile.rollout_max_seconds / float(row["rollout_max_s"]))
        ratios["mean"].append(found.profile.rollout_mean_seconds / float(row["rollout_mean_s"]))
        ratios["training"].append(found.profile.training_seconds / float(row["training_s"]))
        ratios["training host"].append(found.host_memory.training_bytes / GIB / float(row["training_host_gib"]))
        ratios["rollout host"].append(found.host_memory.rollout_bytes / GIB / float(row["rollout_host_gib"]))
    assert len(ratios["rollout"]) > 200
    assert all(0.75 < ratio < 1.4 for ratio in ratios["rollout"])
    assert 0.75 < median(ratios["mean"]) < 1.25
    assert 0.5 < median(ratios["training"]) < 1.5
    assert all(ratio == pytest.approx(1.0, abs=0.001) for ratio in ratios["training host"])
    assert all(1.0 < ratio < 1.35 for ratio in ratios["rollout host"])


def of_trace(model: str, max_tokens: str, rollout_gpus: str, training_gpus: str) -> Estimate:
    work = Workload(
        model=model_shape(model),
        max_tokens=int(max_tokens),
        mean_tokens=int(max_tokens) / 5,
        rollout_gpu=gpu_kind("H20"),
        training_gpu=gpu_kind("H800"),
        rollout_gpus=int(rollout_gpus),
        training_gpus=int(training_gpus),
    )
    return estimated(work, Efficiencies())
