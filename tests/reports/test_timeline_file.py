import resource
from contextlib import contextmanager

import msgspec
import pytest

from reports.example import cluster, draw, header
from reports.hand import interval
from weaverl.domain.cluster import Slot
from weaverl.domain.groups import Pin
from weaverl.domain.jobs import HostMemory, JobSpec
from weaverl.domain.timeline import Timeline
from weaverl.errors import ClusterError, UsageError
from weaverl.reports.timeline_file import (
    TimelineWriter,
    in_order,
    read_timeline,
    timeline_job,
    timeline_lines,
    write_timeline,
)

HEADER = header(cluster(), ("a", "b"), 3)
TIMELINE = draw(cluster(), {"a": (3, 2), "b": (2, 3)}, 3)
MORE = interval("a", "rollout", 9, 900, 901)


@pytest.fixture
def path(tmp_path):
    write_timeline(tmp_path / "run.jsonl", HEADER, TIMELINE)
    return tmp_path / "run.jsonl"


def test_what_is_written_is_read(path):
    file = read_timeline(path)
    assert (file.header, file.timeline, file.torn_bytes) == (HEADER, TIMELINE, 0)
    assert [entry.name for entry in path.parent.iterdir()] == ["run.jsonl"]


def test_intervals_are_read_in_order_of_grants(tmp_path):
    late, early = interval("a", "training", 0, 5, 6), interval("a", "rollout", 0, 1, 2)
    write_timeline(tmp_path / "x", HEADER, Timeline(intervals=(late, early)))
    assert read_timeline(tmp_path / "x").timeline == in_order([early, late])


def test_an_unfinished_write_leaves_the_old_file(path):
    class Broken:
        @property
        def intervals(self):
            raise OSError("disk is full")

    before = path.read_bytes()
    with pytest.raises(OSError, match="disk is full"):
        write_timeline(path, HEADER, Broken())
    assert path.read_bytes() == before
    assert len(list(path.parent.iterdir())) == 1


@pytest.mark.parametrize("cut", range(1, 61))
def test_a_file_cut_anywhere_near_its_end_is_read_and_written_on(path, cut):
    data = path.read_bytes()
    path.write_bytes(data[:-cut])
    file = read_timeline(path)
    whole = TIMELINE.intervals if cut == 1 else TIMELINE.intervals[:-1]
    assert file.timeline.intervals == whole
    assert file.torn_bytes == (0 if cut == 1 else len(data.splitlines()[-1]) + 1 - cut)

    with TimelineWriter(path, HEADER) as writer:
        assert writer.dropped_bytes == file.torn_bytes
        writer.append(MORE)
    again = read_timeline(path)
    assert again.timeline.intervals == (*whole, MORE)
    assert again.torn_bytes == 0


def test_a_tail_cut_inside_a_character_is_torn(tmp_path):
    lines = list(timeline_lines(HEADER, [interval("ü", "rollout", 0, 0, 1)]))
    whole = b"".join(lines)
    (tmp_path / "x").write_bytes(whole[: whole.index("ü".encode()) + 1])
    assert read_timeline(tmp_path / "x").timeline.intervals == ()
    assert read_timeline(tmp_path / "x").torn_bytes > 0


@pytest.mark.parametrize("line", [b"[]", b"null", b"7", b"", b'{"job":"a"}', b'{"job":', b"\xff"])
@pytest.mark.parametrize("ending", [b"\n", b"\n" + msgspec.json.encode(MORE)])
def test_a_bad_line_is_an_error_with_its_number(path, line, ending):
    number = len(path.read_bytes().splitlines()) + 1
    with path.open("ab") as stream:
        stream.write(line + ending)
    with pytest.raises(UsageError, match=f"line {number}: not an interval"):
        read_timeline(path)


@pytest.mark.parametrize("tail", [b"[]", b"null", b'{"job":"a"}'])
def test_a_last_line_that_is_json_and_no_interval_is_damage_not_a_tear(path, tail):
    with path.open("ab") as stream:
        stream.write(tail)
    with pytest.raises(UsageError, match="not an interval"):
        read_timeline(path)


@pytest.mark.parametrize(
    "content", [b"", b'{"schema":1', b"[]\n", b'{"schema":1}\n', msgspec.json.encode(MORE) + b"\n"]
)
def test_a_file_without_a_header_is_refused(tmp_path, content):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(UsageError, match="header"):
        read_timeline(tmp_path / "x")


def test_an_absent_file_is_refused(tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        read_timeline(tmp_path / "x")


def test_a_newer_schema_is_refused_by_its_number(path):
    path.write_bytes(path.read_bytes().replace(b'"schema":1', b'"schema":2', 1))
    with pytest.raises(UsageError, match="schema 2, this weaverl reads up to 1"):
        read_timeline(path)
    with pytest.raises(UsageError, match="schema 2"):
        TimelineWriter(path, HEADER)


def test_another_clock_unit_is_refused(path):
    path.write_bytes(path.read_bytes().replace(b'"clock_unit":"us"', b'"clock_unit":"ms"', 1))
    with pytest.raises(UsageError, match="'ms'"):
        read_timeline(path)


def test_a_writer_starts_a_file_that_is_absent_or_was_torn_in_its_header(tmp_path):
    for content in (None, b"", b'{"schema":1,"clo'):
        path = tmp_path / "x"
        path.unlink(missing_ok=True)
        if content is not None:
            path.write_bytes(content)
        with TimelineWriter(path, HEADER) as writer:
            writer.append(MORE)
        assert read_timeline(path).timeline.intervals == (MORE,)


def test_a_writer_leaves_a_file_that_is_no_timeline_alone(tmp_path):
    (tmp_path / "x").write_bytes(b"precious\n")
    with pytest.raises(UsageError, match="is it a timeline file"):
        TimelineWriter(tmp_path / "x", HEADER)
    assert (tmp_path / "x").read_bytes() == b"precious\n"


@contextmanager
def file_size_limit(size):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("room", [0, 20])
def test_a_full_disk_leaves_no_half_line(path, room):
    before = path.read_bytes()
    with TimelineWriter(path, HEADER) as writer:
        with file_size_limit(len(before) + room), pytest.raises(ClusterError, match="timeline file"):
            writer.append(MORE)
        assert path.read_bytes() == before
        writer.append(MORE)
    assert read_timeline(path).timeline.intervals == (*TIMELINE.intervals, MORE)


def test_attempts_count_from_one_in_the_header():
    spec = JobSpec(
        name="a",
        roles=(),
        rollout_gpus=1,
        training_gpus=1,
        host_memory=HostMemory(rollout_bytes=1, training_bytes=2),
        slo=1.2,
    )
    job = timeline_job(spec, {1: Pin((Slot("r0", 0),), (Slot("t0", 0),)), 2: Pin((Slot("r1", 0),), (Slot("t0", 0),))})
    assert [(pin.attempt, pin.rollout[0].node) for pin in job.pins] == [(1, "r0"), (2, "r1")]
    assert (job.name, job.slo, job.iterations, job.host_memory.training_bytes) == ("a", 1.2, None, 2)
