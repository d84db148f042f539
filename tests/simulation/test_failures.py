import msgspec
import pytest

from simulation.small import row, trace
from weaverl.domain.commands import ChangeJobState
from weaverl.domain.events import AgentReported, DeathConfirmed, NodeLost, PermitRequested, ProcessExited
from weaverl.domain.jobs import JobState, PhaseKind
from weaverl.reports.recorded import audit_recorded
from weaverl.simulation.costs import Costs
from weaverl.simulation.engine import Engine
from weaverl.simulation.failures import Faults
from weaverl.simulation.simulate import Setup, simulate_heard
from weaverl.simulation.timeline import Recorder

JOBS = trace(
    *(
        row(f"j{number}", at=1000.0 * number, iterations=40, rollout_max_seconds=200.0, rollout_cv=0.2)
        for number in range(4)
    )
)


class Log:
    def __init__(self):
        self.facts = []

    def hear(self, event, commands):
        self.facts.append((event, commands))

    def events(self, kind):
        return [event for event, _ in self.facts if isinstance(event, kind)]


def run(costs, seed=1):
    log, recorder = Log(), Recorder()
    finished = simulate_heard(JOBS, Setup(seed=seed, costs=costs, timings=False), [log], recorder=recorder)
    return finished, log, audit_recorded(JOBS, finished.cluster, recorder, finished.outcome)


@pytest.mark.parametrize(
    ("costs", "kind"), [(Costs(job_mtbf_hours=1.0), ProcessExited), (Costs(node_mtbf_hours=4.0), NodeLost)]
)
def test_jobs_go_on_after_their_last_finished_iteration(costs, kind):
    finished, log, audit = run(costs)
    faults = [one for one in log.events(kind) if getattr(one, "exit_code", None) != 0]
    assert len(faults) >= 3
    assert finished.outcome.jobs_finished == 4
    assert finished.outcome.retries >= 2
    assert audit.findings == ()
    done = {}
    for event in log.events(PermitRequested):
        if event.phase is PhaseKind.ROLLOUT:
            last = done.get(event.job, (1, -1))
            assert event.iteration == last[1] + 1 or (event.attempt > last[0] and event.iteration == last[1])
            done[event.job] = (event.attempt, event.iteration)
    assert {iteration for _, iteration in done.values()} == {39}


def test_faults_cost_time_and_the_promise_counts_it():
    calm, _, _ = run(Costs())
    stormy, _, _ = run(Costs(job_mtbf_hours=1.0))
    assert calm.outcome.retries == 0
    assert stormy.outcome.slowdown.max > calm.outcome.slowdown.max
    assert stormy.outcome.usd > calm.outcome.usd


def test_a_lost_node_comes_back_after_its_repair_and_its_jobs_are_given_up_after_the_patience():
    _, log, _ = run(Costs(node_mtbf_hours=4.0, node_repair_hours=0.5))
    lost = log.events(NodeLost)[0]
    back = next(one for one in log.events(AgentReported) if one.node.name == lost.node and one.at > lost.at)
    assert back.at - lost.at == 1800_000_000
    stopped = [
        event.at
        for event, commands in log.facts
        for command in commands
        if isinstance(command, ChangeJobState)
        and command.state is JobState.STOPPING
        and command.final is JobState.FAILED
    ]
    assert all(any(at - one.at == 60_000_000 for one in log.events(NodeLost)) for at in stopped)
    deaths = [one for one in log.events(DeathConfirmed) if one.node == lost.node and lost.at <= one.at < back.at]
    assert deaths == []


def test_equal_seeds_strike_equally():
    first, second, other = (run(Costs(job_mtbf_hours=1.0), seed)[0].outcome for seed in (1, 1, 2))
    assert msgspec.json.encode(first) == msgspec.json.encode(second)
    assert first.usd != other.usd


def test_the_time_between_faults_is_as_asked():
    engine, struck = Engine(), []
    faults = Faults(engine, 10.0, (1, 1), lambda: [] if len(struck) == 4000 else ["a", "b"], struck.append)
    faults.go_on()
    faults.go_on()
    engine.run()
    assert len(struck) == 4000
    assert engine.now / 3600e6 / 4000 == pytest.approx(5.0, rel=0.05)
    assert 0.45 < struck.count("a") / 4000 < 0.55


def test_nothing_fails_unless_it_is_asked_for():
    engine = Engine()
    Faults(engine, None, (1, 1), lambda: ["a"], lambda _: None).go_on()
    assert len(engine) == 0
