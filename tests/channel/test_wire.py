"""Events, commands and facts as bytes: what comes back, what is ignored, what is refused."""

import contextlib
import typing

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weaverl.channel.wire import (
    PROTOCOL,
    WireError,
    decode_command,
    decode_event,
    decode_fact,
    encode_command,
    encode_event,
    encode_fact,
)
from weaverl.domain.commands import AnyCommand
from weaverl.domain.events import AnyEvent, JobCancelled, PhaseEnded, PhaseReport, RankId, TimerFired, Token
from weaverl.domain.facts import SCHEMA, Fact
from weaverl.domain.jobs import PhaseKind

EVENT_TYPES = typing.get_args(AnyEvent)
COMMAND_TYPES = typing.get_args(AnyCommand)

PHASE_ENDED = PhaseEnded(
    at=7,
    rank=RankId("math-7b", 1, "rollout", 3),
    token=Token(2, 41),
    phase=PhaseKind.ROLLOUT,
    iteration=5,
    vacated=True,
    report=PhaseReport(wait_us=1, body_us=2, tokens=3),
)

SCALARS = {
    int: st.integers(-(2**63), 2**64 - 1),
    str: st.text(max_size=8),
    float: st.floats(allow_nan=False),
    bool: st.booleans(),
    type(None): st.none(),
}


def records(types):
    return st.one_of([record(record_type) for record_type in types])


def record(record_type):
    """Records of a type with all fields drawn, those with defaults too."""
    hints = typing.get_type_hints(record_type)
    fields = [hints[field.name] for field in msgspec.structs.fields(record_type)]
    names = [field.name for field in msgspec.structs.fields(record_type)]
    drawn = st.tuples(*(value(hint) for hint in fields))
    return drawn.map(lambda values: record_type(**dict(zip(names, values, strict=True))))


def value(hint):
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return record(hint)
    if origin is tuple:
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return st.lists(value(arguments[0]), max_size=2).map(tuple)
        return st.tuples(*(value(argument) for argument in arguments))
    if origin is dict:
        return st.dictionaries(value(arguments[0]), value(arguments[1]), max_size=2)
    if arguments:
        return st.one_of([value(argument) for argument in arguments])
    return SCALARS[hint] if hint in SCALARS else st.sampled_from(hint)


@pytest.mark.parametrize("event_type", EVENT_TYPES, ids=lambda event_type: event_type.__name__)
def test_every_type_of_event_comes_back_as_it_was(event_type):
    @settings(max_examples=15, deadline=None)
    @given(record(event_type))
    def check(event):
        assert decode_event(encode_event(event)) == event

    check()


@pytest.mark.parametrize("command_type", COMMAND_TYPES, ids=lambda command_type: command_type.__name__)
def test_every_type_of_command_comes_back_as_it_was(command_type):
    @settings(max_examples=15, deadline=None)
    @given(record(command_type))
    def check(command):
        assert decode_command(encode_command(command)) == command

    check()


@settings(max_examples=30, deadline=None)
@given(records(EVENT_TYPES), st.lists(records(COMMAND_TYPES), max_size=3))
def test_a_fact_comes_back_as_it_was(event, commands):
    fact = Fact(schema=SCHEMA, code="0.1.0", policy="weave", event=event, commands=tuple(commands))
    assert decode_fact(encode_fact(fact)) == fact


def altered(data, **changes):
    envelope = msgspec.msgpack.decode(data)
    envelope.update(changes)
    return envelope


def test_fields_that_a_newer_peer_added_are_ignored():
    envelope = altered(encode_event(PHASE_ENDED), sent_by="t3")
    envelope["body"]["mood"] = "fine"
    envelope["body"]["report"]["watts"] = 700
    assert decode_event(msgspec.msgpack.encode(envelope)) == PHASE_ENDED


def test_fields_that_an_older_peer_left_out_take_their_defaults():
    envelope = altered(encode_event(PHASE_ENDED))
    del envelope["body"]["failed"], envelope["body"]["report"]["saved_bytes"]
    assert decode_event(msgspec.msgpack.encode(envelope)) == PHASE_ENDED


def test_a_record_of_an_unknown_type_in_a_newer_protocol_is_refused_by_its_number():
    data = msgspec.msgpack.encode({"protocol": PROTOCOL + 1, "body": {"type": "Teleported", "job": "a"}})
    for decode in (decode_event, decode_command):
        with pytest.raises(WireError, match=f"protocol {PROTOCOL + 1}.*upgrade weaverl"):
            decode(data)


def test_a_readable_record_in_a_newer_protocol_is_refused_by_its_number():
    data = msgspec.msgpack.encode(altered(encode_event(PHASE_ENDED), protocol=PROTOCOL + 1))
    with pytest.raises(WireError, match=f"protocol {PROTOCOL + 1}"):
        decode_event(data)


def test_a_fact_of_a_newer_schema_is_refused_by_its_number():
    fact = Fact(schema=SCHEMA, code="0.1.0", policy="weave", event=TimerFired(name="t"), commands=())
    readable = msgspec.msgpack.encode(altered(encode_fact(fact), schema=SCHEMA + 1))
    unreadable = msgspec.msgpack.encode(altered(encode_fact(fact), schema=SCHEMA + 1, event={"type": "Teleported"}))
    for data in (readable, unreadable):
        with pytest.raises(WireError, match=f"schema {SCHEMA + 1}"):
            decode_fact(data)


def test_a_record_cut_anywhere_is_told_as_damaged():
    data = encode_event(PHASE_ENDED)
    for length in range(len(data)):
        with pytest.raises(WireError, match=f"{length} bytes"):
            decode_event(data[:length])


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 255))
def test_a_record_with_a_wrong_byte_is_read_or_told_but_never_crashes(place, byte):
    data = bytearray(encode_event(PHASE_ENDED))
    data[place % len(data)] = byte
    with contextlib.suppress(WireError):
        decode_event(bytes(data))


def test_an_event_is_not_taken_for_a_command():
    with pytest.raises(WireError):
        decode_command(encode_event(JobCancelled(job="a")))
