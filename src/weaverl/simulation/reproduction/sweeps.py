"""How the savings depend on what the source leaves open: one parameter at a time, all else as in the protocol."""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from math import isfinite
from statistics import fmean

import msgspec
from msgspec.structs import replace

from weaverl.simulation.costs import Costs, LinkSharing
from weaverl.simulation.reproduction.records import Point, Result, Sweep, Task
from weaverl.simulation.reproduction.replay import usd_over
from weaverl.simulation.reproduction.runner import Runner
from weaverl.simulation.reproduction.variations import side_by_side, with_phase_ratio, with_slo, with_switch_times
from weaverl.simulation.traces.records import Trace

STUDY = "sensitivity"
POLICIES = ("solo", "colocated", "weave-paper")
WORTH = 1.02
"""A saving below 2 % is no saving: that is how far the simulator may be off."""

_HOURS = 12.0
"""How long each of the jobs that run side by side takes alone."""

Change = Callable[[Trace, Costs, float], tuple[Trace, Costs]]


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A sweep to make: values in rising order, and how each changes trace and costs."""

    key: str
    title: str
    axis: str
    values: tuple[float, ...]
    change: Change
    unit: str = ""
    standard: float | None = None
    logarithmic: bool = False


def questions(quick: bool) -> tuple[Question, ...]:
    """All sweeps; ``quick`` takes fewer values."""

    def some(*values: float) -> tuple[float, ...]:
        return (*values[:-1:2], values[-1]) if quick else values

    return (
        Question(
            key="jobs",
            title="Jobs at once",
            axis="jobs running side by side",
            values=(1, 2, 4, 10, 50) if quick else (1, 2, 3, 4, 6, 8, 12, 20, 30, 50),
            change=lambda trace, costs, value: (side_by_side(trace, int(value), _HOURS, costs), costs),
            logarithmic=True,
        ),
        Question(
            key="phase_ratio",
            title="Rollout : training",
            axis="mean rollout over training, every job",
            values=some(0.125, 0.25, 0.5, 1, 2, 4, 8),
            unit=" : 1",
            change=lambda trace, costs, value: (with_phase_ratio(trace, value), costs),
            logarithmic=True,
        ),
        Question(
            key="price_ratio",
            title="Price ratio",
            axis="training GPU-hour over rollout GPU-hour",
            values=some(1, 1.5, 2, 2.5, 3, 4, 5),
            standard=5.28 / 1.85,
            change=lambda trace, costs, value: (
                trace,
                replace(costs, training_usd_per_gpu_hour=costs.rollout_usd_per_gpu_hour * value),
            ),
        ),
        Question(
            key="host_memory",
            title="Host DRAM",
            axis="GiB a node",
            values=some(512, 640, 768, 1024, 1280, 1536, 2048),
            unit=" GiB",
            standard=1536,
            change=lambda trace, costs, value: (trace, replace(costs, node_host_gib=value)),
        ),
        Question(
            key="slo",
            title="SLO",
            axis="slowdown allowed, every job",
            values=some(1.01, 1.05, 1.1, 1.2, 1.5, 2, 3),
            unit="x",
            change=lambda trace, costs, value: (with_slo(trace, value), costs),
        ),
        Question(
            key="switch_cost",
            title="Switch cost",
            axis="warm start over the published one",
            values=some(0.1, 0.3, 1, 3, 10, 20, 40),
            unit="x",
            standard=1,
            change=lambda trace, costs, value: (trace, with_switch_times(costs, value)),
            logarithmic=True,
        ),
        Question(
            key="interference",
            title="Interference",
            axis="a phase beside a neighbour over one alone",
            values=some(1, 1.05, 1.1, 1.15, 1.2, 1.25, 1.3),
            unit="x",
            standard=1,
            change=lambda trace, costs, value: (
                trace,
                replace(costs, interference_rollout=value, interference_training=value),
            ),
        ),
        *(
            Question(
                key=f"link_{sharing.value}",
                title=f"Link, {sharing.value.replace('_', ' ')}",
                axis="Gbps between the pools",
                values=some(2, 5, 10, 20, 40, 100, 400),
                unit=" Gbps",
                standard=20,
                change=_with_link(sharing),
                logarithmic=True,
            )
            for sharing in LinkSharing
        ),
    )


def _with_link(sharing: LinkSharing) -> Change:
    return lambda trace, costs, value: (trace, replace(costs, link_gbps=value, link_sharing=sharing))


def sweeps(runner: Runner, asked: Sequence[Question], traces: Sequence[Trace], costs: Costs) -> tuple[Sweep, ...]:
    """Make all runs of all questions, each on every trace; ``costs`` is what the questions change."""
    plan = list(_tasks(asked, traces, costs))
    runs = iter(runner.results(plan))
    return tuple(_sweep(question, runs, len(traces)) for question in asked)


def _tasks(asked: Sequence[Question], traces: Sequence[Trace], standard: Costs) -> Iterator[Task]:
    for question in asked:
        for value in question.values:
            for trace in traces:
                varied, costs = question.change(trace, standard, value)
                for policy in POLICIES:
                    yield Task(study=STUDY, trace=varied, policy=policy, costs=costs)


def _sweep(question: Question, runs: Iterator[Result], num_traces: int) -> Sweep:
    points = []
    for value in question.values:
        triples = [{policy: next(runs) for policy in POLICIES} for _ in range(num_traces)]
        points.append(_point(value, triples))
    return Sweep(
        key=question.key,
        title=question.title,
        axis=question.axis,
        points=tuple(points),
        answer=where_it_pays(points, question.unit),
        standard=question.standard,
        logarithmic=question.logarithmic,
    )


def _point(value: float, triples: Sequence[dict[str, Result]]) -> Point:
    return Point(
        value=value,
        solo_ratio=fmean(usd_over(triple["solo"], triple["weave-paper"]) for triple in triples),
        colocated_ratio=fmean(usd_over(triple["colocated"], triple["weave-paper"]) for triple in triples),
        slo_attainment=fmean(triple["weave-paper"].outcome.slo_attainment for triple in triples),
    )


def where_it_pays(points: Sequence[Point], unit: str = "") -> str:
    """A sentence for each alternative: the stretch of the parameter where weaving costs less; then promises kept."""
    over = (
        ("Solo-D", [(point.value, point.solo_ratio) for point in points]),
        ("veRL", [(point.value, point.colocated_ratio) for point in points]),
    )
    stretches = " ".join(f"Against {name} it {_stretch(pairs, unit)}." for name, pairs in over)
    met = [point.slo_attainment for point in points]
    kept = dict.fromkeys(f"{share:.0%}" for share in (min(met), max(met)))
    return f"{stretches} Promises kept: {' to '.join(kept)}."


def _stretch(pairs: Sequence[tuple[float, float]], unit: str) -> str:
    known = [pair for pair in pairs if isfinite(pair[1])]
    lost = ", ".join(f"{value:g}" for value, ratio in pairs if not isfinite(ratio))
    left_out = f"; at {lost}{unit} not every job can run" if lost else ""
    if not known:
        return f"cannot be told{left_out}"
    ratios = [ratio for _, ratio in known]
    span = f"({min(ratios):.2f}x to {max(ratios):.2f}x{left_out})"
    changes = [
        f"{'stops paying' if one[1] >= WORTH else 'starts to pay'} between {one[0]:g} and {other[0]:g}{unit}"
        for one, other in pairwise(known)
        if (one[1] >= WORTH) != (other[1] >= WORTH)
    ]
    if not changes:
        return f"{'pays throughout' if ratios[0] >= WORTH else 'does not pay'} {span}"
    if max(ratios) - min(ratios) < WORTH - 1:
        return f"is on the edge throughout {span}"
    return f"{', '.join(changes)} {span}"
