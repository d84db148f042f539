"""The processes behind a cluster; the head starts them, people rarely do."""

import logging
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Annotated

import msgspec
import typer

from weaverl.channel.wire import WireError
from weaverl.control.home import Home
from weaverl.errors import UsageError
from weaverl.scheduling.state import Parameters


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(hidden=True)(head)
    app.command(hidden=True)(controller)
    app.command(hidden=True)(agent)


def head(
    while_alive: Annotated[int, typer.Option(help="Shut down when the process with this pid ends.")] = 0,
) -> None:
    """Supervise store, controller and this host's agents. With --while-alive the state directory goes at the end."""
    from weaverl.control.head import Head
    from weaverl.control.processes import MARK, ProcessId

    _log_to_stderr()
    stop = _stop_on_signal()
    if while_alive:
        owner = ProcessId.of(while_alive)
        _stop_when(lambda: owner is None or not owner.is_alive(), stop)
    home = Home()
    environment = dict(os.environ)
    os.environ[MARK] = home.store_mark  # the store inherits it, and is found even if its files are gone
    Head(home, environment).run(stop)
    if while_alive:
        shutil.rmtree(home.directory, ignore_errors=True)


def controller() -> None:
    """Lead the cluster: read events, decide, write facts."""
    from weaverl.control.client import connect
    from weaverl.control.controller import Controller

    _log_to_stderr()
    stop = _stop_on_signal()
    # A plan of moves is thought out beside the hand-overs: by default each message of theirs would wait 5 ms for it.
    sys.setswitchinterval(0.0005)
    home = Home()
    home.hold("controller")
    store = connect(home.require_head().access, patience_seconds=2.0)
    owner = f"{os.uname().nodename}/{home.instance}"
    try:
        Controller(store, home.read_cluster(), owner, parameters_of(os.environ)).run(stop)
    except WireError as error:
        # What is written will not change by trying again: the head is told so by exit code 2.
        raise UsageError(str(error)) from error


def agent(node: str) -> None:
    """Serve a node of this host: start, watch and stop the processes of jobs."""
    from weaverl.control.agent import Agent
    from weaverl.control.client import connect

    _log_to_stderr()
    stop = _stop_on_signal()
    home = Home()
    home.hold(f"agent-{node}")
    record = home.require_head()
    served = next((one for one in record.cluster.nodes if one.name == node), None)
    if served is None:
        names = ", ".join(one.name for one in record.cluster.nodes)
        raise UsageError(f"cluster {record.cluster.name} has no node {node}: it has {names}")
    store = connect(record.access, patience_seconds=2.0)
    Agent(store, home.instance, served, home.directory, record.access).run(stop)


def parameters_of(environment: Mapping[str, str]) -> Parameters:
    """The scheduler's parameters; ``WEAVERL_PARAMETERS`` has those that differ from the default, as JSON."""
    return msgspec.json.decode(environment.get("WEAVERL_PARAMETERS", "{}"), type=Parameters)


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
