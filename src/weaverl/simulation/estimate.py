"""An analytic profile for a job that nobody has measured: phase times and host memory by roofline.

``docs/model.md`` has the formulas with their sources, and how far off they are. Every efficiency is a parameter, and
every term of the result shows the numbers that went into it.
"""

from math import ceil

import msgspec

from weaverl.domain.jobs import HostMemory, PhaseProfile
from weaverl.domain.units import GIB
from weaverl.errors import UsageError
from weaverl.simulation.costs import Costs, for_model, sync_seconds
from weaverl.simulation.estimate_inputs import Efficiencies, Term, Workload, mean_length
from weaverl.simulation.estimate_rollout import Rollout, smallest_parallel
from weaverl.simulation.hardware import GpuKind
from weaverl.simulation.models import ModelShape


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """The profile and host memory of a job, switch and cold start times, and every term behind them."""

    profile: PhaseProfile
    host_memory: HostMemory
    cold_start_seconds: float
    tensor_parallel: int
    terms: tuple[Term, ...]
    workload: Workload
    efficiencies: Efficiencies
    link_gbps: float


def estimate(workload: Workload, efficiencies: Efficiencies, costs: Costs) -> Estimate:
    """The estimate of a workload. Raises UsageError if the model does not fit the GPUs, or a number has no sense."""
    _check(workload, efficiencies)
    rollout = Rollout(workload, efficiencies)
    training, training_terms = _training(workload, efficiencies)
    gib = workload.model.weight_bytes / GIB
    sync = sync_seconds(costs, gib)
    sync_term = Term("sync", sync, "s", f"{gib:.1f} GiB over {costs.link_gbps:g} Gbps x {costs.sync_overhead:g}")
    memory, memory_terms = _host_memory(workload, efficiencies, costs, rollout.tensor_parallel)
    billions = workload.model.billions
    cold = for_model(costs.cold_start_seconds, billions)
    profile = PhaseProfile(
        rollout_max_seconds=rollout.at_cap,
        rollout_mean_seconds=rollout.mean,
        rollout_cv=rollout.cv,
        training_seconds=training,
        sync_seconds=sync,
        other_seconds=workload.other_seconds,
        rollout_switch_seconds=for_model(costs.rollout_switch_seconds, billions),
        training_switch_seconds=for_model(costs.training_switch_seconds, billions),
    )
    return Estimate(
        profile=profile,
        host_memory=memory,
        cold_start_seconds=cold,
        tensor_parallel=rollout.tensor_parallel,
        terms=(*rollout.terms, *training_terms, sync_term, *memory_terms, *_start_terms(profile, cold, billions)),
        workload=workload,
        efficiencies=efficiencies,
        link_gbps=costs.link_gbps,
    )


def _training(workload: Workload, share: Efficiencies) -> tuple[float, tuple[Term, ...]]:
    """Seconds of log-probabilities and updates, with their terms."""
    model, gpu = workload.model, workload.training_gpu
    added = (workload.turns - 1) * workload.turn_tokens
    length = workload.prompt_tokens + mean_length(workload) + added
    tokens = workload.responses * length
    passes = 8 if workload.recompute else 6
    forward = tokens * (2 * model.parameters + model.attention_flops_per_token(length / 2))
    rate = workload.training_gpus * gpu.bf16_tflops * 1e12
    update = workload.epochs * forward * passes / 2 / (rate * share.training_flops)
    log_probs = workload.log_prob_passes * forward / (rate * share.log_prob_flops)
    cluster = f"{workload.training_gpus} {gpu.name} x {gpu.bf16_tflops:g} TFLOPS"
    recompute = " with recomputation" if workload.recompute else ""
    return update + log_probs, (
        Term(
            "tokens",
            tokens,
            "",
            f"{workload.responses} x ({workload.prompt_tokens} in the prompt + {length - workload.prompt_tokens:.0f})",
        ),
        Term(
            "log-probabilities",
            log_probs,
            "s",
            f"{workload.log_prob_passes} passes x (2 x {model.billions:.1f}e9 x tokens + attention) / ({cluster} x "
            f"{share.log_prob_flops:g})",
        ),
        Term(
            "update",
            update,
            "s",
            f"{workload.epochs} x ({passes} x {model.billions:.1f}e9 x tokens{recompute} + attention) / ({cluster} x "
            f"{share.training_flops:g})",
        ),
        Term("training", update + log_probs, "s", "log-probabilities + update"),
    )


def host_memory_of(model: ModelShape, rollout_gpus: int, training_gpus: int, gpu: GpuKind, costs: Costs) -> HostMemory:
    """Host memory of a job of which only the model and its GPUs are known; ``gpu`` is the rollout pool's."""
    shape = Workload(
        model=model,
        max_tokens=2,
        mean_tokens=1.0,
        rollout_gpu=gpu,
        training_gpu=gpu,
        rollout_gpus=rollout_gpus,
        training_gpus=training_gpus,
    )
    share = Efficiencies()
    return _host_memory(shape, share, costs, smallest_parallel(shape, share))[0]


def _host_memory(
    workload: Workload, share: Efficiencies, costs: Costs, tensor_parallel: int
) -> tuple[HostMemory, tuple[Term, ...]]:
    """What one node of each pool keeps, with its terms."""
    gib = workload.model.weight_bytes / GIB
    there = min(workload.rollout_gpus, costs.gpus_per_node)
    copies = max(there / tensor_parallel, 1.0)
    rollout = gib * (copies + share.staging_copies) + there * share.rollout_resident_gib_per_gpu
    nodes = ceil(workload.training_gpus / costs.gpus_per_node)
    on_node = min(workload.training_gpus, costs.gpus_per_node)
    state = workload.model.parameters * share.host_bytes_per_parameter / GIB
    training = state / nodes + on_node * share.training_resident_gib_per_gpu
    memory = HostMemory(rollout_bytes=ceil(rollout * GIB), training_bytes=ceil(training * GIB))
    return memory, (
        Term(
            "host memory, rollout node",
            rollout,
            "GiB",
            f"{gib:.1f} GiB x ({copies:g} replicas + {share.staging_copies:g} staging) + {there} processes x "
            f"{share.rollout_resident_gib_per_gpu:g} GiB",
        ),
        Term(
            "host memory, training node",
            training,
            "GiB",
            f"{workload.model.billions:.1f}e9 x {share.host_bytes_per_parameter:g} bytes / {nodes} node(s) + {on_node} "
            f"processes x {share.training_resident_gib_per_gpu:g} GiB",
        ),
    )


def _start_terms(profile: PhaseProfile, cold: float, billions: float) -> tuple[Term, ...]:
    size = f"published for 7B to 70B, linear in size, at {billions:.1f}B"
    rollout, training = profile.rollout_switch_seconds, profile.training_switch_seconds
    assert rollout is not None and training is not None
    return (
        Term("switch, rollout", rollout, "s", size),
        Term("switch, training", training, "s", size),
        Term("cold start", cold, "s", size),
    )


def _check(workload: Workload, share: Efficiencies) -> None:
    gpu, model = workload.training_gpu, workload.model
    needs = model.parameters * share.device_bytes_per_parameter / workload.training_gpus / 1e9
    usable = gpu.memory_gb * share.usable_memory
    if needs > usable:
        raise UsageError(
            f"{model.name} does not fit {workload.training_gpus} {gpu.name} for training: {needs:.1f} GB of "
            f"parameters, gradients and optimizer state each, {usable:.1f} GB usable; give more --training-gpus"
        )
    if not 0 < workload.mean_tokens < workload.max_tokens:
        raise UsageError(
            f"mean length {workload.mean_tokens:g} is not between 0 and the cap of {workload.max_tokens}: "
            f"give a --mean-tokens below --max-tokens"
        )
