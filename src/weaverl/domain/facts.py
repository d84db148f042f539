"""The log of facts: each event with the commands decided on it."""

import msgspec

from weaverl.domain.commands import AnyCommand
from weaverl.domain.events import AnyEvent

SCHEMA = 1


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """One record of the log. ``code`` is the version of weaverl that decided it."""

    schema: int
    code: str
    policy: str
    event: AnyEvent
    commands: tuple[AnyCommand, ...]
