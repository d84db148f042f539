"""The whole command: real store, controller, agents and jobs."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

PATIENCE_SECONDS = 60.0
MORE_HANDOVERS_THAN_TIME = 10**6


@pytest.fixture
def temporary():
    """An empty folder for temporary files, with a path short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="wb-") as folder:
        yield Path(folder)


def bench(temporary, *arguments):
    command = [sys.executable, "-m", "weaverl.cli.main", "bench", "permits", *arguments]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def processes_of(temporary):
    """Command lines of living processes that were started by a bench, however far down."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get("TMPDIR") == str(temporary):
                found.append(" ".join(process.cmdline()))
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def wait_for(condition):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_three_jobs_give_plausible_figures_and_leave_nothing_behind(temporary):
    process = bench(temporary, "--jobs", "3", "--handovers", "150", "--json", "-")
    output, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, errors
    figures = json.loads(output)
    assert 0 < figures["handover_p50_ms"] <= figures["handover_p99_ms"] < 1000
    assert 0 < figures["loaded_p50_ms"] <= figures["loaded_p99_ms"] < 1000
    assert 0 < figures["plain_call_us"] < 1000
    assert all(figures[key] > 0 for key in ("sync_p50_ms", "loaded_sync_p50_ms", "controller_us", "store_us"))
    assert figures["jobs"] == 3
    assert figures["handovers"] >= 150
    assert figures["loaded_handovers"] >= 150
    assert figures["parameters"]["body_ms"] == 1.5
    assert figures["machine"]["cores"] == os.cpu_count()
    assert list(temporary.iterdir()) == []
    assert processes_of(temporary) == []


@pytest.mark.parametrize("moment", ["weaverl.cli.main head", "weaverl.cli.bench_rank", "weaverl.cli.bench_load"])
@pytest.mark.slow  # a cluster each
def test_interrupt_leaves_nothing_behind(temporary, moment):
    process = bench(temporary, "--jobs", "2", "--handovers", str(MORE_HANDOVERS_THAN_TIME))
    try:
        wait_for(lambda: any(moment in line for line in processes_of(temporary)))
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == 130, errors
        assert list(temporary.iterdir()) == []
    finally:
        process.kill()
        wait_for(lambda: processes_of(temporary) == [])


def test_one_job_is_refused_with_the_remedy(temporary):
    process = bench(temporary, "--jobs", "1")
    _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 2
    assert errors == "weaverl: --jobs is 1: a hand-over takes 2 or more\n"
