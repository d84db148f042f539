import sys

import msgspec
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from reports.reproduction_example import excerpt, reproduction, result
from weaverl.errors import UsageError
from weaverl.reports.plots.canvas import save_picture
from weaverl.reports.plots.costs import cost_over_time
from weaverl.reports.plots.decisions import decision_figure
from weaverl.reports.plots.gantt import gantt_excerpt
from weaverl.reports.plots.sensitivity import sensitivity_figure
from weaverl.reports.plots.slowdowns import slowdown_figure
from weaverl.reports.reproduction import write_report
from weaverl.simulation.reproduction.records import CostStep, DecisionPoint
from weaverl.simulation.reproduction.sweeps import WORTH

SIZE = (5.0, 3.0)
POINTS = [DecisionPoint(jobs=10, p50_ms=0.1, p99_ms=0.2), DecisionPoint(jobs=1000, p50_ms=1.0, p99_ms=3.0)]


def texts(paint):
    """All that is written in a figure; nothing is rendered, which would take a second each."""
    figure = Figure(figsize=SIZE)
    paint(figure)
    return [one.get_text() for one in figure.findobj(Text)]


def test_equal_figures_are_equal_byte_for_byte(tmp_path):
    def paint(figure):
        axes = figure.add_subplot()
        axes.plot([0, 1], marker="o", label="ours")
        axes.fill_between([0, 1], [1, 2], hatch="/")
        axes.legend()

    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        save_picture(tmp_path / folder, "picture", "a picture", (2.0, 1.5), paint)
    for name in ("picture.svg", "picture.png"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_without_matplotlib_one_line_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UsageError, match=r"matplotlib is not installed.*pip install 'weaverl\[plots\]'"):
        save_picture(tmp_path, "picture", "a picture", SIZE, lambda figure: None)
    assert list(tmp_path.iterdir()) == []


def test_the_published_decision_stands_beside_ours():
    drawn = texts(lambda figure: decision_figure(figure, POINTS, (2000, 591.0)))
    assert "published: 591 ms\nat 2,000 jobs" in drawn


def test_a_single_measurement_is_drawn():
    drawn = texts(lambda figure: decision_figure(figure, POINTS[:1], (2000, 591.0)))
    assert "0.1 ms" in drawn


def test_jobs_without_a_slowdown_are_left_out_and_counted():
    some = result("weave-paper", "s0", 600.0)
    broken = msgspec.structs.replace(some, slowdowns=(float("nan"), float("inf"), *some.slowdowns[2:]))
    drawn = texts(lambda figure: slowdown_figure(figure, [broken]))
    assert "2 jobs without a slowdown are left out" in drawn
    assert "WEAVE, as published: 198 of 198 within their SLO" in drawn


def test_a_promise_broken_is_seen():
    some = msgspec.structs.replace(result("weave-paper", "s0", 600.0), slowdowns=(1.2, 1.6), slos=(1.5, 1.5))
    drawn = texts(lambda figure: slowdown_figure(figure, [some]))
    assert "WEAVE, as published: 1 of 2 within their SLO" in drawn


def test_days_without_any_job_have_no_more_ticks_than_others():
    steps = [
        CostStep(hours=hours, rollout_usd_per_hour=usd, training_usd_per_hour=usd)
        for hours, usd in ((0.0, 50.0), (0.001, 0.0), (16 * 24.0, 50.0), (160 * 24.0, 0.0))
    ]
    some = msgspec.structs.replace(result("weave-paper", "gap", 600.0), steps=tuple(steps))
    seen = []

    def paint(figure):
        cost_over_time(figure, [some])
        seen.append(len(figure.axes[0].get_xticks()))

    texts(paint)
    assert seen[0] <= 12


def test_weaving_is_shaded_as_not_paying_up_to_where_the_sentences_say_so():
    figure = Figure(figsize=SIZE)
    sensitivity_figure(figure, reproduction().sweeps[:1])
    (shade,) = figure.axes[0].patches
    assert shade.get_y() + shade.get_height() == pytest.approx(WORTH)


def test_a_gantt_shows_each_phase_on_each_of_its_nodes():
    some = msgspec.structs.replace(excerpt(), minutes=10)

    drawn = texts(lambda figure: gantt_excerpt(figure, some))
    # The large job's second rollout is on two nodes, its training on one.
    assert drawn.count("large 1") == 3
    assert drawn.count("small 1") == 2


@pytest.mark.slow
def test_the_report_has_every_row_in_every_format(tmp_path):
    found = reproduction()
    write_report(found, tmp_path)
    markdown, page = (tmp_path / "README.md").read_text(), (tmp_path / "index.html").read_text()
    figures = msgspec.json.decode((tmp_path / "results.json").read_bytes())
    for row in found.rows:
        assert f"| {row.what} | {row.published} | {row.ours} | {row.differs} |" in markdown
        assert row.what in page
    assert [row["key"] for row in figures["rows"]] == [row.key for row in found.rows]
    for sweep in found.sweeps:
        assert sweep.answer in markdown
        assert sweep.answer in page
    pictures = sorted(path.name for path in (tmp_path / "figures").iterdir())
    assert [name for name in pictures if name.endswith(".svg")] == [
        name.replace(".png", ".svg") for name in pictures if name.endswith(".png")
    ]
    assert all(f"figures/{name}" in markdown for name in pictures if name.endswith(".svg"))
    assert page.count("data:image/svg+xml") == len(pictures) // 2
    assert 'src="figures' not in page
