"""Small mixes of jobs made by hand, in the kinds that the source names; their durations are ours."""

from weaverl.simulation.traces.records import Trace, TraceJob

_GIB_PER_BILLION = 1.8627
"""bf16: two bytes a parameter."""


def mixes(iterations: int) -> tuple[Trace, ...]:
    """Two or three jobs each: phases that take turns, three rollout-heavy jobs, a large job beside two small ones."""
    return (
        Trace(
            name="time multiplexing",
            jobs=(
                _job("a", 7, 210.0, 190.0, iterations),
                _job("b", 14, 205.0, 200.0, iterations, place=1),
            ),
        ),
        Trace(
            name="rollout-heavy",
            jobs=tuple(
                _job(name, model, rollout, training, iterations, place=place)
                for place, (name, model, rollout, training) in enumerate(
                    (("a", 8, 330.0, 110.0), ("b", 14, 360.0, 115.0), ("c", 14, 345.0, 105.0))
                )
            ),
        ),
        Trace(
            name="spatial",
            jobs=(
                _job("large", 32, 300.0, 280.0, iterations, gpus=16),
                _job("small-a", 7, 258.0, 290.0, iterations, place=1),
                _job("small-b", 8, 255.0, 285.0, iterations, place=2),
            ),
        ),
    )


def careless_pair(iterations: int) -> Trace:
    """Two rollout-heavy jobs that accept any slowdown, so that admission puts both on one node a pool."""
    return Trace(
        name="two rollout-heavy jobs",
        jobs=(
            _job("a", 14, 400.0, 105.0, iterations, slo=10.0),
            _job("b", 8, 330.0, 100.0, iterations, slo=10.0, place=1),
        ),
    )


def tail_pairs(iterations: int) -> tuple[Trace, ...]:
    """Pairs that share one rollout node which is their bottleneck, with earlier and later tails."""
    return tuple(
        Trace(
            name=f"80 % done at {p80:g} of the rollout",
            jobs=(
                _job("a", 14, 300.0, 100.0, iterations, slo=10.0, p80=p80),
                _job("b", 8, 280.0, 100.0, iterations, slo=10.0, p80=p80, place=1),
            ),
        )
        for p80 in (0.4, 0.5, 0.6, 0.7, 0.8)
    )


def switching_pair(iterations: int) -> Trace:
    """Two jobs of short phases on one node a pool, where each phase begins with a switch."""
    return Trace(
        name="two jobs of short phases",
        jobs=(
            _job("a", 32, 150.0, 140.0, iterations, slo=10.0),
            _job("b", 32, 145.0, 150.0, iterations, slo=10.0, place=1),
        ),
    )


def _job(
    name: str,
    model: float,
    rollout: float,
    training: float,
    iterations: int,
    *,
    place: int = 0,
    gpus: int = 8,
    slo: float = 1.25,
    p80: float = 0.55,
) -> TraceJob:
    """A job whose cap is 15 % above its mean rollout."""
    return TraceJob(
        job_id=name,
        tenant="lab",
        arrival_seconds=60.0 * place,
        iterations=iterations,
        model_billions=model,
        max_tokens=16384,
        turns=1,
        rollout_gpus=gpus,
        training_gpus=gpus,
        rollout_max_seconds=rollout * 1.15,
        rollout_mean_seconds=rollout,
        rollout_cv=0.08,
        rollout_p80=p80,
        training_seconds=training,
        sync_gib=_GIB_PER_BILLION * model,
        rollout_host_gib=160.0,
        training_host_gib=320.0,
        slo=slo,
    )
