"""Two processes of one job, started by hand as torchrun does it: no agent, no controller, torch's process group."""

import multiprocessing
import os
import signal
import socket
import warnings

from weaverl.errors import CheckpointError
from weaverl.runtime import job_checkpoints

# Forked from a server that has torch loaded and no threads: a start takes milliseconds, not seconds.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["weaverl.runtime.checkpoint", "weaverl.sync.flat"])


def run_by_hand(base, dies_at=""):
    """What each of two ranks resumed from, ``dead`` for one that could not say."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    pipes, ranks = [], []
    for rank in range(2):
        ours, theirs = PROCESSES.Pipe(duplex=False)
        process = PROCESSES.Process(target=_run, args=(theirs, str(base), port, rank, dies_at), daemon=True)
        process.start()
        theirs.close()
        pipes.append(ours)
        ranks.append(process)
    for process in ranks:
        process.join(60)
        assert process.exitcode is not None, "a rank hangs"
    return [_said(pipe) for pipe in pipes]


def _said(pipe):
    try:
        return pipe.recv()
    except EOFError:
        return "dead"


def _run(pipe, base, port, rank, dies_at):
    import torch.distributed as dist

    os.environ.update(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    os.environ["WEAVERL_CHECKPOINT_DIRECTORY"] = base
    dist.init_process_group("gloo")
    if dies_at == "resume" and rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    warnings.simplefilter("ignore")
    try:
        checkpoint = job_checkpoints.resume({})
    except CheckpointError as error:
        pipe.send(str(error))
        return
    pipe.send(None if checkpoint is None else checkpoint.iteration)
    for iteration in range(3 if dies_at == "write" else 0):
        if rank == 1 and iteration == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        job_checkpoints.checkpoint(iteration, {"run": 0})
