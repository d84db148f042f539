import math
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import msgspec
import pytest

from reports.example import cluster, draw, example_report, header
from reports.hand import interval, timeline
from weaverl.domain.cluster import PoolKind, Slot
from weaverl.domain.timeline import Restore
from weaverl.reports.curves import missing, reward_curves
from weaverl.reports.gantt import GanttRun, gantt_svg
from weaverl.reports.html import demo_page, demo_picture, run_page
from weaverl.reports.timeline_file import TimelineFile

VOID = {"meta", "br", "hr"}
SVG = "{http://www.w3.org/2000/svg}"
NASTY = "<script>alert(1)</script>\"'&\x00\ud800"


class Page(HTMLParser):
    """Checks that every element is closed in order; collects names, ids and text."""

    def __init__(self, page):
        super().__init__()
        self.open, self.names, self.ids, self.words = [], [], [], []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.names.append(tag)
        self.ids += [value for key, value in attrs if key == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return " ".join(self.words)


def file_of(*intervals, names=(), torn_bytes=0):
    return TimelineFile(header=header(cluster(1), names, 1), timeline=timeline(*intervals), torn_bytes=torn_bytes)


def run_picture(file):
    """The Gantt chart of one run as an SVG file that stands alone."""
    names = [job.name for job in file.header.jobs]
    return gantt_svg(file.header.cluster, names, [GanttRun(title="Run", timelines=(file.timeline,))])


def bars(picture):
    return [group for group in ElementTree.fromstring(picture).iter(f"{SVG}g") if group.find(f"{SVG}title") is not None]


def test_a_run_without_its_beginning_says_so():
    whole = file_of(interval("a", "rollout", 0, 0, 4), names=("a",))
    partial = msgspec.structs.replace(whole, header=msgspec.structs.replace(whole.header, partial=True))
    assert "The beginning is missing" in Page(run_page(partial)).text
    assert "The beginning is missing" not in Page(run_page(whole)).text


def test_the_demo_page_says_what_was_found():
    page = Page(demo_page(example_report()))
    assert "Two GRPO jobs in 68 s instead of 107 s: 1.57x, same bits" in page.text
    for word in ("1.62x", "schedule efficiency 94 %", "arithmetic <a&b>", "the two coincide", "laptop", "tiny-gpt2"):
        assert word in page.text
    assert len(page.ids) == len(set(page.ids))


def test_iterations_of_two_digits_are_numbered_as_long_as_they_fit():
    def labels(length):
        bodies = [interval("a", "rollout", number, number, number + length) for number in (9, 10)]
        whole = interval("a", "training", 9, 0, 50)  # 50 s are 828 pixels
        root = ElementTree.fromstring(run_picture(file_of(*bodies, whole, names=("a",))))
        return sorted(text.text for text in root.iter(f"{SVG}text") if text.get("class", "").endswith("number"))

    assert labels(0.9) == ["10", "9", "9"]
    assert labels(0.75) == ["9", "9"]


def test_rewards_of_all_jobs_are_on_one_scale():
    report = example_report()
    jobs = (report.jobs[0], msgspec.structs.replace(report.jobs[1], rewards_solo=(0, 10), rewards_woven=(0, 10)))
    page = demo_page(msgspec.structs.replace(report, jobs=jobs))
    axes = [re.findall(r'text-anchor="end">([\d.]+)<', part) for part in page.split('class="curves"')[1:]]
    assert axes[0] == axes[1] == ["0", "2", "4", "6", "8", "10"]


def test_a_page_needs_nothing_else():
    for page in (demo_page(example_report()), demo_picture(example_report())):
        rest = page.replace('xmlns="http://www.w3.org/2000/svg"', "")
        assert not re.search(r"https?:|//|@import|<script|<link|src=|href=", rest)
    assert "prefers-color-scheme:dark" in demo_page(example_report())


def test_bits_that_differ_are_plain_to_see():
    page = demo_page(msgspec.structs.replace(example_report(), bit_equal=False))
    assert '<span class="bad">NO</span>' in page
    assert "NOT the same bits" in page


def test_the_picture_stands_alone_with_its_own_ground():
    root = ElementTree.fromstring(demo_picture(example_report()))
    assert root.find(f"{SVG}style") is not None
    ground = root.find(f"{SVG}rect")
    assert (ground.get("class"), ground.get("width"), ground.get("height")) == ("card", "100%", "100%")
    assert (root.get("width"), root.get("viewBox").split()[2]) == ("1036", "1036")


def test_both_runs_are_on_one_time_scale():
    report = example_report()
    found = bars(demo_picture(report))
    widths = {}
    for group in found:
        words = group.find(f"{SVG}title").text.split("\n")
        body = next(rect for rect in group.iter(f"{SVG}rect") if rect.get("class", "").startswith("j"))
        widths.setdefault(words[0], []).append(float(body.get("width")) / float(words[1].split()[0]))
    assert len(found) == 2 * len(report.jobs) * 8 * 2
    rates = [rate for both in widths.values() for rate in both]
    assert max(rates) == pytest.approx(min(rates), rel=0.01)


def test_a_phase_on_neighbouring_devices_is_one_bar_and_on_others_several():
    of = cluster(4)
    slots = (Slot("r0", 0), Slot("r0", 1), Slot("r0", 3))
    file = TimelineFile(header=header(of, ("a",), 1), timeline=timeline(interval("a", "rollout", 0, 0, 5, slots=slots)))
    (bar,) = bars(run_picture(file))
    assert [float(rect.get("height")) for rect in bar.iter(f"{SVG}rect")] == pytest.approx(
        [25 * 2 + 25 / 6, 25], abs=0.02
    )


def test_hover_tells_job_phase_iteration_and_seconds():
    (bar,) = bars(
        run_picture(file_of(interval("a", "rollout", 3, 2, 5, requested=0, granted=1, released=6, tokens=1234)))
    )
    assert bar.find(f"{SVG}title").text.split("\n") == [
        "a · rollout 3",
        "3.000 s",
        "waited 1.000 s",
        "restore 1.000 s",
        "save 1.000 s",
        "1,234 tokens",
    ]


def test_state_that_is_restored_ahead_is_a_strip_on_each_of_its_lanes_and_no_bar():
    of = cluster(2)
    ahead = Restore(
        restored=PoolKind.TRAINING,
        job="a",
        attempt=1,
        slots=(Slot("t0", 0), Slot("t0", 1)),
        token="1.2",
        began_at=1_000_000,
        ready_at=3_000_000,
        left_at=5_000_000,
    )
    held = timeline(interval("a", "rollout", 0, 0, 5), interval("a", "training", 0, 5, 6))
    picture = run_picture(
        TimelineFile(header=header(of, ("a",), 1), timeline=msgspec.structs.replace(held, restores=(ahead,)))
    )
    title = "a · training state restored ahead"
    found = [group for group in bars(picture) if group.find(f"{SVG}title").text == title]
    assert [len(list(group.iter(f"{SVG}rect"))) for group in found] == [2]


@pytest.mark.parametrize(
    "file",
    [
        file_of(),
        file_of(names=("a",)),
        file_of(interval("a", "rollout", 0, 0, 1)),
        file_of(interval("a", "rollout", 0, 5, 5)),
        file_of(interval("a", "sync", 0, 0, 1)),
        file_of(interval("a", "loading", 0, 0, 1)),
        file_of(interval("a", "rollout", 0, 0, 1, slots=())),
        file_of(interval("a", "rollout", 0, 0, 1, slots=(Slot("unknown", 9),))),
    ],
    ids=["empty", "job-without-phases", "one", "no-length", "sync-only", "loading", "no-slot", "unknown-slot"],
)
def test_a_page_is_drawn_whatever_is_missing(file):
    Page(run_page(file))
    picture = run_picture(file)
    ElementTree.fromstring(picture)
    assert "nan" not in picture
    assert "inf" not in picture


def test_a_demo_without_a_woven_run_or_rewards_is_drawn():
    report = example_report()
    jobs = tuple(msgspec.structs.replace(job, rewards_solo=(), rewards_woven=()) for job in report.jobs)
    for changes in ({"woven": timeline()}, {"jobs": jobs}, {"jobs": ()}, {"parameters": {}, "machine": {}}):
        report_now = msgspec.structs.replace(report, **changes)
        Page(demo_page(report_now))
        ElementTree.fromstring(demo_picture(report_now))


def test_a_page_defines_the_figures_that_it_shows():
    one = Page(run_page(file_of(interval("a", "rollout", 0, 0, 1), names=("a",)))).text
    both = Page(demo_page(example_report())).text
    assert "1 interval of 1 job on" in one
    for word in ("Throughput ratio", "Predicted ratio, schedule efficiency", "Interference"):
        assert word in both and word not in one
    assert "Slowdown" in one and "Slowdown" in both


def test_a_torn_tail_is_reported_on_the_page():
    assert "its 17 bytes were skipped" in Page(run_page(file_of(torn_bytes=17))).text


def test_what_users_write_cannot_break_the_page():
    file = file_of(interval(NASTY, "rollout", 0, 0, 9), names=(NASTY,))
    for page in (run_page(file, NASTY), demo_page(msgspec.structs.replace(example_report(), machine={NASTY: NASTY}))):
        page.encode()
        assert "<script" not in page
        assert "\x00" not in page
    ElementTree.fromstring(run_picture(file))


def test_ten_thousand_intervals_are_a_page_with_few_labels():
    names = {"a": (3, 2), "b": (2, 3), "c": (1, 1), "d": (4, 1)}
    file = TimelineFile(header=header(cluster(8), tuple(names), 850), timeline=draw(cluster(8), names, 850))
    assert len(file.timeline.intervals) > 10_000
    page = run_page(file)
    assert "A closer look" in page
    assert page.count('text-anchor="middle"') < 400


def test_a_month_between_two_phases_has_few_ticks():
    month = 30 * 86400
    page = run_page(file_of(interval("a", "rollout", 0, 0, 1), interval("a", "training", 0, month, month + 1)))
    assert page.count(" d</text>") <= 10


def test_many_jobs_keep_the_legend_in_the_picture():
    file = file_of(*(interval(f"job-{i:03}", "rollout", 0, i, i + 1) for i in range(100)))
    assert "and 94 more jobs" in run_picture(file)


def test_a_missing_reward_leaves_a_gap_that_is_counted():
    values = (0.1, 0.2, math.nan, 0.4)
    curves = reward_curves("a", 0, (), values)
    assert (curves.count("<polyline"), curves.count("<circle")) == (1, 1)
    assert missing((), values) == 1
    assert "nan" not in reward_curves("a", 0, (math.nan, math.nan), (math.inf,))


def test_one_reward_is_a_dot():
    assert reward_curves("a", 0, (0.5,), (0.5,)).count("<circle") == 2
