import io

import pytest
from rich.console import Console

from reports.example import cluster, example_report
from reports.hand import interval, timeline
from weaverl.reports import cells
from weaverl.reports.metrics import run_figures
from weaverl.reports.tables import console_for, print_demo, print_run


def printed(draw, *arguments):
    stream = io.StringIO()
    draw(*arguments, console_for(stream))
    return stream.getvalue()


def test_a_piped_demo_is_plain_and_one_line_a_job():
    lines = printed(print_demo, example_report()).splitlines()
    assert lines[0] == "Two GRPO jobs in 68 s instead of 107 s: 1.57x, same bits"
    assert "bit-equal        yes" in [line.rstrip() for line in lines]
    assert not any("\x1b" in line or "─" in line for line in lines)
    (row,) = [line for line in lines if line.startswith("arithmetic <a&b>")]
    assert row.split()[2:6] == ["1.21x", "1.30x", "1.21x", "1.04x"]
    assert [line.split()[0] for line in lines[-4:]] == ["rollout", "rollout", "training", "training"]


def test_rewards_solo_and_columns_without_content_are_left_out():
    run = timeline(interval("a", "rollout", 0, 0, 4), interval("a", "training", 0, 4, 6))
    text = printed(print_run, run_figures(cluster(1), run), {"a": 1.5})
    assert "reward" not in text
    assert "interference" not in text
    assert "1.00x  1.50x" in text


def test_an_empty_run_prints():
    assert "length" in printed(print_run, run_figures(cluster(1), timeline()), {})


def test_markup_in_names_is_printed_as_it_is():
    run = timeline(interval("[red]a[/red]", "rollout", 0, 0, 4))
    assert "[red]a[/red]" in printed(print_run, run_figures(cluster(1), run), {})


@pytest.mark.parametrize("width", [80, 100, 160])
def test_no_cell_is_cut_off_in_a_terminal(width):
    stream = io.StringIO()
    print_demo(example_report(), Console(file=stream, force_terminal=True, width=width, color_system=None))
    assert "slowdown" in stream.getvalue()
    assert "…" not in stream.getvalue()
    assert max(map(len, stream.getvalue().splitlines())) <= width


def test_a_broken_promise_is_red():
    stream = io.StringIO()
    run = timeline(interval("a", "rollout", 0, 4, 6, requested=0))
    print_run(
        run_figures(cluster(1), run),
        {"a": 1.5},
        Console(file=stream, force_terminal=True, width=120, color_system="standard"),
    )
    assert "\x1b[1;31m   3.00x" in stream.getvalue()


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (cells.usd(0), "$0.00"),
        (cells.usd(0.00123), "$0.0012"),
        (cells.usd(0.4239), "$0.424"),
        (cells.usd(1234.5), "$1,234.50"),
        (cells.gib(0.5), "512 MiB"),
        (cells.gib(2048), "2.0 TiB"),
        (cells.mib(90), "90 MiB"),
        (cells.mib(1440), "1.4 GiB"),
        (cells.percent(None), "–"),
        (cells.times(1.234), "1.23x"),
    ],
)
def test_numbers_read_as_people_write_them(shown, expected):
    assert shown == expected
