"""Small traces with round numbers."""

from weaverl.simulation.costs import Costs
from weaverl.simulation.traces.records import Trace, TraceJob

FREE = Costs(
    rollout_switch_seconds=(0.0, 0.0),
    training_switch_seconds=(0.0, 0.0),
    cold_start_seconds=(0.0, 0.0),
    tail_migration=False,
)
"""Nothing costs time but the phases."""


def row(name="a", *, at=0.0, iterations=2, rollout=100.0, training=50.0, slo=2.0, **more) -> TraceJob:
    """One job; with the default `sync_gib` a sync takes no time."""
    fields = {
        "tenant": "t0",
        "model_billions": 7.0,
        "max_tokens": 4096,
        "turns": 1,
        "rollout_gpus": 8,
        "training_gpus": 8,
        "rollout_max_seconds": rollout,
        "rollout_mean_seconds": rollout,
        "rollout_cv": 0.0,
        "rollout_p80": 0.5,
        "sync_gib": 0.0,
        "rollout_host_gib": 100.0,
        "training_host_gib": 100.0,
    }
    return TraceJob(
        job_id=name, arrival_seconds=at, iterations=iterations, training_seconds=training, slo=slo, **(fields | more)
    )


def trace(*jobs: TraceJob) -> Trace:
    return Trace(name="small", jobs=jobs)
