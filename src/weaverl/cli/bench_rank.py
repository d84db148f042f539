"""A job of `weaverl bench permits`: short phases without state, one after the other, until told to end.

It trains and trains: with two pools in turn two slots would change hands at once, and wait for each other's messages.
Bodies sleep, as the host does while a device computes. What was measured is written when the process ends, so that
measuring costs the measured nothing.
"""

import sys
import time
from pathlib import Path

import weaverl as weave
from weaverl.cli.bench_handovers import PhaseTimes, write_times


def run(body_seconds: float, end_file: Path, times_file: Path) -> None:
    """Ask for the training slot again and again until ``end_file`` is there."""
    weave.init()
    times: list[PhaseTimes] = []

    @weave.phase("training")
    def train(iteration: int, asked_ns: int) -> None:
        begun_ns = time.monotonic_ns()
        time.sleep(body_seconds)
        times.append(PhaseTimes(iteration, asked_ns, begun_ns, time.monotonic_ns()))

    iteration = 0
    while not end_file.exists():
        train(iteration, time.monotonic_ns())
        iteration += 1
    write_times(times_file, times)


if __name__ == "__main__":
    run(float(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))
