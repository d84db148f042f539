"""Timeline files: JSON lines, a header first, then one interval a line, and what was restored ahead of its phase.

Of a simulation also the times of its nodes.

A process that dies while it writes leaves half a line. Only that half line is lost: readers skip it and
say so, and who appends next starts on a fresh line. Anything else that is not an interval is damage and an error.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import msgspec

from weaverl.domain.cluster import Cluster, Slot
from weaverl.domain.groups import Pin
from weaverl.domain.jobs import DeviceMemory, HostMemory, JobSpec
from weaverl.domain.timeline import Interval, NodeSpan, Restore, Timeline
from weaverl.errors import ClusterError, UsageError
from weaverl.whole_file import whole_file

SCHEMA = 1
CLOCK_UNIT = "us"
SPAN_START, RESTORE_START = b'{"node":', b'{"restored":'


class AttemptPin(msgspec.Struct, frozen=True, kw_only=True):
    """The slots that one attempt of a job was pinned to. ``moved``: it was ended so that the job goes on elsewhere."""

    attempt: int
    rollout: tuple[Slot, ...] = ()
    training: tuple[Slot, ...] = ()
    moved: bool = False


class TimelineJob(msgspec.Struct, frozen=True, kw_only=True):
    """What readers need to know of a job. ``iterations`` is what was asked; None if open-ended."""

    name: str
    slo: float
    rollout_gpus: int
    training_gpus: int
    host_memory: HostMemory
    iterations: int | None = None
    pins: tuple[AttemptPin, ...] = ()
    staleness: int = 0
    device_memory: DeviceMemory = DeviceMemory()


def jobs_ahead(jobs: Iterable[TimelineJob]) -> tuple[str, ...]:
    """The jobs whose rollouts run beside training."""
    return tuple(job.name for job in jobs if job.staleness)


class TimelineHeader(msgspec.Struct, frozen=True, kw_only=True):
    """First line of a timeline file: the cluster that was provisioned and the jobs that ran on it.

    ``partial``: the run began before the first interval, and nothing is known of that any more.
    """

    schema: int = SCHEMA
    clock_unit: str = CLOCK_UNIT
    cluster: Cluster
    jobs: tuple[TimelineJob, ...] = ()
    partial: bool = False


class TimelineFile(msgspec.Struct, frozen=True, kw_only=True):
    """A timeline file as read. ``torn_bytes`` were skipped at its end: a line that was never finished."""

    header: TimelineHeader
    timeline: Timeline
    torn_bytes: int = 0
    spans: tuple[NodeSpan, ...] = ()


def timeline_job(spec: JobSpec, pins: Mapping[int, Pin], moved: Collection[int] = ()) -> TimelineJob:
    """Describe a job for the header; ``pins`` by attempt, ``moved`` the attempts that were ended by a move or pause."""
    return TimelineJob(
        name=spec.name,
        slo=spec.slo,
        rollout_gpus=spec.rollout_gpus,
        training_gpus=spec.training_gpus,
        host_memory=spec.host_memory,
        iterations=spec.iterations,
        staleness=spec.staleness,
        pins=tuple(
            AttemptPin(attempt=number, rollout=pin.rollout, training=pin.training, moved=number in moved)
            for number, pin in sorted(pins.items())
        ),
        device_memory=spec.device_memory,
    )


def timeline_lines(header: TimelineHeader, records: Iterable[Interval | Restore | NodeSpan]) -> Iterator[bytes]:
    """The lines of a timeline file, each with its line end."""
    yield _line(header)
    for record in records:
        yield _line(record)


def write_timeline(path: Path, header: TimelineHeader, timeline: Timeline) -> None:
    """Write a whole timeline file, or leave what was there."""
    write_records(path, header, (*timeline.intervals, *timeline.restores))


def write_records(path: Path, header: TimelineHeader, records: Iterable[Interval | Restore | NodeSpan]) -> None:
    """Write a whole timeline file, one record after the other, or leave what was there."""
    with whole_file(path) as stream:
        stream.buffer.writelines(timeline_lines(header, records))


def read_timeline(path: Path) -> TimelineFile:
    """Read a timeline file.

    Raises:
        UsageError: no header, a newer schema, or a line that is not an interval (with its number).
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"timeline file {path} cannot be read: {error.strerror}; name an existing file") from None
    whole, torn_bytes = without_torn_tail(data)
    lines = whole.removesuffix(b"\n").split(b"\n") if whole else []
    if not lines:
        raise UsageError(f"{path} has no header line; write it with `weaverl timeline` or --timeline")
    header = _header(path, lines[0])
    decoder = msgspec.json.Decoder(Interval)
    intervals: list[Interval] = []
    spans: list[NodeSpan] = []
    restores: list[Restore] = []
    for number, line in enumerate(lines[1:], start=2):
        if line.startswith(SPAN_START):
            spans.append(msgspec.json.decode(line, type=NodeSpan))
        elif line.startswith(RESTORE_START):
            restores.append(msgspec.json.decode(line, type=Restore))
        else:
            intervals.append(_interval(path, number, line, decoder))
    timeline = msgspec.structs.replace(in_order(intervals), restores=tuple(restores))
    return TimelineFile(header=header, timeline=timeline, torn_bytes=torn_bytes, spans=tuple(spans))


def in_order(intervals: Iterable[Interval]) -> Timeline:
    """A timeline of intervals that come in any order."""
    return Timeline(intervals=tuple(sorted(intervals, key=lambda interval: (interval.granted_at, interval.started_at))))


class TimelineWriter:
    """Appends intervals to a timeline file during a run; a torn tail of an earlier writer is cut off."""

    def __init__(self, path: Path, header: TimelineHeader) -> None:
        """Open the file, or start it with ``header`` if it is absent or empty.

        Raises:
            UsageError: the file is there and is not a timeline file of this schema.
        """
        self.dropped_bytes = 0
        self._path = path
        whole = b""
        if path.exists():
            data = path.read_bytes()
            whole, self.dropped_bytes = without_torn_tail(data)
            if whole:
                _header(path, whole.partition(b"\n")[0])
        self._stream: BinaryIO = path.open("ab", buffering=0)
        self._stream.truncate(len(whole))
        self._length = len(whole)
        if not whole:
            self._write(_line(header))
        elif not whole.endswith(b"\n"):
            self._write(b"\n")

    def append(self, interval: Interval) -> None:
        """Write one interval; it is in the file when this returns.

        Raises:
            ClusterError: the file could not take it; the file is as it was, and it may be tried again.
        """
        self._write(_line(interval))

    def close(self) -> None:
        """Close the file."""
        self._stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write(self, line: bytes) -> None:
        try:
            written = self._stream.write(line)
        except OSError as error:
            raise ClusterError(f"timeline file {self._path} cannot be written: {error.strerror}") from error
        if written != len(line):
            # Half a line must not stay: the next one would be glued to it.
            self._stream.truncate(self._length)
            raise ClusterError(f"timeline file {self._path} took {written} of {len(line)} bytes; is the disk full?")
        self._length += len(line)


def _line(record: msgspec.Struct) -> bytes:
    return msgspec.json.encode(record) + b"\n"


def without_torn_tail(data: bytes) -> tuple[bytes, int]:
    """The data up to a last line that was begun as an object and never finished, and the bytes cut off."""
    start = data.rfind(b"\n") + 1
    tail = data[start:]
    if tail.startswith(b"{") and not _is_json(tail):
        return data[:start], len(tail)
    return data, 0


def _is_json(text: bytes) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True


def _header(path: Path, line: bytes) -> TimelineHeader:
    schema = _field(line, "schema")
    if isinstance(schema, int) and schema > SCHEMA:
        raise UsageError(f"{path} has timeline schema {schema}, this weaverl reads up to {SCHEMA}; use a newer weaverl")
    try:
        header = msgspec.json.decode(line, type=TimelineHeader)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path}, line 1: not a timeline header ({error}): {shown(line)}; is it a timeline file?"
        ) from None
    if header.clock_unit != CLOCK_UNIT:
        raise UsageError(f"{path}, line 1: clock unit {header.clock_unit!r} is unknown; it must be 'us'")
    return header


def _field(line: bytes, name: str) -> object:
    try:
        record = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return record.get(name) if isinstance(record, dict) else None


def _interval(path: Path, number: int, line: bytes, decoder: msgspec.json.Decoder[Interval]) -> Interval:
    try:
        return decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}, line {number}: not an interval ({error}): {shown(line)}; remove that line") from None


def shown(line: bytes) -> str:
    """The begin of a damaged line, for a message."""
    text = line[:40].decode("utf-8", "backslashreplace")
    return repr(text + "..." if len(line) > 40 else text)
