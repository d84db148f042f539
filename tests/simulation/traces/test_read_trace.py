"""Our own trace schema read strictly: what is wrong is named by line and column, and nothing is read then."""

import gzip
import random
from pathlib import Path

import pytest
from trace_files import GOOD, row, table, tar_gz, written

from shared_data import TRACES, shared_file
from weaverl.errors import TraceError, UsageError
from weaverl.simulation.traces.read import read_trace
from weaverl.simulation.traces.records import TraceJob
from weaverl.simulation.traces.schema import write_jobs


def refused(path: Path, text: str | bytes) -> str:
    with pytest.raises(TraceError) as caught:
        read_trace(written(path, text))
    message = str(caught.value)
    assert "\n" not in message and path.name in message
    return message


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trace.csv"


def test_a_row_is_read_as_it_stands(path: Path):
    trace = read_trace(written(path, table(row())))
    assert trace.name == "trace" and trace.rows == 1 and trace.skipped == {}
    assert trace.jobs[0] == TraceJob(
        job_id="j0",
        tenant="t0",
        arrival_seconds=10.0,
        iterations=100,
        model_billions=7.0,
        max_tokens=8192,
        turns=1,
        rollout_gpus=8,
        training_gpus=8,
        rollout_max_seconds=120.5,
        rollout_mean_seconds=80.0,
        rollout_cv=0.2,
        rollout_p80=0.5,
        training_seconds=75.0,
        sync_gib=13.0385,
        rollout_host_gib=164.3,
        training_host_gib=197.3,
        slo=1.5,
        rollout_growth=1.0,
    )


def test_rows_are_sorted_by_arrival_and_ties_keep_their_order(path: Path):
    arrivals = ["20", "5", "20", "5.0"]
    trace = read_trace(written(path, table(*(row(job_id=f"j{i}", arrival_s=at) for i, at in enumerate(arrivals)))))
    assert [job.job_id for job in trace.jobs] == ["j1", "j3", "j0", "j2"]


def test_columns_may_come_in_any_order_and_growth_may_be_absent(path: Path):
    names = [name for name in reversed(GOOD) if name != "rollout_growth"]
    trace = read_trace(written(path, ",".join(names) + "\n" + ",".join(GOOD[name] for name in names)))
    assert trace.jobs[0].rollout_growth == 1.0 and trace.jobs[0].iterations == 100


def test_staleness_may_be_absent_and_is_written_only_where_a_job_has_any(tmp_path: Path, path: Path):
    names = [*GOOD, "staleness"]
    text = ",".join(names) + "\n" + f"{row()},1\n{row(job_id='j1')},0\n"
    trace = read_trace(written(path, text))
    assert [job.staleness for job in trace.jobs] == [1, 0]
    write_jobs(trace.jobs, tmp_path / "again.csv")
    assert read_trace(tmp_path / "again.csv").jobs == trace.jobs
    write_jobs(trace.jobs[1:], tmp_path / "synchronous.csv")
    assert "staleness" not in (tmp_path / "synchronous.csv").read_text()


def test_a_fully_asynchronous_job_is_refused_with_its_line(path: Path):
    message = refused(path, ",".join([*GOOD, "staleness"]) + "\n" + row() + ",2\n")
    assert "line 2" in message and "2 is fully asynchronous, which is not simulated: 0 or 1" in message


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["bare", "marked"])
def test_line_ends_and_a_utf8_mark_change_nothing(tmp_path: Path, end: str, mark: bytes):
    plain = read_trace(written(tmp_path / "trace.csv", table(row(), row(job_id="j1"))))
    assert read_trace(written(tmp_path / "trace.csv", mark + table(row(), row(job_id="j1"), end=end).encode())) == plain


def test_gzip_and_archives_are_read_as_they_are(tmp_path: Path):
    plain = read_trace(written(tmp_path / "trace.csv", table(row())))
    packed = written(tmp_path / "trace.csv.gz", gzip.compress(table(row()).encode()))
    mac = tar_gz(
        tmp_path / "trace.tar.gz", {"d/._trace.csv": b"\x00\x05\x16\x07\x00", "d/trace.csv": table(row()).encode()}
    )
    assert read_trace(packed) == plain
    assert read_trace(mac) == plain


def test_several_files_of_an_archive_are_listed_and_one_can_be_named(tmp_path: Path):
    files = {"a.csv": table(row()).encode(), "b.csv": table(row(job_id="b")).encode(), "._b.csv": b"\x00"}
    archive = tar_gz(tmp_path / "two.tgz", files)
    with pytest.raises(TraceError, match=r"has 2 files \(a.csv, b.csv\): name the one to read with --member"):
        read_trace(archive)
    assert read_trace(archive, member="b.csv").jobs[0].job_id == "b"
    with pytest.raises(TraceError, match=r"has no member c.csv: it has a.csv, b.csv"):
        read_trace(archive, member="c.csv")


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
LOOK_ALIKES = {
    "pointer": (POINTER, "Git LFS pointer"),
    "UTF-16 little": (table(row()).encode("utf-16"), "UTF-16 text"),
    "UTF-16 big": (b"\xfe\xff" + table(row()).encode("utf-16-be"), "UTF-16 text"),
    "latin-1": (table(row(tenant="Zürich")).encode("latin-1"), "not UTF-8"),
    "binary": (b"\x7fELF\x00\x01", "binary"),
    "empty": (b"", "is empty"),
    "xz": (b"\xfd7zXZ\x00rest", "packed by xz"),
    "half a gzip": (gzip.compress(random.Random(0).randbytes(9000).hex().encode())[:5000], "damaged"),
}


@pytest.mark.parametrize(("data", "word"), LOOK_ALIKES.values(), ids=LOOK_ALIKES)
@pytest.mark.parametrize("name", ["trace.csv", "trace.tar.gz"])
def test_what_is_no_text_is_named(tmp_path: Path, name: str, data: bytes, word: str):
    assert word in refused(tmp_path / name, data)


def test_a_missing_file_is_a_usage_error(tmp_path: Path):
    with pytest.raises(UsageError, match="No such file"):
        read_trace(tmp_path / "absent.csv")


BAD_CELLS = {
    "nan": ("slo", "nan"),
    "infinity": ("training_s", "inf"),
    "too large": ("training_s", "1e308"),
    "underscore": ("iterations", "1_000"),
    "blanks": ("iterations", " 12 "),
    "other digits": ("iterations", "١٢"),
    "hexadecimal": ("iterations", "0x10"),
    "no cell": ("training_s", ""),
    "zero time": ("training_s", "0"),
    "minus zero": ("rollout_mean_s", "-0"),
    "half a GPU": ("rollout_gpus", "0.5"),
    "half an iteration": ("iterations", "2.5"),
    "no iterations": ("iterations", "0"),
    "before the start": ("arrival_s", "-1"),
    "a promise below 1": ("slo", "0.99"),
    "mean over the cap": ("rollout_mean_s", "120.6"),
    "tail after the end": ("rollout_p80", "1.01"),
    "no name": ("tenant", ""),
    "blank name": ("job_id", " j0"),
    "a duration in words": ("training_s", "1 day, 6:00:00"),
}


@pytest.mark.parametrize(("column", "cell"), BAD_CELLS.values(), ids=BAD_CELLS)
def test_a_bad_cell_is_refused_with_line_and_column(path: Path, column: str, cell: str):
    quoted = f'"{cell}"' if "," in cell else cell
    message = refused(path, table(row(job_id="first"), row(**{column: quoted})))
    assert f"line 3, column {column}:" in message and cell in message


def test_numbers_may_have_exponents_and_minus_zero_is_zero(path: Path):
    job = read_trace(written(path, table(row(iterations="1e3", arrival_s="-0", turns="2.0")))).jobs[0]
    assert (job.iterations, job.turns) == (1000, 2)
    assert str(job.arrival_seconds) == "0.0"


BAD_TABLES = {
    "short row": (table(row(), "j1,t0,5"), "line 3: 3 cells where 19 are expected"),
    "long row": (table(row() + ",1"), "line 2: 20 cells where 19 are expected"),
    "open quote": (table(row(), row(job_id='"j1'), row()), "line 3: a quote is opened"),
    "open quote at the end": (table(row(), row(job_id='"j1')), "line 3: a quote is opened"),
    "cell over two lines": (table(row(job_id='"j\n1"')), "line 2: a quote is opened"),
    "text after a quote": (table(row(job_id='"j"1')), "line 2: a quote is opened"),
    "repeated column": (table(row()).replace("tenant", "job_id"), "line 1: column job_id is there twice"),
    "missing column": (table(row()).replace("slo", "SLO"), "lacks column slo"),
    "unknown column": (table(row()).replace(",rollout_growth", ",drift"), "has column drift that we do not know"),
    "semicolons": (table(row()).replace(",", ";"), "1 column found, expected 18"),
    "tabs": (table(row()).replace(",", "\t"), "1 column found, expected 18"),
    "blank line": (table(row(), "", row(job_id="j1")), "line 3 is empty"),
    "same id twice": (table(row(), row(job_id="j1"), row()), "line 4, column job_id: j0 is the id of line 2 too"),
    "no header": (row() + "\n", "line 1: column 1 is there twice: rename one, or add the header"),
}


@pytest.mark.parametrize(("text", "words"), BAD_TABLES.values(), ids=BAD_TABLES)
def test_a_bad_table_is_refused_with_its_line(path: Path, text: str, words: str):
    assert words in refused(path, text)


def test_blank_lines_may_end_a_file_and_a_header_alone_is_an_empty_trace(path: Path):
    assert read_trace(written(path, table(row()) + "\n\n")).rows == 1
    assert read_trace(written(path, table())).jobs == ()


def test_what_is_written_is_read_again_and_the_same_jobs_give_the_same_bytes(tmp_path: Path):
    jobs = read_trace(written(tmp_path / "trace.csv", table(row(), row(job_id='"a,b"', arrival_s="10.25")))).jobs
    write_jobs(jobs, tmp_path / "again.csv")
    again = read_trace(tmp_path / "again.csv")
    assert again.jobs == jobs
    write_jobs(again.jobs, tmp_path / "third.csv")
    assert (tmp_path / "again.csv").read_bytes() == (tmp_path / "third.csv").read_bytes()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["again.csv", "third.csv", "trace.csv"]


@pytest.mark.parametrize("name", ["production-200-s0.csv", "production-200-mixed-s1.csv"])
def test_the_shared_traces_are_read_whole(name: str):
    trace = read_trace(shared_file(str(TRACES.relative_to(TRACES.parents[1]) / name)))
    assert trace.rows == len(trace.jobs) == 200
    assert sum(job.rollout_growth != 1.0 for job in trace.jobs) == (200 if "mixed" in name else 0)
