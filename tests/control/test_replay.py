"""A live run's log through the door of a fresh scheduler: it decides again what was decided then."""

import pytest
from live import Live, await_true

from weaverl.domain.commands import GrantPermit
from weaverl.domain.events import ControllerStarted, JobCancelled, ProcessExited
from weaverl.domain.jobs import JobState
from weaverl.scheduling.scheduler import Scheduler


def replayed(live: Live) -> list[tuple[object, list[object], list[object]]]:
    """Each event of the log with the commands of then and those of now."""
    scheduler = Scheduler(live.cluster, live.parameters)
    return [(fact.event, list(fact.commands), list(scheduler.handle(fact.event))) for fact in live.facts()]


def num_grants(found: list[tuple[object, list[object], list[object]]]) -> int:
    return sum(isinstance(one, GrantPermit) for _, then, _ in found for one in then)


def test_the_log_of_a_live_run_gives_the_same_commands_again(live: Live):
    live.submit("again-a", "--iterations", 3, iterations=3)
    live.submit("again-b", "--iterations", 3, iterations=3)
    live.await_finished("again-a", "again-b")
    found = replayed(live)
    assert num_grants(found) >= 12
    assert [event for event, then, now in found if then != now] == []


@pytest.mark.slow
def test_so_does_the_log_of_a_run_with_a_killed_rank_a_killed_controller_and_a_cancellation(own: Live):
    own.up()
    own.submit("first", "--iterations", 6, iterations=6)
    own.submit("second", "--iterations", 6, iterations=6)
    own.submit("roles", "--iterations", 3, roles=("rollout", "training"))
    own.submit("hangs", "--hang-in", "training", max_retries=1)
    own.await_phase("hangs", "training", 1)
    own.processes_of("hangs")[0].send(9)
    await_true(lambda: (job := own.job("hangs")) is not None and job.attempt == 2)
    own.await_phase("hangs", "training", 1)
    before = own.kill("controller")
    own.await_another("controller", before)
    own.client.cancel("hangs")
    own.await_finished("first", "second", "roles")
    assert own.await_end("hangs")["hangs"].state is JobState.CANCELLED
    found = replayed(own)
    events = [event for event, _, _ in found]
    for kind in (ControllerStarted, ProcessExited, JobCancelled):
        assert any(isinstance(event, kind) for event in events), kind
    assert sum(isinstance(event, ControllerStarted) for event in events) >= 2
    assert num_grants(found) > 30
    assert [event for event, then, now in found if then != now] == []
