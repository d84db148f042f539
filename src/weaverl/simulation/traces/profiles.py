"""Synthetic RL jobs: how large a model is trained, how long its phases take, how much host memory it wants.

Every distribution is in ``docs/traces.md``; they are fitted to the published marginals (WEAVE, OSDI 2026: models of
3B to 32B, responses capped at 4K to 32K tokens, mostly 8 + 8 GPUs, SLO uniform on (1, 2)).
"""

import msgspec

from weaverl.simulation.costs import Costs, sync_seconds
from weaverl.simulation.traces.draws import Draws
from weaverl.simulation.traces.records import TraceJob

NUM_TENANTS = 6
TWO_NODES_SHARE = 0.6
SINGLE_TURN_SHARE = 2 / 3
MULTI_TURN_STRETCH = (1.3, 1.8)
MAX_TOKENS = {4096: 0.22, 8192: 0.32, 16384: 0.30, 32768: 0.16}
MEAN_OF_MAX = (0.62, 0.95)
TRAINING_OF_MEAN = (0.27, 1.14)
CV = (0.05, 0.20)
P80 = (0.40, 0.70)
SLO = (1.0, 2.0)
_GIB = 2.0**30
_DECIMALS = 6


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """A model size: how often it is drawn, milliseconds a decode step, GPUs that one copy for rollout takes."""

    share: float
    step_ms: float
    tensor_parallel: int


MODELS = {
    3: Model(share=0.12, step_ms=9.0, tensor_parallel=1),
    7: Model(share=0.30, step_ms=13.0, tensor_parallel=1),
    8: Model(share=0.22, step_ms=14.0, tensor_parallel=1),
    14: Model(share=0.24, step_ms=17.0, tensor_parallel=2),
    32: Model(share=0.12, step_ms=22.0, tensor_parallel=4),
}
_SHARES = {billions: model.share for billions, model in MODELS.items()}


def draw_job(draws: Draws, costs: Costs) -> TraceJob:
    """A job without name, arrival and length: one iteration from second 0 on."""
    billions = draws.choice(_SHARES)
    model = MODELS[billions]
    nodes = 2 if billions == 32 and draws.unit() < TWO_NODES_SHARE else 1
    max_tokens = draws.choice(MAX_TOKENS)
    turns = 1 if draws.unit() < SINGLE_TURN_SHARE else int(draws.uniform(3, 9))
    stretch = draws.uniform(*MULTI_TURN_STRETCH) if turns > 1 else 1.0
    rollout_max = max_tokens * model.step_ms / 1000 * stretch
    rollout_mean = rollout_max * draws.uniform(*MEAN_OF_MAX)
    return TraceJob(
        job_id="",
        tenant=f"t{int(draws.uniform(0, NUM_TENANTS))}",
        arrival_seconds=0.0,
        iterations=1,
        model_billions=float(billions),
        max_tokens=max_tokens,
        turns=turns,
        rollout_gpus=nodes * costs.gpus_per_node,
        training_gpus=nodes * costs.gpus_per_node,
        rollout_max_seconds=round(rollout_max, _DECIMALS),
        rollout_mean_seconds=round(rollout_mean, _DECIMALS),
        rollout_cv=round(draws.uniform(*CV), _DECIMALS),
        rollout_p80=round(draws.uniform(*P80), _DECIMALS),
        training_seconds=round(rollout_mean * draws.log_uniform(*TRAINING_OF_MEAN), _DECIMALS),
        sync_gib=round(weights_gib(billions), _DECIMALS),
        rollout_host_gib=round(rollout_host_gib(billions, model.tensor_parallel, costs.gpus_per_node), _DECIMALS),
        training_host_gib=round(training_host_gib(billions, nodes), _DECIMALS),
        slo=round(draws.uniform(*SLO), _DECIMALS),
    )


def solo_iteration_seconds(job: TraceJob, costs: Costs) -> float:
    """Mean time of an iteration alone: rollout, training and one copy of the weights over the slow link."""
    return job.rollout_mean_seconds + job.training_seconds + sync_seconds(costs, job.sync_gib)


def weights_gib(billions: float) -> float:
    """One copy of the weights in bf16: 2 bytes a parameter."""
    return billions * 2e9 / _GIB


def rollout_host_gib(billions: float, tensor_parallel: int, gpus_per_node: int) -> float:
    """Host memory on a rollout node: one copy of the weights for each engine on it, and 60 GiB for their processes."""
    return 60.0 + weights_gib(billions) * gpus_per_node / tensor_parallel


def training_host_gib(billions: float, nodes: int) -> float:
    """Host memory on a training node: 18 bytes a parameter, sharded over the nodes, and 80 GiB for the processes.

    18 bytes: bf16 weights (2), fp32 gradients (4), and of the optimizer an fp32 copy and two Adam moments (12).
    """
    return 80.0 + billions * 18e9 / _GIB / nodes
