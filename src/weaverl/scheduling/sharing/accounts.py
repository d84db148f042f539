"""What tenants have used, as it is kept in the scheduler's state."""

from math import log

import msgspec


class Account(msgspec.Struct):
    """A tenant's decayed usage as of ``at`` (microseconds), and what it uses an hour since then."""

    used: float = 0.0
    per_hour: float = 0.0
    at: int = 0


class Shares(msgspec.Struct):
    """Accounts by tenant, and what each group's nodes come to an hour for each of its tenants.

    ``looks_at``: when the queue is looked at again though nothing has happened; None: nobody waits.
    """

    accounts: dict[str, Account] = {}
    groups: dict[str, dict[str, float]] = {}
    looks_at: int | None = None


def used_by(account: Account, now: int, half_life_us: float) -> float:
    """Decayed usage: what was used a half-life ago counts half, what is used meanwhile as it comes in."""
    half_lives = (now - account.at) / half_life_us
    kept = float(2.0**-half_lives)
    hours = half_life_us / 3600e6
    return account.used * kept + account.per_hour * hours * (1.0 - kept) / log(2.0)
