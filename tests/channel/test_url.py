"""Store URLs: what they say, and that their secrets stay out of messages."""

import pytest

from weaverl.channel.url import Endpoint, parse_url
from weaverl.errors import UsageError


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        ("redis://head", Endpoint(host="head")),
        ("redis://head:7000/3", Endpoint(host="head", port=7000, database=3)),
        ("redis://[::1]:7000", Endpoint(host="::1", port=7000)),
        ("redis://:p%40ss@head", Endpoint(host="head", password="p@ss")),
        ("rediss://me:pw@head:7000/0", Endpoint(host="head", port=7000, tls=True, username="me", password="pw")),
        ("unix:///run/v.sock", Endpoint(path="/run/v.sock")),
        ("unix:///a%20b.sock?password=p%26w&username=me&db=2",
         Endpoint(path="/a b.sock", database=2, username="me", password="p&w")),
    ],
)  # fmt: skip
def test_a_url_says_where_the_store_is(url, endpoint):
    assert parse_url(url) == endpoint


def test_secrets_given_apart_win_over_the_url():
    endpoint = parse_url("redis://a:b@head", username="me", password="pw")
    assert (endpoint.username, endpoint.password) == ("me", "pw")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://:secret@head", "its scheme is 'http'"),
        ("head:6379", "its scheme is 'head'"),
        ("redis://:secret@/0", "it names no host"),
        ("redis://:secret@head:70000", "out of range"),
        ("redis://:secret@head/zero", "its database is not a number"),
        ("redis://:secret@head/0?socket_timeout=9", r"unknown options \['socket_timeout'\]"),
        ("unix://run/v.sock?password=secret", "three slashes"),
        ("unix:///v.sock?passwort=secret", r"unknown options \['passwort'\]"),
    ],
)
def test_a_url_that_cannot_be_read_is_told_without_its_password(url, words):
    with pytest.raises(UsageError, match=words) as told:
        parse_url(url)
    assert "secret" not in str(told.value)


def test_an_endpoint_is_shown_without_its_password():
    endpoint = parse_url("redis://:secret@head:7000/0")
    assert str(endpoint) == "head:7000"
    assert "secret" not in repr(endpoint)
