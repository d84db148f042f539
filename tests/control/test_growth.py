"""What a cluster keeps stays bounded over months: ended jobs in the status, its own logs."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "scheduling"))

from builders import World, cluster, job

from weaverl.control import status
from weaverl.control.log_tail import bound_size, last_lines


def test_the_status_has_all_living_jobs_and_the_latest_ended_ones(monkeypatch):
    monkeypatch.setattr(status, "ENDED_SHOWN", 2)
    world = World(cluster(), iterations=1)
    for number in range(4):
        world.submit(job(f"j{number}"))
        world.run()
    world.submit(job("lives"))
    found = status.describe(world.scheduler, 0.0)
    assert [one.name for one in found.jobs] == ["j2", "j3", "lives"]
    assert found.num_older_jobs == 2


def test_a_log_that_is_too_large_begins_anew_under_its_writer_and_the_rest_is_beside(tmp_path):
    log = tmp_path / "head.log"
    with log.open("ab", buffering=0) as writer:
        writer.write(b"first\n")
        bound_size(log, limit_bytes=6)
        assert last_lines(log) == ("first",)
        writer.write(b"second\n")
        bound_size(log, limit_bytes=6)
        writer.write(b"third\n")
    assert last_lines(log) == ("third",)
    assert last_lines(tmp_path / "head.log.1") == ("first", "second")
    bound_size(tmp_path / "absent.log", limit_bytes=6)
