"""A YAML file as a tree of mappings, lists and scalars that are still text, each with its place in the file.

Of YAML this takes one document of mappings, lists, plain and quoted scalars; anchors, aliases, tags and
directives are refused, since a job or cluster file needs none of them.
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    DocumentStartEvent,
    Event,
    MappingStartEvent,
    ScalarEvent,
    SequenceStartEvent,
)

from weaverl.errors import SpecError

MAX_FILE_BYTES = 1 << 20
MAX_DEPTH = 8
MAX_SHOWN = 60


class Place(msgspec.Struct, frozen=True):
    """Where in a file something was said. ``path`` is the key path, empty at the top."""

    file: str
    line: int
    path: str = ""

    def key(self, key: str, line: int) -> "Place":
        """The place of a key of a mapping here."""
        shown = key if key.isidentifier() and len(key) <= MAX_SHOWN else show(key)
        return Place(self.file, line, f"{self.path}.{shown}" if self.path else shown)

    def item(self, index: int, line: int) -> "Place":
        """The place of an item of a list here."""
        return Place(self.file, line, f"{self.path}[{index}]")

    def refuse(self, problem: str) -> SpecError:
        """The error that names this place; ``problem`` has what, the value and the remedy."""
        return SpecError(f"{self.file}:{self.line}: " + (f"{self.path}: " if self.path else "") + problem)


class Scalar(msgspec.Struct, frozen=True):
    """A single value as it was written; ``plain`` means without quotes."""

    place: Place
    text: str
    plain: bool

    @property
    def is_empty(self) -> bool:
        """No value was given: nothing, or one of YAML's words for nothing."""
        return self.plain and self.text in ("", "~", "null", "Null", "NULL")


class Sequence(msgspec.Struct, frozen=True):
    """A list."""

    place: Place
    items: "tuple[Node, ...]"


class Mapping(msgspec.Struct, frozen=True):
    """Keys with values, each key once; ``in_braces`` where it was written ``{key: value}``."""

    place: Place
    entries: "dict[str, Node]"
    in_braces: bool


Node = Scalar | Sequence | Mapping


def show(text: str, at_most: int = MAX_SHOWN) -> str:
    """A value as messages quote it: on one line, not too long."""
    return repr(text if len(text) <= at_most else text[:at_most] + "...")


def describe(node: Node) -> str:
    """What stands at a node, for messages."""
    match node:
        case Scalar():
            return "nothing" if node.is_empty else show(node.text)
        case Sequence():
            return f"a list of {len(node.items)}"
        case Mapping():
            return f"a mapping of {len(node.entries)}"


def file_label(path: Path) -> str:
    """The file's name as messages print it: always one printable line."""
    return str(path) if str(path).isprintable() else repr(str(path))


def read_text(path: Path) -> str:
    """The text of a file without a byte order mark; SpecError if it is missing, too large or not UTF-8."""
    label = file_label(path)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise SpecError(f"{label}: no such file: check the path") from None
    except IsADirectoryError:
        raise SpecError(f"{label}: is a directory: name the file in it") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise SpecError(f"{label}: cannot be read, {reason}: make it readable") from error
    if len(data) > MAX_FILE_BYTES:
        raise SpecError(f"{label}: larger than {MAX_FILE_BYTES} bytes: is it the right file?")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        place = Place(label, data.count(b"\n", 0, error.start) + 1)
        raise place.refuse(f"not UTF-8, byte 0x{data[error.start]:02x}: save the file as UTF-8") from error


def parse_document(text: str, *, file: str) -> Mapping:
    """The one mapping that a file holds; SpecError for anything else."""
    top = Place(file, 1)
    try:
        nodes = list(_documents(YAML(typ="safe", pure=True).parse(text), top))
    except (YAMLError, OverflowError, ValueError) as error:
        raise _not_yaml(error, text, top) from error
    if not nodes or (isinstance(nodes[0], Scalar) and nodes[0].is_empty):
        raise top.refuse("the file is empty: write at least the required keys")
    if not isinstance(nodes[0], Mapping):
        raise nodes[0].place.refuse(f"expected keys with values, got {describe(nodes[0])}: write key: value")
    return nodes[0]


def _documents(events: Iterator[Event], top: Place) -> Iterator[Node]:
    seen = False
    for event in events:
        if not isinstance(event, DocumentStartEvent):
            continue
        place = Place(top.file, _line(event))
        if seen:
            raise place.refuse("a second document begins, '---': keep one document a file")
        if event.version or event.tags:
            raise place.refuse("a % directive stands above, which is not supported: remove it")
        seen = True
        first = next(events)
        yield _node(first, events, Place(top.file, _line(first)), depth=0)


def _node(event: Event, events: Iterator[Event], place: Place, depth: int) -> Node:
    if isinstance(event, AliasEvent):
        raise place.refuse(f"aliases are not supported, {show(f'*{event.anchor}')}: write the value out")
    assert isinstance(event, ScalarEvent | SequenceStartEvent | MappingStartEvent), event
    _refuse_what_no_file_needs(event, place, depth)
    match event:
        case ScalarEvent():
            return Scalar(place, _text(event, place), event.implicit[0])
        case SequenceStartEvent():
            return Sequence(place, tuple(_items(events, place, depth)))
        case MappingStartEvent():
            return Mapping(place, _entries(events, place, depth), bool(event.flow_style))


def _refuse_what_no_file_needs(
    event: ScalarEvent | SequenceStartEvent | MappingStartEvent, place: Place, depth: int
) -> None:
    if event.anchor is not None:
        raise place.refuse(f"anchors are not supported, {show(f'&{event.anchor}')}: write the value out")
    if event.tag is not None:
        raise place.refuse(f"tags are not supported, {show(str(event.tag))}: the key alone says the type")
    if depth > MAX_DEPTH:
        raise place.refuse(f"nested deeper than {MAX_DEPTH}, which no key needs: check brackets and indentation")


def _items(events: Iterator[Event], place: Place, depth: int) -> Iterator[Node]:
    for index, event in enumerate(events):
        if isinstance(event, CollectionEndEvent):
            return
        yield _node(event, events, place.item(index, _line(event)), depth + 1)


def _entries(events: Iterator[Event], place: Place, depth: int) -> dict[str, Node]:
    entries: dict[str, Node] = {}
    for event in events:
        if isinstance(event, CollectionEndEvent):
            return entries
        key = _node(event, events, Place(place.file, _line(event), place.path), depth + 1)
        if not isinstance(key, Scalar):
            raise key.place.refuse(f"a key must be a word, got {describe(key)}: write key: value")
        at_key = place.key(key.text, key.place.line)
        if key.text in entries:
            first = entries[key.text].place.line
            raise at_key.refuse(f"the key is given twice, first on line {first}: keep one of them")
        entries[key.text] = _node(next(events), events, at_key, depth + 1)
    raise AssertionError("the parser closes every mapping that it opens")


def _text(event: ScalarEvent, place: Place) -> str:
    text = str(event.value)
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise place.refuse(f"a NUL or half a surrogate pair cannot be passed on, {show(text)}: remove it")
    return text


def _line(event: Event) -> int:
    return int(event.start_mark.line) + 1


def _not_yaml(error: Exception, text: str, top: Place) -> SpecError:
    mark = getattr(error, "problem_mark", None)
    position = getattr(error, "position", None)
    line = text.count("\n", 0, position or 0) + 1 if mark is None else mark.line + 1
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    return Place(top.file, line).refuse(f"not valid YAML, {problem}: check quotes, brackets and indentation")
