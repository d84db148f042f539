"""`weaverl up`, `down`, `status`."""

import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from weaverl.control.client import Client, connect
from weaverl.control.home import HeadRecord, Home
from weaverl.control.log_tail import last_lines
from weaverl.control.processes import ProcessId, kill_marked, start
from weaverl.control.status import ClusterStatus
from weaverl.domain.cluster import Cluster
from weaverl.errors import ClusterError, StoreUnavailableError, UsageError

_UP_PATIENCE_SECONDS = 60.0


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(up)
    app.command()(down)
    app.command()(status)


def up(cluster_file: Annotated[Path, typer.Argument(metavar="CLUSTER.yaml", show_default=False)]) -> None:
    """Bring a cluster up on this machine, in the background. Running it again changes nothing."""
    from weaverl.config.checks import check_local
    from weaverl.config.cluster_file import load_cluster

    cluster = load_cluster(cluster_file)
    check_local(cluster)
    home = Home()
    if bring_up(home, cluster):
        print(f"cluster {cluster.name} is up: {len(cluster.nodes)} nodes. Next: weaverl submit JOB.yaml")
    else:
        print(f"cluster {cluster.name} was up already")


def down() -> None:
    """Cancel all jobs and take the cluster down. Its history stays."""
    home = Home()
    record = home.head()
    if record is None:
        print(f"no cluster is up in {home.directory}")
        return
    take_down(home, record)
    print(f"cluster {record.cluster.name} is down")


def status(
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Show nodes and jobs."""
    published = require_status(Home())
    if as_json:
        print(json.dumps(msgspec.to_builtins(published), indent=2))
        return
    from weaverl.cli.status_view import print_status

    print_status(published, sys.stdout)


def bring_up(home: Home, cluster: Cluster, *, while_alive: int = 0) -> bool:
    """Start a head and wait until all nodes are ready; False if the same cluster is up already.

    Raises UsageError if another cluster is up there, ClusterError with the head's last words if it does not come up.
    """
    record = home.head()
    if record is not None and record.process.is_alive():
        if record.cluster != cluster:
            raise UsageError(
                f"cluster {record.cluster.name} is up in {home.directory} and differs: run `weaverl down` first, or "
                f"set WEAVERL_HOME to another directory"
            )
        return False
    _set_aside_foreign_state(home, cluster)
    home.write_cluster(cluster)
    home.remove_head()
    log = home.logs / "head.log"
    arguments = ["head", *(["--while-alive", str(while_alive)] if while_alive else [])]
    child = start(
        [sys.executable, "-m", "weaverl.cli.main", *arguments],
        environment={**os.environ, "WEAVERL_HOME": str(home.directory)},
        directory=home.directory,
        log=log,
    )
    deadline = time.monotonic() + _UP_PATIENCE_SECONDS
    while not _is_ready(home, cluster):
        if child.poll() is not None:
            raise ClusterError(f"the head ended: {' '.join(last_lines(log, 2))} (all of it: {log})")
        if time.monotonic() > deadline:
            raise ClusterError(f"the cluster did not come up in {_UP_PATIENCE_SECONDS:.0f} s: see {home.logs}")
        time.sleep(0.05)
    return True


def take_down(home: Home, record: HeadRecord, patience_seconds: float = 20.0) -> None:
    """Cancel the jobs, then stop the head and whatever is left of it, known by mark and start time only."""
    try:
        Client(connect(record.access, patience_seconds=2.0)).cancel_all(patience_seconds)
    except ClusterError as error:
        print(f"jobs are stopped without the controller: {error}", file=sys.stderr)
    deadline = time.monotonic() + 40.0
    while record.process.is_alive() and time.monotonic() < deadline:
        record.process.send(signal.SIGTERM)
        time.sleep(0.1)
    record.process.send(signal.SIGKILL)
    _stop_orphans(home)
    home.remove_head()


def require_status(home: Home) -> ClusterStatus:
    """What the controller last published, with a word of warning if it is old."""
    record = home.require_head()
    try:
        published = Client(connect(record.access, patience_seconds=2.0)).status()
    except StoreUnavailableError as error:
        raise ClusterError(f"cluster {record.cluster.name} does not answer: {error}; see {home.logs}") from error
    if published is None:
        raise ClusterError(f"the controller of {record.cluster.name} has not published anything yet; see {home.logs}")
    age = time.time() - published.written_at
    if age > 10:
        print(f"weaverl: this status is {age:.0f} s old: the controller is away", file=sys.stderr)
    return published


def _is_ready(home: Home, cluster: Cluster) -> bool:
    record = home.head()
    if record is None:
        return False
    try:
        published = Client(connect(record.access, patience_seconds=0.5)).status()
    except ClusterError:
        return False
    known = {node.name for node in published.nodes if node.state == "ready"} if published else set()
    return known == {node.name for node in cluster.nodes}


def _set_aside_foreign_state(home: Home, cluster: Cluster) -> None:
    """History of a cluster with other nodes is kept beside, not read as ours."""
    if home.cluster_file.exists() and home.read_cluster() != cluster and home.store.exists():
        kept = home.directory / f"store-{time.strftime('%Y%m%dT%H%M%S')}"
        shutil.move(home.store, kept)
        print(f"the cluster file changed: history so far is kept in {kept}")


def _stop_orphans(home: Home) -> None:
    """A head that was killed leaves its children; they are known by their records."""
    kill_marked(f"{home.instance}/")
    for path in home.directory.glob("process-*.json"):
        process = msgspec.json.decode(path.read_bytes(), type=ProcessId)
        process.send(signal.SIGTERM)
        deadline = time.monotonic() + 10.0
        while process.is_alive() and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send(signal.SIGKILL)
    from weaverl.channel.valkey_server import ValkeyServer

    ValkeyServer(home.store).stop()
