from scheduling.builders import job
from weaverl.cli.live_timeline import header_jobs
from weaverl.domain.cluster import Slot
from weaverl.domain.commands import AcceptJob, AdmitJob, ChangeJobState
from weaverl.domain.events import JobSubmitted, TimerFired
from weaverl.domain.facts import Fact
from weaverl.domain.groups import Group, Pin
from weaverl.domain.jobs import JobState

PIN = Pin((Slot("r", 0),), (Slot("t", 0),))


def submitted(name: str, attempt: int) -> Fact:
    group = Group("g1", ("r",), ("t",), (name,))
    commands = (AcceptJob(job=name), AdmitJob(job=name, attempt=attempt, group=group, pin=PIN))
    return Fact(schema=1, code="", policy="", event=JobSubmitted(spec=job(name)), commands=commands)


def test_jobs_are_told_in_the_order_of_their_last_submission():
    found = header_jobs([submitted("a", 1), submitted("b", 1), submitted("a", 2)])
    assert [one.name for one in found] == ["b", "a"]
    assert [pin.attempt for pin in found[1].pins] == [1, 2]


def test_attempts_that_were_moved_are_told_from_those_that_failed():
    ends = (
        ChangeJobState(job="a", attempt=1, state=JobState.STOPPING, final=JobState.FAILED),
        ChangeJobState(job="a", attempt=2, state=JobState.STOPPING, final=JobState.QUEUED),
    )
    over = Fact(schema=1, code="", policy="", event=TimerFired(name=""), commands=ends)
    (found,) = header_jobs([submitted("a", 1), submitted("a", 2), submitted("a", 3), over])
    assert [(pin.attempt, pin.moved) for pin in found.pins] == [(1, False), (2, True), (3, False)]
