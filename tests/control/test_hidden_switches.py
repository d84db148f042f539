"""Real processes under policy weave: state is restored before its job asks, and nobody holds a slot with another."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from live import ROOT, Live, cluster, done, every, overlaps

from auditor import audit
from weaverl.domain.commands import AdmitJob, PrepareSlot
from weaverl.domain.events import SlotPrepared
from weaverl.reports.timeline_file import read_timeline
from weaverl.scheduling.state import Parameters

ROLES = ("rollout", "training")


@pytest.fixture(scope="module")
def weave() -> Iterator[Live]:
    path = Path(tempfile.mkdtemp(prefix="wv-", dir=ROOT))
    made = Live(path, cluster(), Parameters(policy="weave"))
    made.up()
    yield made
    made.down()
    shutil.rmtree(path, ignore_errors=True)


def test_jobs_of_two_roles_are_restored_ahead_and_the_auditor_confirms_the_timeline(weave: Live, directory: Path):
    names = ("ahead-a", "ahead-b")
    for name in names:
        weave.submit(name, "--iterations", 8, roles=ROLES, iterations=8)
    weave.await_finished(*names)
    facts = weave.facts()
    commands = [command for fact in facts for command in fact.commands]
    assert len({one.group.name for one in commands if isinstance(one, AdmitJob)}) == 1
    told = [one.token for one in commands if isinstance(one, PrepareSlot)]
    assert told and {fact.event.token for fact in facts if isinstance(fact.event, SlotPrepared)} <= set(told)
    assert done(weave.marks(*names)) == every(names, 8)
    assert overlaps(weave.marks(*names)) == []
    weave.audit_input(directory / "timeline")
    assert audit(directory / "timeline").findings == ()
    restores = read_timeline(directory / "timeline").timeline.restores
    assert restores and {one.job for one in restores} <= set(names)


def test_a_job_of_one_process_is_not_told_while_it_runs(weave: Live):
    names = ("one-a", "one-b")
    for name in names:
        weave.submit(name, "--iterations", 4, iterations=4)
    weave.await_finished(*names)
    assert done(weave.marks(*names)) == every(names, 4)
    assert overlaps(weave.marks(*names)) == []
