"""A process with two workers that say who they are and then wait for ever."""

import os
import sys
import time
from pathlib import Path

from weaverl.simulation.reproduction.cases import mixes
from weaverl.simulation.reproduction.records import Task
from weaverl.simulation.reproduction.runner import Runner


def wait(task: Task) -> None:
    (Path(task.study) / str(os.getpid())).touch()
    time.sleep(600)


if __name__ == "__main__":
    tasks = [Task(study=sys.argv[1], trace=mix, policy="solo") for mix in mixes(1)[:2]]
    with Runner(wait, 2, lambda *step: None) as runner:
        runner.results(tasks)
