"""The records that travel: an envelope with the protocol number around one event or command.

Unknown fields are ignored, so a newer peer may add some; a newer protocol is refused by its number.
"""

import msgspec

from weaverl.domain.commands import AnyCommand
from weaverl.domain.events import AnyEvent
from weaverl.domain.facts import SCHEMA, Fact
from weaverl.errors import ClusterError

PROTOCOL = 1


class _EventEnvelope(msgspec.Struct, frozen=True):
    protocol: int
    body: AnyEvent


class _CommandEnvelope(msgspec.Struct, frozen=True):
    protocol: int
    body: AnyCommand


class _Version(msgspec.Struct, frozen=True):
    protocol: int = 0
    schema: int = 0


class WireError(ClusterError):
    """A record cannot be read: it is damaged, or from a newer version."""


_encoder = msgspec.msgpack.Encoder()
_version_decoder = msgspec.msgpack.Decoder(_Version)
_event_decoder = msgspec.msgpack.Decoder(_EventEnvelope)
_command_decoder = msgspec.msgpack.Decoder(_CommandEnvelope)
_fact_decoder = msgspec.msgpack.Decoder(Fact)


def encode_event(event: AnyEvent) -> bytes:
    """An event as bytes for the controller's inbox."""
    return _encoder.encode(_EventEnvelope(PROTOCOL, event))


def encode_command(command: AnyCommand) -> bytes:
    """A command as bytes for an agent's or a rank's inbox."""
    return _encoder.encode(_CommandEnvelope(PROTOCOL, command))


def encode_fact(fact: Fact) -> bytes:
    """A fact as bytes for the log."""
    return _encoder.encode(fact)


def decode_event(data: bytes) -> AnyEvent:
    """The event of a record; WireError if it is damaged or too new."""
    try:
        envelope = _event_decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise _explain(data, error) from error
    _check_protocol(envelope.protocol)
    return envelope.body


def decode_command(data: bytes) -> AnyCommand:
    """The command of a record; WireError if it is damaged or too new."""
    try:
        envelope = _command_decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise _explain(data, error) from error
    _check_protocol(envelope.protocol)
    return envelope.body


def decode_fact(data: bytes) -> Fact:
    """The fact of a log record; WireError if it is damaged or too new."""
    try:
        fact = _fact_decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise _explain(data, error) from error
    if fact.schema > SCHEMA:
        raise WireError(f"log record has schema {fact.schema}, this weaverl reads up to {SCHEMA}: upgrade weaverl")
    return fact


def _check_protocol(protocol: int) -> None:
    if protocol > PROTOCOL:
        raise WireError(f"a record speaks protocol {protocol}, this weaverl reads up to {PROTOCOL}: upgrade weaverl")


def _explain(data: bytes, error: msgspec.MsgspecError) -> WireError:
    try:
        version = _version_decoder.decode(data)
    except msgspec.MsgspecError:
        return WireError(f"a record of {len(data)} bytes is damaged: {error}")
    if version.protocol > PROTOCOL or version.schema > SCHEMA:
        return WireError(
            f"a record speaks protocol {version.protocol} and schema {version.schema}, this weaverl reads up to "
            f"{PROTOCOL} and {SCHEMA}: upgrade weaverl"
        )
    return WireError(f"a record of {len(data)} bytes cannot be read: {error}")
