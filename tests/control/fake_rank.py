"""A rank of a fake job: phases that sleep and write down when they began and ended. It loads no torch.

Lines: job attempt phase iteration begin|end monotonic_ns pid. Written with O_APPEND in one call each, so that lines of
several processes do not mix.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import weaverl as weave


def main() -> None:
    given = _arguments()
    if given.ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    job = weave.init()
    for _ in range(given.children):
        subprocess.Popen(["sleep", "1000"])
        subprocess.Popen(["sleep", "1000"], start_new_session=True)
    print(f"{job.name} {job.role}-{job.rank} is here", flush=True)
    _iterate(given, job)
    if given.linger_role == job.role:
        time.sleep(1000)


def _iterate(given: argparse.Namespace, job: weave.Job) -> None:
    @weave.phase("rollout")
    def rollout(iteration: int) -> None:
        _body(given, job, "rollout", iteration)

    @weave.phase("training")
    def train(iteration: int) -> None:
        _body(given, job, "training", iteration)

    for iteration in range(_first(given, job), given.iterations):
        if job.is_role("rollout"):
            _await(given, job, f"training-{iteration - 1}", iteration > 0)
            rollout(iteration)
            _tell(given, job, f"rollout-{iteration}")
        if job.is_role("training"):
            _await(given, job, f"rollout-{iteration}", True)
            train(iteration)
            _tell(given, job, f"training-{iteration}")
            _save(given, job, iteration)


def _first(given: argparse.Namespace, job: weave.Job) -> int:
    """The iteration to go on with: a checkpoint of a job without state is a number."""
    saved = Path(f"{given.records}.{job.name}.saved")
    if not given.saves or not saved.exists():
        return 0
    job.resume_from(int(saved.read_text()) + 1)
    return int(saved.read_text()) + 1


def _save(given: argparse.Namespace, job: weave.Job, iteration: int) -> None:
    if given.saves:
        Path(f"{given.records}.{job.name}.saved").write_text(str(iteration))
        job.saved(iteration)


def _body(given: argparse.Namespace, job: weave.Job, phase: str, iteration: int) -> None:
    _note(given, job, phase, iteration, "begin")
    if (phase, iteration) == (given.hang_in, given.at):
        print("hangs now", flush=True)
        time.sleep(1000)
    time.sleep(given.seconds)
    _note(given, job, phase, iteration, "end")


def _note(given: argparse.Namespace, job: weave.Job, phase: str, iteration: int, edge: str) -> None:
    line = f"{job.name} {job.attempt} {phase} {iteration} {edge} {time.monotonic_ns()} {os.getpid()}\n"
    file = os.open(given.records, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(file, line.encode())
    os.close(file)


def _tell(given: argparse.Namespace, job: weave.Job, what: str) -> None:
    """Roles of one job wait for each other through files, where a real job has its weights and samples."""
    if job.role != "run":
        Path(f"{given.records}.{job.name}.{job.attempt}.{what}").touch()


def _await(given: argparse.Namespace, job: weave.Job, what: str, needed: bool) -> None:
    while needed and job.role != "run" and not Path(f"{given.records}.{job.name}.{job.attempt}.{what}").exists():
        time.sleep(0.005)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", required=True)
    parser.add_argument("--iterations", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=0.02)
    parser.add_argument("--children", type=int, default=0)
    parser.add_argument("--hang-in", default="")
    parser.add_argument("--at", type=int, default=1)
    parser.add_argument("--ignore-term", action="store_true")
    parser.add_argument("--linger-role", default="")
    parser.add_argument("--saves", action="store_true")
    return parser.parse_args(sys.argv[1:])


if __name__ == "__main__":
    main()
