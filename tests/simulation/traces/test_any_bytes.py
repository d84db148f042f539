"""Whatever bytes a trace file has, it is read whole or refused by a TraceError."""

import gzip
import io
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trace_files import row, table, tar_gz, written

from weaverl.errors import TraceError
from weaverl.simulation.traces import helios, instances, philly
from weaverl.simulation.traces.read import Format, Reading, read_arrivals, read_trace

READING = Reading(steps_per_second=1.0)
TIME = "2017-10-07 01:12:09"
LOG = (
    f'[{{"status":"Pass","vc":"v","jobid":"j","submitted_time":"{TIME}","user":"u","attempts":[{{"start_time":"{TIME}",'
    f'"end_time":"2017-10-07 01:13:23","detail":[{{"ip":"m1","gpus":["gpu0"]}}]}}]}}]'
)
GOOD: dict[Format, str] = {
    Format.PHILLY: ",".join(philly.CSV_COLUMNS) + f"\n{TIME},66.0,1,66.0,11cb48\n",
    Format.PHILLY_JSON: LOG,
    Format.HELIOS: ",".join(helios.COLUMNS) + f"\n1,u,vc,1,1,1,COMPLETED,{TIME},{TIME},{TIME},36848,0\n",
    Format.PAI_2020: "job,inst,user,Terminated,494319.0,494819.0\n",
    Format.PAI_2023: ",".join(instances.POD_COLUMNS) + "\npod-0,12000,16384,1,1000,,LS,Running,0,12537496,0\n",
    Format.DLRM_2025: ",".join(instances.INSTANCE_COLUMNS) + "\ni,HN,a,12,12,1,1,25,25,1,1,6,8,-1,475.0,475.0,500\n",
    Format.GAVEL: "LM\tcd %s\t--steps\t1\t100\t0.000000\t1\n",
}
TASKS = "job,worker,2.0,Terminated,494330.0,494800.0,,,50.0,T4\n"


def packed_as_zip(data: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("trace.csv", data)
    return stream.getvalue()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bytes")
    written(path / "pai_task_table.csv", TASKS)
    return path


@pytest.mark.parametrize("format_", Format)
def test_the_files_that_are_spoiled_below_are_good(folder: Path, format_: Format):
    path = written(folder / "pai_job_table.csv", GOOD[format_])
    assert len(read_arrivals(path, format_, READING).arrivals) == 1


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(format_=st.sampled_from(Format), where=st.floats(0, 1), length=st.integers(0, 8), put=st.binary(max_size=8))
def test_a_public_trace_with_any_bytes_changed(folder: Path, format_: Format, where: float, length: int, put: bytes):
    path = written(folder / "pai_job_table.csv", spoiled(GOOD[format_].encode(), where, length, put))
    try:
        found = read_arrivals(path, format_, READING)
    except TraceError:
        return
    assert all(one.submit_seconds >= 0 and one.duration_seconds > 0 and one.gpus > 0 for one in found.arrivals)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    packing=st.sampled_from(["plain", "gzip", "zip", "tar"]),
    where=st.floats(0, 1),
    length=st.integers(0, 8),
    put=st.binary(max_size=8),
)
def test_a_trace_of_ours_with_any_bytes_changed(folder: Path, packing: str, where: float, length: int, put: bytes):
    data = table(row(), row(job_id="j1")).encode()
    packed = {
        "plain": lambda: data,
        "gzip": lambda: gzip.compress(data, mtime=0),
        "zip": lambda: packed_as_zip(data),
        "tar": lambda: gzip.decompress(tar_gz(folder / "t.tgz", {"t.csv": data}).read_bytes()),
    }[packing]()
    path = written(folder / "trace.csv", spoiled(packed, where, length, put))
    try:
        trace = read_trace(path)
    except TraceError as error:
        assert "\n" not in str(error)
        return
    assert all(job.iterations >= 1 and job.rollout_mean_seconds <= job.rollout_max_seconds for job in trace.jobs)


def spoiled(data: bytes, where: float, length: int, put: bytes) -> bytes:
    """The bytes with a stretch of them replaced."""
    at = int(where * len(data))
    return data[:at] + put + data[at + length :]
