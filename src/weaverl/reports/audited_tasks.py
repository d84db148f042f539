"""Runs for a reproduction, each confirmed by the auditor from its trace and timeline alone."""

from msgspec.structs import replace

from weaverl.reports.recorded import audit_recorded
from weaverl.simulation.reproduction.records import Result, Task
from weaverl.simulation.reproduction.tasks import Watch, result_of, setup_of
from weaverl.simulation.simulate import simulate_heard
from weaverl.simulation.timeline import Recorder


def audited_task(task: Task) -> Result:
    """Make the run and have it audited."""
    watch, recorder = Watch(task.costs), Recorder()
    finished = simulate_heard(task.trace, setup_of(task), [watch], recorder=recorder)
    audited = audit_recorded(task.trace, finished.cluster, recorder, finished.outcome).audited
    result = result_of(task, watch, finished)
    return replace(result, outcome=replace(result.outcome, audited=audited))
