"""Each figure and each rule of a simulated run, broken on purpose, is found."""

import msgspec
import numpy as np
import pytest

from simulation.small import row, trace
from weaverl.domain.jobs import PhaseKind
from weaverl.domain.sharing import Sharing
from weaverl.reports.audit import audit_simulated, read_simulated, table_of_rows
from weaverl.reports.audit.spreads import spread
from weaverl.reports.html import run_page
from weaverl.reports.metrics import file_figures
from weaverl.reports.recorded import audit_recorded, header_of, write_recorded
from weaverl.reports.timeline_file import read_timeline
from weaverl.simulation import interference as interference_module
from weaverl.simulation import run as run_module
from weaverl.simulation import simulate as simulate_module
from weaverl.simulation.costs import Costs
from weaverl.simulation.simulate import Setup, simulate_heard
from weaverl.simulation.timeline import Recorder
from weaverl.simulation.traces.generate import Order, Preset, generate

JOBS = trace(
    row("a", iterations=12, rollout=100, training=100, rollout_max_seconds=150, rollout_cv=0.2, sync_gib=10.0),
    row(
        "b",
        at=300,
        iterations=9,
        rollout=80,
        training=90,
        rollout_max_seconds=150,
        rollout_cv=0.2,
        sync_gib=10.0,
        deadline_seconds=9e3,
    ),
    row("c", at=5000, iterations=5, rollout_gpus=16, slo=1.1),
)
ROLLOUT, TRAINING = 1, 2


@pytest.fixture(scope="module")
def run():
    recorder = Recorder()
    setup = Setup(seed=3, costs=Costs(), sharing=Sharing())
    return simulate_heard(JOBS, setup, (), recorder=recorder), recorder


def audited(run, change=lambda table: None, reported=None, jobs=JOBS):
    finished, recorder = run
    header = msgspec.to_builtins(header_of(finished.cluster, recorder))
    slots = [[(slot.node, slot.device) for slot in where] for where in recorder.slots]
    spans = [msgspec.to_builtins(span) for span in recorder.spans]
    restored = np.array(recorder.restored_rows)
    table = table_of_rows(header, list(recorder.jobs), slots, np.array(recorder.rows), spans, restored)
    change(table)
    rows = [msgspec.to_builtins(job) for job in jobs.jobs]
    outcome = msgspec.to_builtins(finished.outcome)
    return audit_simulated(table, rows, finished.outcome.parameters, outcome | (reported or {}))


def found(run, change=lambda table: None, reported=None):
    return {finding.check for finding in audited(run, change, reported).findings}


def test_a_simulated_run_is_as_it_says(run):
    finished, recorder = run
    result = audit_recorded(JOBS, finished.cluster, recorder, finished.outcome)
    assert result.findings == ()
    assert result.figures["usd"] == pytest.approx(finished.outcome.usd)
    assert result.figures["jobs_finished"] == 3


def figures_of(value, *path):
    """The path of every number in nested figures."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from figures_of(inner, *path, key)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path


def test_every_figure_that_is_wrong_is_found(run):
    outcome = msgspec.to_builtins(run[0].outcome)
    unaudited = {"seed", "decision_ms", "parameters"}
    paths = [path for path in figures_of(outcome) if path[0] not in unaudited]
    assert {path[0] for path in paths} == set(outcome) - unaudited - {
        *("trace", "policy", "audited", "refused", "unfinished", "makespan_bound_hours")
    }
    for path in paths:
        wrong = msgspec.json.decode(msgspec.json.encode(outcome))
        place = wrong
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = place[path[-1]] * 1.001 + 0.001
        assert found(run, reported=wrong) == {"figure"}, path


@pytest.mark.parametrize(
    "wrong",
    [
        {"tenants": {}},
        {"fairness": None},
        {"worst_window": None},
        {"bound_multiple": None},
        {"wait_hours": None},
        {"mean_completion_hours": None},
        {"tenants": {"t0": {"usd": 0.0, "jobs": 0, "slo_attainment": 1.0, "speed": 1.0}}},
    ],
)
def test_a_figure_that_is_left_out_is_found(run, wrong):
    assert found(run, reported=wrong) == {"figure"}


PAIR = trace(
    *(
        row(
            name,
            at=60.0 * number,
            iterations=12,
            rollout=300.0,
            training=100.0,
            rollout_max_seconds=360.0,
            rollout_cv=0.1,
            rollout_p80=0.8,
            sync_gib=10.0,
            slo=10.0,
            tenant=f"t{number}",
        )
        for number, name in enumerate("ab")
    )
)


def checks_of(jobs, policy="weave-paper", **costs):
    recorder = Recorder()
    setup = Setup(policy=policy, seed=3, costs=Costs(**costs))
    finished = simulate_heard(jobs, setup, (), recorder=recorder)
    return {one.check for one in audit_recorded(jobs, finished.cluster, recorder, finished.outcome).findings}


def test_two_jobs_whose_tails_move_are_audited():
    assert checks_of(PAIR) == set()


def test_a_tail_that_is_moved_at_its_very_end_is_no_holder_that_came_too_late():
    jobs = trace(
        row("a", iterations=2, rollout=100, training=10, slo=5.0, rollout_p80=0.9),
        row("b", iterations=1, rollout=20, training=50, slo=5.0, rollout_p80=0.1),
        row("c", at=10, iterations=1, rollout=100, training=100, slo=5.0, rollout_gpus=2, training_gpus=1),
    )
    nothing = (0.0, 0.0)
    costs = {"rollout_switch_seconds": nothing, "training_switch_seconds": nothing, "cold_start_seconds": nothing}
    assert checks_of(jobs, "weave", **costs, tail_stretch=1.0, tail_move_seconds=0.0) == set()


def test_a_world_without_switches_is_found(monkeypatch):
    monkeypatch.setattr(run_module.Run, "switch_us", lambda self, phase: 0)
    assert checks_of(PAIR) == {"switches"}


def test_a_world_that_always_switches_is_found(monkeypatch):
    monkeypatch.setattr(run_module.Run, "switch_us", lambda self, phase: self.job.training_switch_us)
    assert checks_of(PAIR) == {"switches"}


@pytest.mark.parametrize(
    ("change", "check"),
    [({"cold_start_us": 0}, "cold starts"), ({"tail_devices": 1}, "tails"), ({"tail_from": 0.01}, "tails")],
)
def test_a_world_with_another_cold_start_or_tail_is_found(monkeypatch, change, check):
    honest = simulate_module.simulated_job
    monkeypatch.setattr(
        simulate_module, "simulated_job", lambda job, costs: msgspec.structs.replace(honest(job, costs), **change)
    )
    assert check in checks_of(PAIR)


@pytest.fixture(scope="module")
def hidden():
    """A run in which state is restored ahead, also beside holders."""
    recorder = Recorder()
    return simulate_heard(PAIR, Setup(policy="weave", seed=3), (), recorder=recorder), recorder


def test_a_run_with_hidden_switches_is_audited_and_its_file_says_what_was_restored(hidden, tmp_path):
    finished, recorder = hidden
    assert audited(hidden, jobs=PAIR).findings == ()
    write_recorded(tmp_path / "timeline", finished.cluster, recorder)
    restores = read_timeline(tmp_path / "timeline").timeline.restores
    assert len(restores) > 10
    assert {one.job for one in restores} == {"a", "b"}
    read = read_simulated(tmp_path / "timeline")
    outcome = msgspec.to_builtins(finished.outcome)
    rows = [msgspec.to_builtins(job) for job in PAIR.jobs]
    assert audit_simulated(read, rows, finished.outcome.parameters, outcome).findings == ()


BUSY = generate(Order(preset=Preset.PRODUCTION, seed=1, num_jobs=4, iterations=30, hours=2.0), Costs())


@pytest.mark.parametrize("staleness", [0, 1])
def test_a_report_of_a_simulated_timeline_says_what_the_simulation_says(tmp_path, staleness):
    """Of a run with moves, and tails that move: dollars, bubbles, slowdowns, worst windows, moves."""
    jobs = tuple(msgspec.structs.replace(job, staleness=staleness) for job in BUSY.jobs)
    recorder, of = Recorder(), msgspec.structs.replace(BUSY, jobs=jobs)
    run = simulate_heard(of, Setup(policy="weave", seed=0), (), recorder=recorder)
    write_recorded(tmp_path / "timeline", run.cluster, recorder)
    file, outcome = read_timeline(tmp_path / "timeline"), run.outcome
    assert outcome.moves > 0 and any(interval.part for interval in file.timeline.intervals)
    figures = file_figures(file)
    assert figures.usd == pytest.approx(outcome.usd)
    assert [pool.bubble for pool in figures.pools] == pytest.approx([outcome.bubbles.rollout, outcome.bubbles.training])
    assert sum(job.moves for job in figures.jobs) == outcome.moves
    assert [job.attempts for job in figures.jobs] == [job.moves + 1 for job in figures.jobs]
    for name in ("slowdown", "worst_window"):
        found = spread(name, [getattr(job, name) for job in figures.jobs])
        told = {f"{name}.{key}": value for key, value in msgspec.to_builtins(getattr(outcome, name)).items()}
        assert found == pytest.approx(told), name
    page = run_page(file)
    assert f"{outcome.bubbles.rollout * 100:.0f} % bubble" in page
    assert '<th scope="col">moves</th>' in page and '<th scope="col">state moved</th>' in page


def test_a_job_that_leaves_while_it_waits_at_its_boundary_has_moved():
    """One of three moves is planned while its job waits for its next rollout."""
    jobs = generate(Order(preset=Preset.PRODUCTION, seed=8, num_jobs=5, iterations=30, hours=2.0), Costs())
    recorder = Recorder()
    run = simulate_heard(jobs, Setup(policy="weave", seed=0), (), recorder=recorder)
    result = audited((run, recorder), jobs=jobs)
    assert not result.findings
    assert result.figures["moves"] == run.outcome.moves == 3


def test_a_move_in_the_middle_of_an_iteration_is_found():
    recorder = Recorder()
    run = simulate_heard(BUSY, Setup(policy="weave", seed=0), (), recorder=recorder)

    def moved_later(table):
        """The rollout after the last iteration of an attempt that was moved has begun."""
        job, pin = next((job, pin) for job in table.header["jobs"] for pin in job["pins"] if pin["moved"])
        of_job = (table["job"] == table.jobs.index(job["name"])) & (table["attempt"] == pin["attempt"])
        last = np.flatnonzero(of_job & (table["phase"] == ROLLOUT))[-1]
        table["iteration"][last] += 1

    assert not audited((run, recorder), jobs=BUSY).findings
    checks = {finding.check for finding in audited((run, recorder), moved_later, jobs=BUSY).findings}
    assert "moves" in checks


def unknown_room(table):
    for job in table.header["jobs"]:
        job["device_memory"] = {}


def too_little_room(table):
    for node in table.header["cluster"]["nodes"]:
        node["device_memory_bytes"] = 2**30


def later(table):
    table.restores["began_at"] = np.maximum(table.restores["began_at"], table.restores["left_at"] - 1)


def back_in_time(table):
    table.restores["left_at"][0] = table.restores["began_at"][0] - 1


def elsewhere(table):
    table.restores["pool"] = 1 - table.restores["pool"]


def stays_longer(table):
    table.restores["left_at"][0] += 1_000_000_000_000


@pytest.mark.parametrize(
    ("change", "check"),
    [
        (unknown_room, "restores"),
        (too_little_room, "restores"),
        (back_in_time, "restores"),
        (elsewhere, "restores"),
        (stays_longer, "restores"),
        (later, "switches"),
    ],
)
def test_each_fault_of_what_is_restored_ahead_is_found(hidden, change, check):
    assert check in {finding.check for finding in audited(hidden, change, jobs=PAIR).findings}


def test_a_world_whose_restores_ahead_take_no_time_is_found(monkeypatch):
    honest = run_module.Run.prepare

    def at_once(self, phase, token, slots, now):
        honest(self, phase, token, slots, now)
        self.prepared[phase].ready_at = now
        return now

    monkeypatch.setattr(run_module.Run, "prepare", at_once)
    slow = {"rollout_switch_seconds": (400.0, 400.0), "training_switch_seconds": (300.0, 300.0)}
    assert "switches" in checks_of(PAIR, "weave", **slow)


NEIGHBOURS = {"interference_rollout": 1.2, "interference_training": 1.1}


def test_two_jobs_that_disturb_each_other_are_audited():
    assert checks_of(PAIR, **NEIGHBOURS) == set()


@pytest.mark.parametrize(
    "factor",
    [
        lambda run, phase: 1.0,
        lambda run, phase: 1.2,
        lambda run, phase: {"rollout": 1.2, "training": 1.1}[phase],
        lambda run, phase: {"rollout": 1.1, "training": 1.2}[phase] if run.iteration in range(2, 8) else 1.0,
    ],
    ids=["nobody is disturbed", "one factor for both", "also those that are alone", "the other phase's"],
)
def test_a_world_with_other_interference_is_found(monkeypatch, factor):
    monkeypatch.setattr(interference_module.Interference, "factor", lambda self, run, phase: factor(run, phase))
    assert "work" in checks_of(PAIR, **NEIGHBOURS)


def test_interference_that_nobody_asked_for_is_found(monkeypatch):
    monkeypatch.setattr(interference_module.Interference, "factor", lambda self, run, phase: 1.001)
    assert "work" in checks_of(PAIR)


def test_a_world_whose_rollouts_are_half_as_long_is_found(monkeypatch):
    honest = simulate_module.drawn_work

    def halved(*given):
        work = honest(*given)
        return msgspec.structs.replace(work, rollout_us=[one // 2 for one in work.rollout_us])

    monkeypatch.setattr(simulate_module, "drawn_work", halved)
    assert checks_of(PAIR) == {"draws"}


def first(table, phase, job=0):
    return np.flatnonzero((table["phase"] == phase) & (table["job"] == job))[0]


def longer_body(table):
    table["ended_at"][first(table, ROLLOUT)] += 1000
    table["released_at"][first(table, ROLLOUT)] += 1000


def longer_hold(table):
    table["released_at"][first(table, ROLLOUT)] += 1_000_000_000


def other_draw(table):
    table["solo_us"][first(table, ROLLOUT)] = 151_000_000


def other_training(table):
    table["solo_us"][first(table, TRAINING)] += 10


def lost_iteration(table):
    rows = np.flatnonzero(~((table["job"] == 1) & (table["iteration"] == 4)))
    table.columns.update(table.take(rows).columns)


def node_given_back_early(table):
    table.spans[0]["given_back_at"] -= 600_000_000


def node_taken_twice(table):
    table.spans.append(table.spans[0] | {"group": "other"})


@pytest.mark.parametrize(
    ("change", "check"),
    [
        (longer_body, "work"),
        (longer_body, "order"),
        (longer_hold, "holders"),
        (other_draw, "draws"),
        (other_training, "draws"),
        (lost_iteration, "once"),
        (node_given_back_early, "owners"),
        (node_taken_twice, "owners"),
    ],
)
def test_each_fault_is_found(run, change, check):
    assert check in found(run, change)


def test_the_file_tells_the_auditor_the_same(run, tmp_path):
    finished, recorder = run
    write_recorded(tmp_path / "timeline", finished.cluster, recorder)
    rows = [msgspec.to_builtins(job) for job in JOBS.jobs]
    table = read_simulated(tmp_path / "timeline")
    result = audit_simulated(table, rows, finished.outcome.parameters, msgspec.to_builtins(finished.outcome))
    assert result.findings == ()
    assert result.figures == pytest.approx(audited(run).figures)


def test_the_file_can_be_read_as_any_timeline(run, tmp_path):
    finished, recorder = run
    write_recorded(tmp_path / "timeline", finished.cluster, recorder)
    read = read_timeline(tmp_path / "timeline")
    rollouts = [one for one in read.timeline.intervals if one.phase is PhaseKind.ROLLOUT and one.part == 0]
    assert len(rollouts) == 12 + 9 + 5
    assert {span.node for span in read.spans} <= {node.name for node in read.header.cluster.nodes}
    assert [len(job.pins) for job in read.header.jobs] == [1, 1, 1]
