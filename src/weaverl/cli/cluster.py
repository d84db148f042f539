"""`weaverl up`, `down`, `status`."""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from weaverl.cli.outputs import naming, write_json
from weaverl.control.client import Client, connect
from weaverl.control.head import CANNOT_RUN, end_cluster
from weaverl.control.home import HEAD, HeadRecord, Home
from weaverl.control.log_tail import last_lines
from weaverl.control.processes import MARK, start
from weaverl.control.rank_process import without_weaverl
from weaverl.control.status import ClusterStatus
from weaverl.domain.cluster import Cluster
from weaverl.errors import ClusterError, StoreUnavailableError, UsageError
from weaverl.scheduling.state import Parameters, parameters_of

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
    with naming(cluster_file):
        check_local(cluster)
    home = Home()
    if bring_up(home, cluster):
        print(f"cluster {cluster.name} is up: {len(cluster.nodes)} nodes. Next: weaverl submit JOB.yaml")
    else:
        print(f"cluster {cluster.name} was up already")


def down() -> None:
    """Cancel all jobs and take the cluster down. Logs and timeline stay."""
    home = Home()
    if home.head() is None and not home.processes():
        print(f"no cluster is up in {home.directory}")
        return
    with home.changing():
        cluster = home.read_cluster()
        kept = _keep_timeline(home)
        take_down(home, home.head())
    print(f"cluster {cluster.name} is down" + (f"; what ran: weaverl report {kept}" if kept else ""))


def status(
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Show nodes and jobs."""
    published = require_status(Home())
    if as_json:
        write_json(published, Path("-"))
        return
    from weaverl.cli.status_view import print_status
    from weaverl.reports.tables import console_for

    print_status(published, console_for(sys.stdout))


def bring_up(home: Home, cluster: Cluster, *, while_alive: int = 0, parameters: Parameters | None = None) -> bool:
    """Start a head and wait until all nodes are ready; False if the same cluster is up already.

    With ``while_alive`` the cluster, and its state directory, go when the process with that pid ends. ``parameters``,
    if given, say policy and objective too, whatever the cluster file says; what is up has them written down with the
    cluster.

    Raises UsageError if another cluster is up there, the directory cannot be used, or something cannot run as things
    are; ClusterError with the head's last words if it does not come up.
    """
    chosen = parameters or parameters_of(cluster)
    try:
        with home.changing():
            told = msgspec.structs.replace(cluster, policy=chosen.policy, objective=chosen.objective)
            return _bring_up(home, told, while_alive, chosen)
    except OSError as error:
        raise UsageError(
            f"{home.directory} cannot keep the cluster's state ({error.strerror}: {error.filename or error}): make "
            f"room there, or set WEAVERL_HOME to another directory"
        ) from error


def take_down(home: Home, record: HeadRecord | None, patience_seconds: float = 20.0) -> None:
    """Cancel the jobs, then stop the head and whatever is left of it, known by mark and start time only."""
    if record is not None:
        try:
            Client(connect(record.access, patience_seconds=2.0)).cancel_all(patience_seconds)
        except ClusterError as error:
            print(f"jobs are stopped without the controller: {error}", file=sys.stderr)
    head = home.process(HEAD)
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + 40.0
        while head is not None and head.is_alive() and time.monotonic() < deadline:
            head.send(number)
            time.sleep(0.1)
    end_cluster(home)


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


def _bring_up(home: Home, cluster: Cluster, while_alive: int, parameters: Parameters) -> bool:
    running = home.processes()
    if running and home.read_cluster() != cluster:
        raise UsageError(
            f"cluster {home.read_cluster().name} is up in {home.directory} and differs: run `weaverl down` first, or "
            f"set WEAVERL_HOME to another directory"
        )
    since = time.time()
    if HEAD in running:
        _await_ready(home, cluster, lambda: None if home.process(HEAD) else 1, 0.0)
        return False
    home.check_room()
    if not running:
        _set_aside_foreign_history(home, cluster)
    home.write_cluster(cluster)
    arguments = ["head", *(["--while-alive", str(while_alive)] if while_alive else [])]
    child = start(
        [sys.executable, "-m", "weaverl.cli.main", *arguments],
        environment=_head_environment(home, parameters),
        directory=home.directory,
        log=home.logs / "head.log",
    )
    try:
        _await_ready(home, cluster, child.poll, since)
    except BaseException:  # also Ctrl-C
        if while_alive:
            # Whoever wanted it gives up: its directory may go at once, so the head goes first.
            child.terminate()
            child.wait()
        raise
    return True


def _head_environment(home: Home, parameters: Parameters) -> dict[str, str]:
    """Ours, without what an outer weaverl job says; its mark stays, since the outer job's end is the head's too."""
    kept = {name: os.environ[name] for name in (MARK, "WEAVERL_LOG") if name in os.environ}
    given = {"WEAVERL_PARAMETERS": msgspec.json.encode(parameters).decode()} if parameters != Parameters() else {}
    return {**without_weaverl(os.environ), **kept, **given, "WEAVERL_HOME": str(home.directory)}


def _await_ready(home: Home, cluster: Cluster, head_end: Callable[[], int | None], since: float) -> None:
    log = home.logs / "head.log"
    deadline = time.monotonic() + _UP_PATIENCE_SECONDS
    while not _is_ready(home, cluster, since):
        exit_code = head_end()
        if exit_code == CANNOT_RUN:
            raise UsageError(" ".join(last_lines(log, 1)).removeprefix("weaverl: "))
        if exit_code is not None:
            raise ClusterError(f"the head ended: {' '.join(last_lines(log, 1))} (all of it: {log})")
        if time.monotonic() > deadline:
            raise ClusterError(f"the cluster did not come up in {_UP_PATIENCE_SECONDS:.0f} s: see {home.logs}")
        time.sleep(0.05)


def _keep_timeline(home: Home) -> Path | None:
    """Write down who ran where, for when the store is gone; None if the log cannot be read."""
    from weaverl.cli.live_timeline import live_timeline
    from weaverl.reports.timeline_file import write_timeline

    record = home.head()
    if record is None:
        return None
    try:
        header, timeline = live_timeline(connect(record.access, patience_seconds=2.0), record.cluster)
    except ClusterError:
        return None
    path = home.directory / "timeline.jsonl"
    write_timeline(path, header, timeline)
    return path


def _is_ready(home: Home, cluster: Cluster, since: float) -> bool:
    """Whether a controller has said since then that all nodes are ready."""
    record = home.head()
    if record is None or not record.process.is_alive():
        return False
    try:
        published = Client(connect(record.access, patience_seconds=0.5)).status()
    except ClusterError:
        return False
    if published is None or published.written_at < since:
        return False
    ready = {node.name for node in published.nodes if node.state == "ready"}
    return ready == {node.name for node in cluster.nodes}


def _set_aside_foreign_history(home: Home, cluster: Cluster) -> None:
    """History of a cluster with other nodes is kept beside, not read as ours; so are leavings of a lost store."""
    is_ours = home.store.exists() and home.cluster_file.exists() and home.read_cluster() == cluster
    kept = None if is_ours else home.set_history_aside()
    if kept is not None:
        print(f"this is not the cluster that was here before: its history is kept in {kept}")
