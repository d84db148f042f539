"""A run that is fed with its own times runs as it did."""

import msgspec
import pytest

from simulation.small import row, trace
from weaverl.domain.cluster import Node, PoolKind, Slot
from weaverl.domain.groups import Pin
from weaverl.domain.jobs import PhaseKind
from weaverl.domain.timeline import Interval, Timeline
from weaverl.domain.units import GIB
from weaverl.errors import UsageError
from weaverl.reports.recorded import compare_timeline, write_recorded
from weaverl.simulation.costs import Costs
from weaverl.simulation.measured import compare_with_simulation
from weaverl.simulation.simulate import Setup, simulate_heard
from weaverl.simulation.timeline import Recorder

LOADING, ROLLOUT, TRAINING = PhaseKind.LOADING, PhaseKind.ROLLOUT, PhaseKind.TRAINING
JOBS = trace(
    row("a", iterations=15, rollout=100, training=90, rollout_max_seconds=150, rollout_cv=0.3, sync_gib=8.0),
    row(
        "b",
        at=150,
        iterations=12,
        rollout=60,
        training=80,
        rollout_max_seconds=150,
        rollout_cv=0.3,
        sync_gib=9.0,
        slo=3,
    ),
    row("c", at=900, iterations=20, rollout=20, training=30, rollout_max_seconds=50, rollout_cv=0.3, slo=8),
    row("d", at=1000, iterations=9, rollout_gpus=16, slo=1.0),
)


@pytest.fixture(scope="module")
def run():
    recorder = Recorder()
    finished = simulate_heard(JOBS, Setup(seed=2, costs=Costs(tail_migration=False)), (), recorder=recorder)
    pins = {name: job.pins[1] for name, job in recorder.jobs.items()}
    assert len({slot.node for pin in pins.values() for slot in pin.rollout}) < 5, "the jobs share nodes"
    return finished, recorder, pins, Timeline(intervals=tuple(recorder.intervals()))


def test_the_same_times_give_the_same_order_and_the_same_end(run):
    finished, _, pins, timeline = run
    found = compare_with_simulation(finished.cluster, pins, timeline)
    assert found.order and all(found.order.values())
    assert found.deviation == pytest.approx(0.0, abs=1e-9)


def test_other_times_are_noticed(run):
    finished, _, pins, timeline = run
    late = [
        msgspec.structs.replace(one, granted_at=one.granted_at - 500_000_000)
        if (one.job, one.phase, one.iteration) == ("c", PhaseKind.ROLLOUT, 10)
        else one
        for one in timeline.intervals
    ]
    found = compare_with_simulation(finished.cluster, pins, Timeline(intervals=tuple(late)))
    assert not all(found.order.values())


def test_a_timeline_file_is_all_that_is_needed(run, tmp_path):
    finished, recorder, _, _ = run
    write_recorded(tmp_path / "run", finished.cluster, recorder)
    found = compare_timeline(tmp_path / "run")
    assert all(found.order.values())
    assert found.deviation == pytest.approx(0.0, abs=1e-9)


def phase(job, kind, asked, granted, ended, *, save=0):
    """On the only node of a pool; milliseconds. Cold starts load onto the rollout node."""
    return Interval(
        job=job,
        attempt=1,
        phase=kind,
        iteration=0,
        slots=(Slot("t" if kind is TRAINING else "r", 0),),
        requested_at=asked * 1000,
        granted_at=granted * 1000,
        started_at=granted * 1000,
        ended_at=ended * 1000,
        released_at=ended * 1000,
        save_us=save * 1000,
        token=f"{job}{kind}",
    )


RACE = Timeline(
    intervals=(
        phase("b", LOADING, 0, 0, 50, save=40),
        phase("a", LOADING, 50, 95, 195, save=35),
        phase("b", ROLLOUT, 160, 333, 433),
        phase("a", ROLLOUT, 233, 233, 333),
        phase("a", TRAINING, 333, 333, 433),
        phase("b", TRAINING, 433, 433, 533),
    )
)
"""The second job asks first, while the first one's state is still on the node: saved in 35 ms, heard of 5 ms later."""


def test_cold_starts_and_what_they_leave_on_the_slots_decide_who_is_first(run):
    cluster = msgspec.structs.replace(run[0].cluster, nodes=tuple(node(name) for name in "rt"))
    pin = Pin((Slot("r", 0),), (Slot("t", 0),))
    found = compare_with_simulation(cluster, {"a": pin, "b": pin}, RACE)
    assert found.order == {"r": True, "t": True}
    assert found.deviation == 0.0
    warm = Timeline(intervals=tuple(one for one in RACE.intervals if one.phase is not LOADING))
    assert compare_with_simulation(cluster, {"a": pin, "b": pin}, warm).order == {"r": False, "t": False}


def node(name):
    pool = PoolKind.ROLLOUT if name == "r" else PoolKind.TRAINING
    return Node(name=name, pool=pool, host=name, num_devices=1, device_memory_bytes=GIB, host_memory_bytes=GIB)


def test_a_run_with_several_attempts_or_missing_iterations_is_refused(run):
    finished, _, pins, timeline = run
    again = msgspec.structs.replace(timeline.intervals[-1], attempt=2)
    with pytest.raises(UsageError, match="several attempts"):
        compare_with_simulation(finished.cluster, pins, Timeline(intervals=(*timeline.intervals, again)))
    cut = tuple(one for one in timeline.intervals if one.iteration != 3)
    with pytest.raises(UsageError, match="each iteration from 0 on"):
        compare_with_simulation(finished.cluster, pins, Timeline(intervals=cut))


def test_a_run_with_moved_tails_is_refused_by_that_name(run):
    finished, _, pins, timeline = run
    tail = msgspec.structs.replace(timeline.intervals[-1], part=1)
    with pytest.raises(UsageError, match="without moved tails"):
        compare_with_simulation(finished.cluster, pins, Timeline(intervals=(*timeline.intervals, tail)))


def test_a_file_that_does_not_say_where_jobs_were_pinned_is_refused(run, tmp_path):
    finished, recorder, _, _ = run
    lost = Recorder()
    lost.__dict__.update(recorder.__dict__ | {"jobs": {}})
    write_recorded(tmp_path / "run", finished.cluster, lost)
    with pytest.raises(UsageError, match="does not say where a, b, c, d was pinned"):
        compare_timeline(tmp_path / "run")
