"""Timing logs of every shape as readings: a run, a step, and the timings that one line or row has.

Read as people have them: console output with colours, prefixes and progress bars in between, JSON lines, a trainer's
state, CSV exports of W&B or TRL; with a byte order mark, any line ends, a torn last line. Damage elsewhere is an
error with its line, and nothing is dropped without being counted.
"""

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec

from weaverl.errors import UsageError
from weaverl.simulation.timing_keys import KNOWN_KEYS, plain_key

MAX_BYTES = 1 << 30
MAX_SECONDS = 1e9
STEP_KEYS = ("step", "Step", "global_step", "training/global_step", "train/global_step", "_step")
TORN = "half a line at the end"
NOT_A_NUMBER = "a timing that is no number of seconds"

_LINE_ENDS = re.compile(r"\r\n|\n|\r")
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_MARK = re.compile("timing|perf/|time/|step_time|profiling/")
"""What a line or key with a timing has in it: most lines are told apart by this alone."""
_VERL_LINE = re.compile(r"(?:^|\s)step:([0-9]+) - (.*)$")
_PAIR = re.compile(r"""['"]([^'"]+)['"]\s*:\s*['"]?(?:np\.float(?:32|64)\()?([^\s,'"(){}]+)""")
_LINE_STEP = re.compile(r"(?:Global step|perf|step)[ :=]+([0-9]+)\s*:", re.IGNORECASE)


class Reading(msgspec.Struct, frozen=True):
    """The known timings of one line or row, in seconds. ``run`` is empty where the file is of one run."""

    run: str
    step: int | None
    line: int
    seconds: dict[str, float]


class LogText(msgspec.Struct):
    """What a file had: its readings, what was left out by reason, and its text where it is a console's."""

    readings: list[Reading]
    skipped: Counter[str]
    console: str = ""


def read_log(path: Path) -> LogText:
    """Read a log of any of the shapes. Raises UsageError with file and line where it is damaged or none of them."""
    text = _text_of(path)
    skipped: Counter[str] = Counter()
    shape = _shape_of(path, text)
    readings = list(_READERS[shape](path, text, skipped))
    return LogText(readings, skipped, text if shape == "console" else "")


def _text_of(path: Path) -> str:
    if not path.is_file():
        raise UsageError(f"{path} is not a file: give a log, a trainer_state.json or a CSV export")
    if path.stat().st_size > MAX_BYTES:
        raise UsageError(f"{path} has {path.stat().st_size / 2**30:.1f} GiB: give the lines with timings only")
    data = path.read_bytes()
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise UsageError(f"{path} is UTF-16: save it as UTF-8")
    if data.startswith(b"version https://git-lfs"):
        raise UsageError(f"{path} is a Git LFS pointer, not the file itself: fetch it with `git lfs pull`")
    return data.decode("utf-8-sig", "replace")


def _shape_of(path: Path, text: str) -> str:
    head = text.lstrip()[:4096]
    first = _LINE_ENDS.split(head, maxsplit=1)[0]
    if path.suffix.lower() in (".csv", ".tsv") or re.match(r'"?(Step|step|_step)"?[,;\t]', first):
        return "csv"
    if path.suffix.lower() in (".jsonl", ".ndjson"):
        return "lines"
    if head.startswith(("{", "[")):
        if isinstance(_json_of(text), dict | list) and not _is_entry(first):
            return "state"
        if all(_is_entry(line) for line in _LINE_ENDS.split(head)[:2] if line):
            return "lines"
    return "console"


def _is_entry(line: str) -> bool:
    """Whether a line is a JSON object on its own, and no trainer's state."""
    entry = _json_of(line)
    return isinstance(entry, dict) and "log_history" not in entry


_NO_JSON = object()


def _json_of(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return _NO_JSON


def _from_state(path: Path, text: str, skipped: Counter[str]) -> Iterator[Reading]:
    """``trainer_state.json``, or its ``log_history`` alone."""
    whole = json.loads(text)
    entries = whole.get("log_history") if isinstance(whole, dict) else whole
    if not isinstance(entries, list):
        raise UsageError(f"{path} has no log_history: give a trainer_state.json, or the log itself")
    for place, entry in enumerate(entries, start=1):
        if not isinstance(entry, dict):
            raise UsageError(f"{path}, entry {place} of log_history is {entry!r}, not an object: remove it")
        yield from _reading("", place, entry, skipped)


def _from_lines(path: Path, text: str, skipped: Counter[str]) -> Iterator[Reading]:
    """JSON lines; veRL's file logger nests them as ``{"step": 1, "data": {...}}``."""
    lines = _LINE_ENDS.split(text)
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        entry = _json_of(line)
        if entry is _NO_JSON and number == len(lines):
            skipped[TORN] += 1
            return
        if not isinstance(entry, dict):
            raise UsageError(f"{path}, line {number}: not a JSON object, {line[:40]!r}: remove that line")
        data = entry.get("data")
        yield from _reading("", number, {**entry, **data} if isinstance(data, dict) else entry, skipped)


def _from_console(path: Path, text: str, skipped: Counter[str]) -> Iterator[Reading]:
    """Any program's output: veRL's ``step:1 - key:value - ...``, and dictionaries as Python or JSON prints them."""
    lines = _LINE_ENDS.split(text)
    for number, raw in enumerate(lines, start=1):
        if not _MARK.search(raw):
            continue
        line = _COLOURS.sub("", raw)
        found = _VERL_LINE.search(line)
        if found:
            pairs = (part.partition(":")[::2] for part in found[2].split(" - ") if _MARK.search(part))
            entry: dict[str, object] = {key: _unwrapped(value) for key, value in pairs}
            entry["step"] = found[1]
        elif "{" in line:
            entry = {key: value for key, value in _PAIR.findall(line)}
            step = _LINE_STEP.search(line)
            if step:
                entry["step"] = step[1]
        else:
            continue
        if number == len(lines) and raw and any(plain_key(key) in KNOWN_KEYS for key in entry):
            skipped[TORN] += 1  # no line end: the last number may be cut
            return
        yield from _reading("", number, entry, skipped)


def _unwrapped(value: str) -> str:
    """A number as NumPy prints it, without its type."""
    return value.strip().removeprefix("np.float64(").removesuffix(")")


def _from_csv(path: Path, text: str, skipped: Counter[str]) -> Iterator[Reading]:
    """A CSV export, one metric a column; W&B heads the columns of several runs with ``RUN - METRIC``."""
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    header: list[str] = []
    start, complete = 1, text.endswith(("\n", "\r"))
    num_lines = len(_LINE_ENDS.split(text)) - complete
    try:
        for row in rows:
            if not header:
                header = _header(path, row)
            elif len(row) != len(header) and row:
                if rows.line_num >= num_lines and not complete and len(row) < len(header):
                    skipped[TORN] += 1
                    return
                problem = f"{len(row)} cells under {len(header)} headings"
                raise UsageError(f"{path}, line {start}: {problem}: correct that row")
            elif row:
                yield from _cells(header, row, start, skipped)
            start = rows.line_num + 1
    except csv.Error as error:
        raise UsageError(f"{path}, line {start}: not CSV ({error}): close the quote that opens there") from None


def _header(path: Path, row: list[str]) -> list[str]:
    if len(row) == 1:
        raise UsageError(f"{path}: one column, {row[0][:60]!r}: separate the columns by commas")
    repeated = [name for name, times in Counter(row).items() if times > 1]
    if repeated:
        raise UsageError(f"{path}, line 1: two columns are called {repeated[0]!r}: rename or remove one")
    return row


def _cells(header: list[str], row: list[str], line: int, skipped: Counter[str]) -> Iterator[Reading]:
    step = {name: cell for name, cell in zip(header, row, strict=True) if name in STEP_KEYS and cell.strip()}
    runs: dict[str, dict[str, object]] = {}
    for name, cell in zip(header, row, strict=True):
        run, separator, key = name.rpartition(" - ")
        if cell.strip() and not name.endswith(("__MIN", "__MAX")):
            runs.setdefault(run if separator else "", {})[key] = cell
    for run, entry in runs.items():
        yield from _reading(run, line, {**step, **entry}, skipped)


_READERS = {"csv": _from_csv, "state": _from_state, "lines": _from_lines, "console": _from_console}


def _reading(run: str, line: int, entry: dict[str, object], skipped: Counter[str]) -> Iterator[Reading]:
    """The known timings among an entry's pairs, if it has any."""
    seconds: dict[str, float] = {}
    for key, value in entry.items():
        plain = plain_key(key)
        if plain not in KNOWN_KEYS or value is None:
            continue
        number = _number(value)
        if number is None:
            skipped[NOT_A_NUMBER] += 1
        else:
            seconds[plain] = number
    if seconds:
        steps = (_number(entry[key]) for key in STEP_KEYS if key in entry)
        step = next((number for number in steps if number is not None), None)
        yield Reading(run, None if step is None else int(step), line, seconds)


def _number(value: object) -> float | None:
    """A number that can be seconds or a step, written in plain decimal digits; NaN is none."""
    if isinstance(value, str):
        value = float(value) if _NUMBER.fullmatch(value.strip()) else None
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if 0 <= value <= MAX_SECONDS else None
