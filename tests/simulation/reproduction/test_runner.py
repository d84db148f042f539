import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from msgspec.structs import replace

from reports.reproduction_example import result
from weaverl.simulation.reproduction.cases import mixes
from weaverl.simulation.reproduction.records import Task
from weaverl.simulation.reproduction.runner import Runner

TASKS = [Task(study="some", trace=mix, policy=policy) for mix in mixes(2)[:2] for policy in ("solo", "weave-paper")]


def judged(task):
    made = result(task.policy, task.trace.name, 100.0)
    audited = {"solo": None}.get(task.policy, task.trace.name == "time multiplexing")
    return replace(made, outcome=replace(made.outcome, audited=audited))


def test_results_come_in_the_order_of_the_tasks_and_are_told_one_by_one():
    heard = []
    with Runner(judged, 1, lambda *step: heard.append(step)) as runner:
        results = runner.results(TASKS)
    assert [(one.outcome.trace, one.outcome.policy) for one in results] == [
        (task.trace.name, task.policy) for task in TASKS
    ]
    assert heard == [("some", done, 4) for done in (1, 2, 3, 4)]


def test_runs_that_the_auditor_denies_are_named():
    with Runner(judged, 1, lambda *step: None) as runner:
        runner.results(TASKS)
    assert runner.confirmed == 1
    assert runner.refuted == ["rollout-heavy, weave-paper"]


@pytest.mark.slow
def test_workers_of_a_killed_process_end_too(tmp_path):
    parent = subprocess.Popen([sys.executable, Path(__file__).parent / "orphans.py", tmp_path])
    while len(list(tmp_path.iterdir())) < 2:
        assert parent.poll() is None
        time.sleep(0.05)
    workers = [psutil.Process(int(path.name)) for path in tmp_path.iterdir()]
    parent.kill()
    parent.wait()
    gone, _ = psutil.wait_procs(workers, timeout=10)
    assert len(gone) == 2
