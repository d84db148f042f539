"""Other people's load, for measurements beside it."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from weaverl.control.home import Home
from weaverl.control.processes import start


@contextmanager
def busy_cores(home: Home) -> Iterator[None]:
    """A busy loop on each core that this process may use."""
    command = [sys.executable, "-m", "weaverl.cli.bench_load", str(os.getpid())]
    log = home.logs / "load.log"
    loops = []
    try:
        for cpu in sorted(os.sched_getaffinity(0)):
            loops.append(start(command, environment=os.environ, directory=home.directory, log=log, cpus=(cpu,)))
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
