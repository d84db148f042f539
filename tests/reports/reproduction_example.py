"""A reproduction whose figures are made up, to draw and to write."""

import math

from reports.hand import interval
from weaverl.domain.cluster import Slot
from weaverl.simulation.outcome import ByPhase, ByPool, Outcome
from weaverl.simulation.reproduction.records import (
    CostStep,
    DecisionPoint,
    Drift,
    Excerpt,
    Point,
    Reproduction,
    Result,
    Row,
    Sweep,
)

NODES = {"large": (Slot("r0", 0), Slot("r1", 0)), "small": (Slot("r1", 0),)}
COSTS = {"solo": 900.0, "colocated": 690.0, "gavel": 800.0, "weave-paper": 660.0}


def outcome(policy, trace, usd_per_hour, hours=370.0):
    return Outcome(
        trace=trace,
        policy=policy,
        seed=0,
        usd=usd_per_hour * hours,
        usd_per_hour=usd_per_hour,
        hours=hours,
        bound_multiple=usd_per_hour / 330,
        bound_multiple_without_tail=None,
        bound_multiple_with_tail=None,
        slo_attainment=0.97,
        slowdown=None,
        worst_window=None,
        peak_gpus=ByPool(0.0 if policy == "colocated" else usd_per_hour / 3, usd_per_hour / 3.2),
        mean_gpus=ByPool(0.0, 0.0),
        bubbles=ByPool(usd_per_hour / 1500, usd_per_hour / 1300),
        interference=ByPhase(1.0, 1.0),
        moves=0,
        retries=0,
        decision_ms=None,
        jobs=200,
        jobs_admitted=200,
        jobs_finished=200,
        refused={},
        unfinished=[],
        wait_hours=None,
        completion_hours=None,
        tenants={},
        fairness=None,
        audited=None,
        parameters={},
    )


def result(policy, trace, usd_per_hour):
    jobs = range(200)
    slos = tuple(1.005 + 0.99 * job / 200 for job in jobs)
    slowed = 0.0 if policy == "solo" else 0.6
    slowdowns = tuple(
        1 + slowed * (slo - 1) * (0.5 + 0.9 * abs(math.sin(job))) for job, slo in zip(jobs, slos, strict=True)
    )
    steps = tuple(
        CostStep(
            hours=hour,
            rollout_usd_per_hour=0.0 if policy == "colocated" else usd_per_hour * 0.3 * (1 + math.sin(hour / 40)),
            training_usd_per_hour=usd_per_hour * 0.7 * (1 + math.sin(hour / 30) / 2),
        )
        for hour in range(0, 370, 2)
    )
    return Result(
        study="two-week replay",
        outcome=outcome(policy, trace, usd_per_hour),
        slowdowns=slowdowns,
        slos=slos,
        steps=steps,
    )


def row(key, section, what, low=None, high=None, values=None):
    return Row(
        key=key,
        section=section,
        what=what,
        published=f"{low} to {high}",
        ours=str(values),
        differs="Everything: these figures are made up.",
        values=values or {},
        low=low,
        high=high,
    )


def sweep(key, values, *, logarithmic=False, standard=None):
    points = tuple(
        Point(value=value, solo_ratio=0.95 + 0.1 * place, colocated_ratio=0.8 + 0.1 * place, slo_attainment=1.0)
        for place, value in enumerate(values)
    )
    answer = "Starts to pay between 2 and 4: least 0.80x at 1, most 1.40x at 64."
    return Sweep(
        key=key,
        title=key,
        axis=f"{key} of jobs",
        points=points,
        answer=answer,
        standard=standard,
        logarithmic=logarithmic,
    )


def excerpt():
    rounds = []
    for turn in range(8):
        at = 400.0 * turn
        for job, start in (("large", at), ("small", at + 200)):
            rounds.append(interval(job, "rollout", turn, start + 2, start + 198, granted=start, slots=NODES[job]))
            rounds.append(interval(job, "training", turn, start + 204, start + 380))
    return Excerpt(
        title="Two jobs in one group", jobs=("large", "small"), intervals=tuple(rounds), start_us=int(400e6), minutes=30
    )


def reproduction():
    return Reproduction(
        rows=(
            row("cost", "two-week replay", "Cost, Solo-D over WEAVE", 1.84, 1.84, {"s0": 1.37, "s1": 1.31}),
            row("mix", "sharing", "Throughput at equal cost over Solo-D", 1.82, 1.99, {"a": 1.7, "b": 1.8}),
            row("sync", "mechanisms", "Two-level sync over flat, 8 to 8 GPUs", 7.87, 8.33, {"a": 7.6, "b": 8.0}),
            row("philly", "scheduler", "300 Philly arrivals: cost over the optimum", 1.01, 1.12, {"a": 1.05}),
        ),
        replay={
            policy: tuple(result(policy, f"s{seed}", usd * (1 + seed / 50)) for seed in range(3))
            for policy, usd in COSTS.items()
        },
        mixes={
            mix: {"solo": 1.7, "gavel": 1.5, "colocated": 1.3}
            for mix in ("time multiplexing", "rollout-heavy", "spatial")
        },
        drifts=tuple(
            Drift(kind=kind, over_ideal=1.12, slo_attainment=0.97) for kind in ("increasing", "decreasing", "mixed")
        ),
        sweeps=(
            sweep("jobs", (1, 2, 4, 10, 50), logarithmic=True),
            sweep("price", (1, 2, 3, 4, 5), standard=2.85),
            sweep("memory", (512, 1024, 2048), standard=1536),
            sweep("slo", (1.0, 1.5, 2.0)),
            sweep("switch", (0.1, 1, 10), logarithmic=True, standard=1),
        ),
        decisions=tuple(
            DecisionPoint(jobs=jobs, p50_ms=0.2 + jobs / 2000, p99_ms=0.5 + jobs / 1500)
            for jobs in (10, 100, 1000, 10_000, 100_000)
        ),
        excerpt=excerpt(),
        parameters={"traces": "made up"},
        machine={"cores": 2},
        quick=True,
        confirmed=12,
        refuted=(),
    )
