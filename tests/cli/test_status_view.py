"""What `status` and `submit` say."""

import io

import msgspec
import pytest
from rich.console import Console

from weaverl.cli.main import main
from weaverl.cli.status_view import print_explanation, print_status, whereabouts
from weaverl.control.shares import TenantStatus
from weaverl.control.status import ClusterStatus, JobStatus, NodeStatus
from weaverl.domain.commands import Verdict
from weaverl.domain.groups import Group
from weaverl.domain.jobs import JobState
from weaverl.reports.tables import PIPED_WIDTH
from weaverl.version import VERSION


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")


def job(name: str, **more: object) -> JobStatus:
    plain = {
        "tenant": "default",
        "state": JobState.RUNNING,
        "attempt": 1,
        "reason": "",
        "group": "g1",
        "nodes": ("rollout-0", "training-0"),
        "iterations_done": 11,
        "iterations": 12,
        "slo": 1.6,
        "predicted_slowdown": 1.02,
        "slowdown": 1.04,
        "doing": "waits for training 11",
        "verdicts": (),
        "last_lines": (),
    }
    return JobStatus(name=name, **{**plain, **more})


def status(*jobs: JobStatus) -> ClusterStatus:
    nodes = tuple(
        NodeStatus(
            name=f"{pool}-0",
            pool=pool,
            state="quarantined",
            group="g1",
            doing=f"counting-b {pool} 11",
            host_used_bytes=1288490188,
            host_usable_bytes=3865470566,
        )
        for pool in ("rollout", "training")
    )
    group = Group(
        name="g1",
        rollout_nodes=("rollout-0",),
        training_nodes=("training-0",),
        members=tuple(one.name for one in jobs if one.group),
    )
    return ClusterStatus(
        cluster="laptop",
        written_at=0.0,
        epoch=3,
        usd_per_hour=7.13,
        nodes=nodes,
        groups=(group,),
        jobs=jobs,
        policy="weave-paper",
    )


KILLED = job("gone", state=JobState.FAILED, group=None, doing="", reason="gone/run-0 was ended by signal 9 (SIGKILL)")


def test_status_fits_80_columns_with_one_line_a_node_and_a_job():
    stream = io.StringIO()
    found = status(job("counting-a"), job("counting-b"), KILLED)
    print_status(found, Console(file=stream, force_terminal=True, width=80, color_system=None))
    lines = [line.rstrip() for line in stream.getvalue().splitlines()]
    assert max(map(len, lines)) <= 80
    assert "…" not in stream.getvalue()
    assert lines[0] == "cluster laptop, policy weave-paper, $7.13 an hour, epoch 3"
    (line,) = [line for line in lines if line.startswith("counting-a")]
    assert line.split() == ["counting-a", "running", "g1", "11/12", "1.04/1.60", "waits", "for", "training", "11"]
    (line,) = [line for line in lines if line.startswith("training-0")]
    assert line.endswith("1.20/3.60 GiB")
    assert lines[-1] == "gone: gone/run-0 was ended by signal 9 (SIGKILL)"


def test_status_says_who_is_late_and_who_is_to_move_and_where_to():
    late = job("watched", late=True, slack_seconds=-500.0)
    moving = job("counting-b", planned_move="to group g2, to keep the promise of watched")
    stream = io.StringIO()
    print_status(status(late, moving), Console(file=stream, width=80, color_system=None))
    assert stream.getvalue().splitlines()[-2:] == [
        "watched: late, with 8.3 min to make good: its slots are kept free for it",
        "counting-b: is to move to group g2, to keep the promise of watched",
    ]


def test_an_explanation_says_how_a_job_stands_to_its_promise_and_what_became_of_its_moves():
    stream = io.StringIO()
    stayed = "it would save nothing any more"
    print_explanation(job("counting-a", slack_seconds=90.0, moves=2, stays_because=stayed), stream)
    assert stream.getvalue().splitlines()[1:3] == [
        "slowed to 1.04x so far, its SLO is 1.60x: 90 s may still be lost, moved 2 times",
        "its last planned move was dropped: it would save nothing any more",
    ]
    stream = io.StringIO()
    print_explanation(job("counting-a", state=JobState.FINISHED, slack_seconds=90.0), stream)
    assert stream.getvalue().splitlines()[1] == "slowed to 1.04x in all, its SLO is 1.60x"


def test_an_explanation_shows_dollars_in_all_where_the_policy_asks_for_them():
    taken = Verdict(kind="pack", group="g1", added_usd_per_hour=0.0, predicted_slowdowns={"a": 1.1}, added_usd=390.4)
    dearer = Verdict(
        kind="isolate", group="g2", added_usd_per_hour=57.04, added_usd=1477.0, refused="adds more dollars in all"
    )
    stream = io.StringIO()
    print_explanation(job("counting-a", verdicts=(dearer, taken)), stream)
    words = [line.split() for line in stream.getvalue().splitlines()]
    assert ["isolate", "g2", "57.04", "1,477.00", "adds", "more", "dollars", "in", "all"] in words
    assert ["pack", "g1", "0.00", "390.40", "a", "1.10x", "taken"] in words


def test_a_job_that_was_taken_is_said_to_be_placed_or_queued_and_why():
    found = status(job("counting-a"), job("counting-b"))
    assert whereabouts(found, found.jobs[0]) == "in group g1 on rollout-0, training-0 with counting-b"
    refused = Verdict(kind="isolate", group="", added_usd_per_hour=7.13, refused="no free training node")
    waiting = msgspec.structs.replace(found.jobs[0], state=JobState.QUEUED, group=None, verdicts=(refused,))
    assert whereabouts(found, waiting) == "queued, no free training node"


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as exit_:
        main(["--version"])
    assert exit_.value.code == 0
    assert capsys.readouterr().out == f"weaverl {VERSION}\n"


def test_an_explanation_is_whole_in_80_columns_and_has_no_frame_when_piped():
    taken = Verdict(
        kind="isolate", group="g12", added_usd_per_hour=57.04, predicted_slowdowns={"counting-a": 1.0}, refused=""
    )
    slowed = Verdict(
        kind="scale rollout",
        group="g1",
        added_usd_per_hour=14.8,
        predicted_slowdowns={"a-job-with-a-rather-long-name": 1.62, "counting-a": 1.4},
        refused="would slow a-job-with-a-rather-long-name to 1.62x, its SLO is 1.50x",
    )
    for stream in (Terminal(), io.StringIO()):
        print_explanation(job("counting-a", verdicts=(slowed, taken)), stream)
        lines = stream.getvalue().splitlines()
        assert max(map(len, lines)) <= (80 if stream.isatty() else PIPED_WIDTH)
        words = " ".join(" ".join(lines).split())
        for part in ("isolate", "14.80", "57.04", "1.62x", "counting-a 1.00x", "taken"):
            assert part in words
    assert lines[-1].split() == ["isolate", "g12", "57.04", "counting-a", "1.00x", "taken"]


def test_a_shared_cluster_shows_its_tenants_and_where_jobs_stand():
    waiting = job("b", state=JobState.QUEUED, group=None, standing="number 1 of 1 in the queue, priority 0")
    one = TenantStatus(name="research", weight=3.0, used=1234.5, per_hour=57.04, running=1, waiting=2)
    shared = msgspec.structs.replace(status(job("a"), waiting), tenants=(one,), shared_by="dollars")
    stream = Terminal()
    print_status(shared, Console(file=stream, width=80))
    lines = stream.getvalue().splitlines()
    assert "b: number 1 of 1 in the queue, priority 0" in lines
    assert [line.split() for line in lines[-1:]] == [["research", "3", "1", "2", "57.04", "1,234.50", "411.50"]]
    explained = io.StringIO()
    print_explanation(waiting, explained)
    assert "number 1 of 1 in the queue, priority 0" in explained.getvalue()
