from pathlib import Path

import msgspec
import pytest

import weaverl.reports.audit
from auditor import audit, disagreements
from reports.example import cluster, draw, header, job_header
from reports.hand import interval, timeline
from weaverl.domain.cluster import Slot
from weaverl.domain.jobs import HostMemory
from weaverl.domain.timeline import Timeline
from weaverl.reports.metrics import run_figures
from weaverl.reports.timeline_file import AttemptPin, write_timeline

ONE = cluster(1)
GIB = 2**30


def good(job="a", iterations=2, start=0.0, epoch=1):
    found = []
    for i in range(iterations):
        at = start + 20 * i
        token = f"{epoch}.{10 * i + round(start) + 1}"
        found += [
            interval(job, "rollout", i, at + 1, at + 5, requested=at, granted=at, token=token),
            interval(job, "training", i, at + 6, at + 8, released=at + 9, token=token),
            interval(job, "sync", i, at + 9, at + 10),
        ]
    return found


def changed(intervals, place, **changes):
    found = list(intervals)
    found[place] = msgspec.structs.replace(found[place], **changes)
    return found


def checks(tmp_path, intervals, names=("a",), iterations=2, jobs=None):
    of = header(ONE, names, iterations)
    if jobs:
        of = msgspec.structs.replace(of, jobs=jobs)
    write_timeline(tmp_path / "run", of, Timeline(intervals=tuple(intervals)))
    result = audit(tmp_path / "run")
    assert result.audited == (not result.findings)
    return [finding.check for finding in result.findings], [str(finding) for finding in result.findings]


def test_it_imports_nothing_that_it_checks():
    folder = Path(weaverl.reports.audit.__file__).parent
    imports = [line for file in folder.glob("*.py") for line in file.read_text().splitlines() if "import" in line]
    assert len(imports) > 10
    assert [line for line in imports if "weaverl" in line and "weaverl.reports.audit" not in line] == []


def test_a_good_run_has_no_findings(tmp_path):
    assert checks(tmp_path, good()) == ([], [])
    assert checks(tmp_path, [*good(), *good("b", start=9)], names=("a", "b")) == ([], [])


def test_a_tail_that_was_moved_at_its_very_end_came_before_who_has_its_slots_next(tmp_path):
    run = [
        interval("a", "rollout", 0, 0, 5, token="1.1"),
        interval("a", "rollout", 0, 5, 5, part=1, token="1.1"),
        interval("b", "rollout", 0, 5, 8, token="1.2"),
        interval("a", "training", 0, 5, 6, token="1.3"),
        interval("b", "training", 0, 8, 9, token="1.4"),
    ]
    assert checks(tmp_path, run, names=("a", "b"), iterations=1) == ([], [])
    run[1] = msgspec.structs.replace(run[1], token="1.9")
    assert checks(tmp_path, run, names=("a", "b"), iterations=1)[0] == ["tokens"]


def test_an_empty_run_has_no_findings(tmp_path):
    assert checks(tmp_path, [], names=()) == ([], [])


def test_back_to_back_holders_are_not_at_once(tmp_path):
    run = [*good(iterations=1), interval("b", "rollout", 0, 5, 6), interval("b", "training", 0, 9, 11)]
    assert checks(tmp_path, run, names=("a", "b"), iterations=1) == ([], [])


@pytest.mark.parametrize(
    ("check", "broken"),
    [
        ("clock", changed(good(), 0, started_at=-1)),
        ("order", changed(good(), 1, started_at=4_000_000, granted_at=4_000_000, requested_at=4_000_000)),
        ("order", changed(good(), 2, started_at=7_000_000, granted_at=7_000_000, requested_at=7_000_000)),
        ("order", changed(good(), 2, ended_at=20_500_000, released_at=20_500_000)),
        ("pins", changed(good(), 0, slots=(Slot("t0", 0),))),
        ("pins", changed(good(), 0, slots=(Slot("r0", 1),))),
        ("pins", changed(good(), 0, slots=(Slot("elsewhere", 0),))),
        ("tokens", changed(good(), 3, token="1.1")),
        ("tokens", changed(good(), 3, token="0.99")),
        ("once", [*good(), interval("a", "rollout", 1, 40, 41)]),
        ("once", good(iterations=1)),
        ("once", good(iterations=3)),
        ("once", [one for one in good(iterations=3) if one.iteration != 1]),
        ("once", [one for place, one in enumerate(good()) if place != 1]),
        ("once", [one for place, one in enumerate(good()) if place != 2]),
    ],
)
def test_each_fault_of_one_job_is_found(tmp_path, check, broken):
    assert check in checks(tmp_path, broken)[0]


def test_two_holders_at_once_are_found(tmp_path):
    run = [*good(iterations=1), *good("b", iterations=1, start=2)]
    found, lines = checks(tmp_path, run, names=("a", "b"), iterations=1)
    assert found == ["holders"] * 3
    assert lines[0] == "holders: r0:0 is held by a#1 rollout 0 and b#1 rollout 0 at once"


def test_a_next_holder_before_the_last_has_saved_is_found(tmp_path):
    run = [*good(iterations=1), interval("b", "rollout", 0, 5.5, 6), interval("b", "training", 0, 8.5, 10)]
    found, lines = checks(tmp_path, run, names=("a", "b"), iterations=1)
    assert found == ["holders"]
    assert "is held by" in lines[0]


def test_a_short_hold_inside_a_long_one_is_found(tmp_path):
    of = [interval("a", "rollout", 0, 0, 100), interval("b", "rollout", 0, 50, 51), interval("b", "rollout", 1, 90, 91)]
    assert checks(tmp_path, of, names=("a", "b"), iterations=None)[0] == [*["holders"] * 4, "once"]


def test_more_pinned_than_a_node_can_keep_is_found(tmp_path):
    jobs = tuple(
        msgspec.structs.replace(
            job_header(ONE, name, 1), host_memory=HostMemory(rollout_bytes=50 * GIB, training_bytes=45 * GIB)
        )
        for name in "ab"
    )
    run = [*good(iterations=1), *good("b", iterations=1, start=9.5)]
    found, lines = checks(tmp_path, run, jobs=jobs)
    assert found == ["residency"]
    assert lines == [f"residency: r0 had {100 * GIB} bytes pinned, {90 * GIB} are usable"]
    later = [*good(iterations=1), *good("b", iterations=1, start=10)]
    assert checks(tmp_path, later, jobs=jobs) == ([], [])


def test_a_later_attempt_repeats_what_the_first_did_not_finish(tmp_path):
    pins = tuple(AttemptPin(attempt=n, rollout=(Slot("r0", 0),), training=(Slot("t0", 0),)) for n in (1, 2))
    job = msgspec.structs.replace(job_header(ONE, "a", 2), pins=pins)
    second = [
        msgspec.structs.replace(one, attempt=2, token=one.token and "2.1")
        for one in good(start=30)
        if one.iteration == 1
    ]
    assert checks(tmp_path, [*good()[:4], *second], jobs=(job,)) == ([], [])
    found, lines = checks(tmp_path, good()[:4], jobs=(job,))
    assert found == ["once"]
    assert lines == ["once: a#1 never ran training 1"]


def test_an_open_ended_job_may_end_anywhere(tmp_path):
    assert checks(tmp_path, good()[:4], iterations=None) == ([], [])


def test_damage_is_a_finding_and_a_torn_tail_is_not(tmp_path):
    write_timeline(tmp_path / "run", header(ONE, ("a",), 2), timeline(*good()))
    lines = (tmp_path / "run").read_bytes().splitlines(keepends=True)
    (tmp_path / "torn").write_bytes(b"".join(lines) + b'{"job":')
    assert audit(tmp_path / "torn").audited
    (tmp_path / "bad").write_bytes(lines[0] + b"oops\n" + b"".join(lines[1:]))
    assert [str(finding) for finding in audit(tmp_path / "bad").findings] == ["file: line 2 is not JSON"]


def test_figures_by_hand(tmp_path):
    write_timeline(tmp_path / "run", header(ONE, ("a",), 2), timeline(*good()))
    figures = audit(tmp_path / "run").figures
    assert figures.seconds == 30.0
    assert figures.usd == pytest.approx(30 / 3600 * 7.13)
    assert figures.bubbles == {"rollout": pytest.approx(1 - 8 / 30), "training": pytest.approx(1 - 4 / 30)}
    # Each iteration: 4 + 2 + 1 in phases, 1 s restore and 1 s save; other 1 s, and 10 s more before the second.
    assert figures.slowdowns == {"a": pytest.approx(30 / 26)}
    assert figures.slo_met == {"a": True}
    assert figures.peak_devices == {"rollout": 1, "training": 1}
    assert figures.peak_host_memory == {"r0": 20 * GIB, "t0": 30 * GIB}
    assert figures.iterations == {"a": 2}


def test_it_confirms_what_reports_say_and_only_that(tmp_path):
    of = cluster(4)
    jobs = {"a": (3, 2), "b": (2, 3)}
    solo = {name: draw(of, {name: lengths}, 30) for name, lengths in jobs.items()}
    woven = draw(of, jobs, 30, stretch=1.07)
    write_timeline(tmp_path / "woven", header(of, ("a", "b"), 30), woven)
    for name, run in solo.items():
        write_timeline(tmp_path / name, header(of, (name,), 30), run)
    result = audit(tmp_path / "woven", {name: tmp_path / name for name in jobs})
    assert result.findings == ()

    figures = run_figures(of, woven, ["a", "b"], solo)
    reported = {
        "seconds": figures.seconds,
        "usd": figures.usd,
        **{f"bubble_{pool.pool}": pool.bubble for pool in figures.pools},
        **{f"slowdown:{job.name}": job.slowdown for job in figures.jobs},
    }
    assert set(reported) == set(result.figures.flat())
    assert disagreements(result.figures, reported) == []
    wrong = disagreements(result.figures, reported | {"usd": figures.usd * 0.99, "speed": 3.0})
    assert [finding.message.split()[0] for finding in wrong] == ["usd", "speed"]
