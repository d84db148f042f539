"""The store that a sync group meets at: its port is bound once and kept, so nobody can take it in between."""

from datetime import timedelta

from torch._C._distributed_c10d import TCPStore

from weaverl.errors import WeightSyncError


def open_store(host: str, port: int = 0, *, timeout_seconds: float = 60.0) -> TCPStore:
    """Serve a store; port 0 takes a free one, and the store's ``port`` is then to be published.

    Raises WeightSyncError that names the port if it is taken.
    """
    return _store(host, port, timeout_seconds, serve=True)


def join_store(host: str, port: int, *, timeout_seconds: float = 60.0) -> TCPStore:
    """Connect to a store that another rank serves; WeightSyncError if nobody answers in time."""
    return _store(host, port, timeout_seconds, serve=False)


def _store(host: str, port: int, timeout_seconds: float, *, serve: bool) -> TCPStore:
    try:
        return TCPStore(host, port, is_master=serve, wait_for_workers=False, timeout=timedelta(seconds=timeout_seconds))
    except RuntimeError as error:
        deed = "be served on" if serve else "be reached at"
        reason = str(error).partition("\n")[0]
        raise WeightSyncError(f"the store of the sync group cannot {deed} {host} port {port}: {reason}") from error
