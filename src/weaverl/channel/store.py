"""What the control channel asks of a store.

Everything is written through ``commit``: all or nothing, and once, however often it is retried. Readers poll
streams with a bounded wait and keep their own position, so a reply lost on the way loses nothing.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

START = "0-0"
"""The position before the first entry of any stream."""


class Entry(NamedTuple):
    """A record of a stream. ``position`` is opaque, and grows along the stream."""

    position: str
    data: bytes


class Append(NamedTuple):
    """Add a record at the end of a stream."""

    stream: str
    data: bytes


class Put(NamedTuple):
    """Set a key. With ``ttl_seconds`` the key goes away by itself; never used for anything that decides."""

    key: str
    value: bytes
    ttl_seconds: float | None = None


class Delete(NamedTuple):
    """Remove a key or a stream; removing what is not there is no error.

    The name of a removed stream is not for use again: readers may still hold positions in it.
    """

    key: str


class Trim(NamedTuple):
    """Drop the records of a stream up to and including a position."""

    stream: str
    position: str


Write = Append | Put | Delete | Trim


class Lease(NamedTuple):
    """A named right with an end. ``token`` grows with every acquisition of the name, and never goes back.

    ``owner`` is compared too: a store that lost its last writes may hand the same token out twice.
    """

    name: str
    token: int
    owner: str


class Identity(NamedTuple):
    """Which server process answers, and how many commits its history holds.

    Another ``run_id`` is a restart or another server; an ``offset`` below one seen before is lost writes.
    """

    run_id: str
    offset: int


def producer_key(producer: str) -> str:
    """The key of a producer's last sequence; a Delete of it forgets a producer that will never write again."""
    return f"producer:{producer}"


class Store(Protocol):
    """A store. All methods raise StoreUnavailableError (no answer: may be retried) or StoreRefusedError."""

    def commit(self, writes: Sequence[Write], *, producer: str, sequence: int, guard: Lease | None = None) -> bool:
        """Apply all writes, or none.

        A (producer, sequence) whose sequence is not above the producer's last is a repeat: nothing happens and
        False is returned. With ``guard``, nothing happens unless that lease is still held: FencedError.
        """

    def last_sequence(self, producer: str) -> int:
        """The sequence of the producer's last applied commit, 0 if there is none."""

    def read(self, stream: str, after: str, *, limit: int = 256, wait_seconds: float = 0.0) -> list[Entry]:
        """Records after a position, in order; waits up to ``wait_seconds`` for the first, then returns []."""

    def last_position(self, stream: str) -> str:
        """The position of a stream's last record, START if it has none."""

    def get(self, key: str) -> bytes | None:
        """The value of a key."""

    def get_prefix(self, prefix: str) -> dict[str, bytes]:
        """All keys that begin with ``prefix``, with their values."""

    def acquire_lease(self, name: str, owner: str, ttl_seconds: float) -> Lease | None:
        """Take the lease if nobody holds it; None if another owner does. The owner itself gets it again.

        A repeat by the same owner while it holds the lease returns the same token.
        """

    def renew_lease(self, lease: Lease, ttl_seconds: float) -> bool:
        """Push the end of a held lease out; False if it was lost (expired or taken)."""

    def release_lease(self, lease: Lease) -> bool:
        """Give a held lease back; False, and nothing happens, if it was lost."""

    def identity(self) -> Identity:
        """Which server answers now."""

    def close(self) -> None:
        """Drop all connections; the store itself stays, and the next call connects again."""
