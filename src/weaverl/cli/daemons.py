"""The processes behind a cluster; the head starts them, people rarely do."""

import logging
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Annotated

import typer

from weaverl.control.home import Home
from weaverl.errors import FencedError, UsageError


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(hidden=True)(head)
    app.command(hidden=True)(controller)
    app.command(hidden=True)(agent)


def head(
    while_alive: Annotated[int, typer.Option(help="Shut down when the process with this pid ends.")] = 0,
) -> None:
    """Supervise store, controller and this host's agents."""
    from weaverl.control.head import Head
    from weaverl.control.processes import ProcessId

    _log_to_stderr()
    stop = _stop_on_signal()
    if while_alive:
        owner = ProcessId.of(while_alive)
        _stop_when(lambda: owner is None or not owner.is_alive(), stop)
    Head(Home(), os.environ).run(stop)


def controller() -> None:
    """Lead the cluster: read events, decide, write facts."""
    from weaverl.control.client import connect
    from weaverl.control.controller import Controller

    _log_to_stderr()
    home = Home()
    store = connect(home.require_head().access, patience_seconds=2.0)
    try:
        Controller(store, home.read_cluster(), f"{os.uname().nodename}/{os.getpid()}").run(_stop_on_signal())
    except FencedError as error:
        logging.getLogger("weaverl.controller").warning("%s", error)
        raise


def agent(node: str) -> None:
    """Serve a node of this host: start, watch and stop the processes of jobs."""
    from weaverl.control.agent import Agent
    from weaverl.control.client import connect

    _log_to_stderr()
    home = Home()
    record = home.require_head()
    served = next((one for one in record.cluster.nodes if one.name == node), None)
    if served is None:
        names = ", ".join(one.name for one in record.cluster.nodes)
        raise UsageError(f"cluster {record.cluster.name} has no node {node}: it has {names}")
    store = connect(record.access, patience_seconds=2.0)
    Agent(store, home.instance, served, home.directory, record.access).run(_stop_on_signal())


def _stop_on_signal() -> threading.Event:
    stop = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    return stop


def _stop_when(condition: Callable[[], bool], stop: threading.Event) -> None:
    def watch() -> None:
        while not stop.wait(0.5):
            if condition():
                stop.set()

    threading.Thread(target=watch, daemon=True).start()


def _log_to_stderr() -> None:
    level = os.environ.get("WEAVERL_LOG", "INFO").upper()
    logging.basicConfig(level=level, format="%(asctime)s %(name)s %(levelname)s %(message)s")
