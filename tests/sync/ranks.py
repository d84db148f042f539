"""Real processes that sync over gloo: each does the steps that it is told and reports what happened."""

import multiprocessing
import os
import signal
import time

import torch
from torch.distributed import TCPStore

from weaverl.errors import WeaverlError
from weaverl.runtime.weights import Weights
from weaverl.sync.flat import FlatSync
from weaverl.sync.link import GlooLink

# Forked from a server that has torch loaded and no threads: a start takes milliseconds, not seconds.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["weaverl.runtime.weights", "weaverl.sync.flat"])


class Rank:
    """A process of the sync group, told what to do through a pipe."""

    def __init__(self, rank, receivers, port, **options):
        self._pipe, theirs = PROCESSES.Pipe()
        arguments = (theirs, {"rank": rank, "receivers": receivers, "port": port, **options})
        self.process = PROCESSES.Process(target=serve_rank, args=arguments, daemon=True)
        self.process.start()
        theirs.close()
        self.port = self.result()

    def tell(self, **step):
        self._pipe.send(step)

    def result(self):
        assert self._pipe.poll(60), "a rank hangs"
        return self._pipe.recv()

    def do(self, **step):
        self.tell(**step)
        return self.result()

    def close(self):
        self.process.kill()
        self.process.join()


class FailingLink(GlooLink):
    """Sends its process a signal, or damages a byte, at one chunk."""

    chunk = 0
    signal_at = -1
    signal_number = signal.SIGKILL
    damage_at = -1

    def receive(self, data):
        self._raise_signal()
        super().receive(data)
        if FailingLink.chunk == FailingLink.damage_at:
            data[0] ^= 1
        FailingLink.chunk += 1

    def send(self, data, ranks):
        self._raise_signal()
        super().send(data, ranks)
        FailingLink.chunk += 1

    def _raise_signal(self):
        if FailingLink.chunk == FailingLink.signal_at:
            os.kill(os.getpid(), FailingLink.signal_number)


def make_tensors(description):
    tensors = {}
    for name, (values, dtype) in description.items():
        tensors[name] = torch.tensor(values, dtype=torch.float32).to(getattr(torch, dtype))
    return tensors


def make_strategy(store, options):
    return FlatSync(
        store,
        options["rank"],
        options["receivers"],
        timeout_seconds=options.get("timeout", 10.0),
        patience_seconds=options.get("patience", 10.0),
        chunk_bytes=options.get("chunk", 64),
        backend=options.get("backend", "gloo"),
        make_link=FailingLink,
    )


def serve_rank(pipe, options):
    torch.set_num_threads(1)
    store = TCPStore("127.0.0.1", options["port"], is_master=options["rank"] == 0, wait_for_workers=False)
    pipe.send(store.port)
    weights = Weights(make_strategy(store, options))
    model = {}
    while True:
        step = pipe.recv()
        model = make_tensors(step["model"]) if "model" in step else model
        FailingLink.chunk = 0
        FailingLink.signal_at = step.get("signal_at", -1)
        FailingLink.signal_number = step.get("signal", signal.SIGKILL)
        FailingLink.damage_at = step.get("damage_at", -1)
        pipe.send(do_step(step["do"], weights, model))


def do_step(deed, weights, model):
    started = time.monotonic()
    error = ""
    try:
        weights.push(model) if deed == "push" else weights.pull(model)
    except WeaverlError as failure:
        error = f"{type(failure).__name__}: {failure}"
    return {
        "error": error,
        "version": weights.version,
        "seconds": time.monotonic() - started,
        "model": {name: tensor.float().tolist() for name, tensor in model.items()},
    }
