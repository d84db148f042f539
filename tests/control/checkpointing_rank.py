"""Training ranks that checkpoint each iteration; in the first attempt rank 1 is killed before its third write."""

import os
import signal
import sys
import warnings

import weaverl as weave

job = weave.init()
warnings.simplefilter("ignore")


def build() -> int:
    found = weave.resume({}) if job.role == "training" else None
    return 0 if found is None else found.iteration + 1


@weave.phase(job.role)
def work(iteration: int) -> None:
    print(f"iteration {iteration}", flush=True)
    if job.role == "training":  # as a gradient's all-reduce does, this needs both ranks
        store.set(f"{iteration}-{job.rank}", "here")
        store.wait([f"{iteration}-{1 - job.rank}"])


start = job.load(build)
store = job.meeting.store  # rollout rank 0 serves it
for iteration in range(start, int(sys.argv[1])):
    work(iteration)
    if job.role == "training":
        if (job.attempt, job.rank, iteration) == (1, 1, 2):
            os.kill(os.getpid(), signal.SIGKILL)
        weave.checkpoint(iteration, {"attempt": job.attempt})
if job.role == "training":
    store.set(f"done-{job.rank}", "")
else:
    store.wait(["done-0", "done-1"])
