"""A cluster on a store that somebody else runs."""

import os
import shutil
import socket
import tempfile
from pathlib import Path

import msgspec
import pytest
from live import cluster

from weaverl.channel.valkey_server import ValkeyServer
from weaverl.cli.cluster import bring_up, take_down
from weaverl.control.client import Client, connect
from weaverl.control.home import Home
from weaverl.domain.cluster import StoreAddress
from weaverl.errors import ClusterError


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def place():
    directory = Path(tempfile.mkdtemp(prefix="weaverl-ext-"))
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


def test_a_cluster_comes_up_on_a_given_store_and_leaves_it_running(place: Path):
    server = ValkeyServer(place / "theirs", port=free_port())
    server.start()
    try:
        password = place / "password"
        password.write_text(server.password)
        given = StoreAddress(url=server.url, password_file=str(password))
        home = Home(place / "home")
        bring_up(home, msgspec.structs.replace(cluster(), store=given), while_alive=os.getpid())
        record = home.require_head()
        assert record.access.url == server.url
        assert Client(connect(record.access)).status() is not None
        assert not home.store.exists()
        take_down(home, record)
        assert server.alive()
    finally:
        server.stop()


def test_a_store_that_is_not_there_is_named_at_once(place: Path):
    url = f"redis://127.0.0.1:{free_port()}/0"
    with pytest.raises(ClusterError, match=r"127\.0\.0\.1"):
        bring_up(Home(place / "home"), msgspec.structs.replace(cluster(), store=StoreAddress(url=url)))
