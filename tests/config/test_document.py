"""Field cases YM-01 and YM-02: a scalar is text until its key reads it."""

import pytest

from weaverl.config.document import Mapping, Scalar, parse_document, read_text
from weaverl.errors import SpecError


def refusal(content: str) -> str:
    with pytest.raises(SpecError) as caught:
        parse_document(content, file="f.yaml")
    return str(caught.value)


@pytest.mark.parametrize("text", ["22:10", "no", "1_000", "010", "0x10", ".inf", "nan", "1e1", "5.0e3", "2026-01-31"])
def test_a_scalar_stays_the_text_that_was_written(text):
    scalar = parse_document(f"key: {text}", file="f.yaml").entries["key"]
    assert isinstance(scalar, Scalar)
    assert scalar.text == text


def test_every_node_knows_its_line_and_key_path():
    document = parse_document("a:\n  - {b: 1}\n  - c:\n      d: 2\n", file="f.yaml")
    second = document.entries["a"].items[1]
    assert isinstance(second, Mapping)
    place = second.entries["c"].entries["d"].place
    assert (place.file, place.line, place.path) == ("f.yaml", 4, "a[1].c.d")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "f.yaml:1: the file is empty: write at least the required keys"),
        ("# nothing\n", "f.yaml:1: the file is empty: write at least the required keys"),
        ("---\n", "f.yaml:1: the file is empty: write at least the required keys"),
        ("- a\n", "f.yaml:1: expected keys with values, got a list of 1: write key: value"),
        ("just words\n", "f.yaml:1: expected keys with values, got 'just words': write key: value"),
        ("a: 1\nb: 2\na: 3\n", "f.yaml:3: a: the key is given twice, first on line 1: keep one of them"),
        ("a: &x 1\n", "f.yaml:1: a: anchors are not supported, '&x': write the value out"),
        ("a:\n  b: *x\n", "f.yaml:2: a.b: aliases are not supported, '*x': write the value out"),
        ("a: &x [*x]\n", "f.yaml:1: a: anchors are not supported, '&x': write the value out"),
        ("a: !!int 3\n", "f.yaml:1: a: tags are not supported, 'tag:yaml.org,2002:int': the key alone says the type"),
        ("a: !run {b: c}\n", "f.yaml:1: a: tags are not supported, '!run': the key alone says the type"),
        ("a: 1\n---\nb: 2\n", "f.yaml:2: a second document begins, '---': keep one document a file"),
        ("%YAML 1.1\n---\na: no\n", "f.yaml:2: a % directive stands above, which is not supported: remove it"),
        ("? [a]\n: b\n", "f.yaml:1: a key must be a word, got a list of 1: write key: value"),
        ('a: "\\0"\n', "f.yaml:1: a: a NUL or half a surrogate pair cannot be passed on, '\\x00': remove it"),
        ('a: "\\uD800"\n', "f.yaml:1: a: a NUL or half a surrogate pair cannot be passed on, '\\ud800': remove it"),
    ],
)
def test_what_no_file_needs_is_refused_in_one_line(content, message):
    assert refusal(content) == message


@pytest.mark.parametrize(
    ("content", "start"),
    [
        ("a: 1\nb: 'x\n", "f.yaml:3: not valid YAML, found unexpected end of stream"),
        ("a: 1\n\tb: 2\n", "f.yaml:2: not valid YAML, "),
        ("a: 1\nb: \x00\n", "f.yaml:2: not valid YAML, unacceptable character #x0000"),
        ('a: "\\UFFFFFFFF"\n', "f.yaml:1: not valid YAML, "),
        ("a: b: c\n", "f.yaml:1: not valid YAML, mapping values are not allowed here"),
    ],
)
def test_a_syntax_error_is_one_line_with_its_place(content, start):
    message = refusal(content)
    assert message.startswith(start)
    assert len(message.splitlines()) == 1


@pytest.mark.parametrize("bracket", ["{", "["])
def test_deep_nesting_is_refused_before_the_stack_ends(bracket):
    assert "nested deeper than 8, which no key needs" in refusal(bracket * 5_000)


def test_a_merge_key_is_an_ordinary_key():
    assert "<<" in parse_document("<<: {a: 1}", file="f.yaml").entries


def test_a_byte_order_mark_is_dropped(tmp_path):
    path = tmp_path / "f.yaml"
    path.write_bytes(b"\xef\xbb\xbfname: a\r\n")
    assert parse_document(read_text(path), file="f.yaml").entries["name"].text == "a"


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"name: a\ntenant: caf\xe9\n", ":2: not UTF-8, byte 0xe9: save the file as UTF-8"),
        ("name: a".encode("utf-16"), ":1: not UTF-8, byte 0xff: save the file as UTF-8"),
        (b"#" * (2**20 + 1), ": larger than 1048576 bytes: is it the right file?"),
    ],
)
def test_a_file_that_is_not_text_is_refused(tmp_path, data, problem):
    path = tmp_path / "f.yaml"
    path.write_bytes(data)
    with pytest.raises(SpecError) as caught:
        read_text(path)
    assert str(caught.value) == f"{path}{problem}"


def test_a_missing_file_and_a_directory_are_refused(tmp_path):
    with pytest.raises(SpecError, match=r"none\.yaml: no such file: check the path"):
        read_text(tmp_path / "none.yaml")
    with pytest.raises(SpecError, match="is a directory: name the file in it"):
        read_text(tmp_path)
    with pytest.raises(SpecError, match="cannot be read, Not a directory"):
        (tmp_path / "plain").write_text("")
        read_text(tmp_path / "plain" / "f.yaml")


def test_a_path_with_a_line_break_still_gives_one_line(tmp_path):
    with pytest.raises(SpecError) as caught:
        read_text(tmp_path / "two\nlines.yaml")
    assert len(str(caught.value).splitlines()) == 1
