"""Where a store is: what a store URL says, with the secrets kept out of every message."""

from dataclasses import dataclass, field
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from weaverl.errors import UsageError

_DEFAULT_PORT = 6379
_FORMS = "redis://[:password@]host:port/db, rediss://... or unix:///path.sock?password=..."


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Address and credentials of a store: a unix socket if ``path`` is set, else TCP, with TLS if ``tls``."""

    host: str = "localhost"
    port: int = _DEFAULT_PORT
    path: str = ""
    tls: bool = False
    database: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"unix://{self.path}" if self.path else f"{self.host}:{self.port}"


def parse_url(url: str, *, username: str | None = None, password: str | None = None) -> Endpoint:
    """What a store URL says; ``username`` and ``password`` win over those in the URL.

    Raises UsageError, without the URL in its text (it may hold a password).
    """
    try:
        parts = urlsplit(url)
        endpoint = _unix_endpoint(parts) if parts.scheme == "unix" else _tcp_endpoint(parts)
    except ValueError as error:
        raise UsageError(f"the store URL cannot be read ({error}): write {_FORMS}") from None
    return Endpoint(
        host=endpoint.host,
        port=endpoint.port,
        path=endpoint.path,
        tls=endpoint.tls,
        database=endpoint.database,
        username=username or endpoint.username,
        password=password or endpoint.password,
    )


def _tcp_endpoint(parts: SplitResult) -> Endpoint:
    if parts.scheme not in ("redis", "rediss"):
        raise ValueError(f"its scheme is {parts.scheme!r}")
    if not parts.hostname:
        raise ValueError("it names no host")
    options = _options(parts.query, allowed=frozenset())
    assert not options
    return Endpoint(
        host=parts.hostname,
        port=parts.port or _DEFAULT_PORT,
        tls=parts.scheme == "rediss",
        database=_database(parts.path.strip("/")),
        username=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password else None,
    )


def _unix_endpoint(parts: SplitResult) -> Endpoint:
    if parts.netloc or not parts.path.startswith("/"):
        raise ValueError("a unix URL has three slashes before an absolute path")
    options = _options(parts.query, allowed=frozenset({"db", "username", "password"}))
    return Endpoint(
        path=unquote(parts.path, errors="surrogateescape"),
        database=_database(options.get("db", "")),
        username=options.get("username"),
        password=options.get("password"),
    )


def _options(query: str, allowed: frozenset[str]) -> dict[str, str]:
    options = {key: values[-1] for key, values in parse_qs(query, strict_parsing=bool(query)).items()}
    if unknown := options.keys() - allowed:
        raise ValueError(f"it has the unknown options {sorted(unknown)}")
    return options


def _database(text: str) -> int:
    if text and not text.isdecimal():
        raise ValueError("its database is not a number")
    return int(text or 0)
