"""The figures of a run as tables in the terminal; plain text, wide enough and without frames, when piped."""

from collections.abc import Mapping, Sequence
from typing import TextIO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from weaverl.reports import cells
from weaverl.reports.axis import duration
from weaverl.reports.demo import DemoReport, bubbles, headline
from weaverl.reports.metrics import JobFigures, PoolFigures, RunFigures

PIPED_WIDTH = 200
_SHORT = {
    "rollout interference": "rollout\ninterf.",
    "training interference": "training\ninterf.",
    "worst 20": "worst\n20",
    "reward, first → last": "reward",
    "iterations": "iters",
    "switching": "switch",
    "state moved": "state\nmoved",
}


def console_for(stream: TextIO) -> Console:
    """A console for a stream: as wide as the terminal, or wide and plain if it is none."""
    if stream.isatty():
        return Console(file=stream, highlight=False)
    return Console(file=stream, highlight=False, width=PIPED_WIDTH, color_system=None)


def print_demo(report: DemoReport, console: Console) -> None:
    """The headline, the key figures and both tables."""
    figures = report.figures()
    console.print(Text(headline(report, figures), style="bold"))
    console.print()
    _print_facts(_demo_facts(report), console)
    console.print()
    console.print(
        jobs_table(
            figures.woven.jobs,
            {job.name: job.slo for job in report.jobs},
            {job.name: job.rewards_woven for job in report.jobs},
            width=_width_of(console),
        )
    )
    console.print()
    runs = {"solo": figures.pools_solo, "woven": figures.woven.pools}
    console.print(pools_table(runs, width=_width_of(console)))


def print_run(figures: RunFigures, slos: Mapping[str, float], console: Console) -> None:
    """Key figures and tables of one run."""
    facts = (
        ("length", duration(figures.seconds)),
        *([("dollars", cells.usd(figures.usd))] if figures.usd else []),
        ("hand-overs", str(figures.handovers)),
        ("state moved, synced", f"{cells.gib(figures.moved_gib)}, {cells.mib(figures.sync_mib)}"),
    )
    _print_facts(facts, console)
    console.print()
    console.print(jobs_table(figures.jobs, slos, width=_width_of(console)))
    console.print()
    console.print(pools_table({"": figures.pools}, width=_width_of(console)))


def jobs_table(
    jobs: Sequence[JobFigures],
    slos: Mapping[str, float],
    rewards: Mapping[str, Sequence[float]] | None = None,
    *,
    width: int | None = None,
) -> Table:
    """A row a job; a slowdown past the SLO stands out. ``width`` is the terminal's; without it the table is plain."""
    rows = [
        (
            cells.job_row(job, slos.get(job.name), (rewards or {}).get(job.name, ())),
            cells.over_slo(job, slos.get(job.name)),
        )
        for job in jobs
    ]
    return _table(cells.JOB_COLUMNS, rows, width)


def pools_table(runs: Mapping[str, Sequence[PoolFigures]], *, width: int | None = None) -> Table:
    """A row a pool and run; keys name the runs. ``width`` as above."""
    return _table(cells.POOL_COLUMNS, [(row, False) for row in cells.pool_rows(runs)], width)


def _width_of(console: Console) -> int | None:
    return console.width if console.is_terminal else None


def _demo_facts(report: DemoReport) -> tuple[tuple[str, str], ...]:
    figures = report.figures()
    fractions = {name: cells.percent(value) for name, value in bubbles(figures).items()}
    woven = figures.woven
    return (
        (
            "throughput",
            f"{cells.times(figures.throughput_ratio)}, schedule efficiency {cells.percent(report.schedule_efficiency)}",
        ),
        (
            "predicted",
            f"{report.predicted_ratio:.2f}x; measured without interference {cells.times(figures.undisturbed_ratio)}",
        ),
        ("bit-equal", "yes" if report.bit_equal else "NO"),
        ("dollars", f"{cells.usd(figures.usd_solo)} solo, {cells.usd(woven.usd)} woven"),
        *(
            (f"{pool} bubble", f"{fractions[f'bubble_{pool}_solo']} solo, {fractions[f'bubble_{pool}_woven']} woven")
            for pool in ("rollout", "training")
        ),
        (
            "moved, synced",
            f"{cells.gib(woven.moved_gib)}, {cells.mib(woven.sync_mib)}, {woven.handovers} hand-overs",
        ),
    )


def _print_facts(facts: Sequence[tuple[str, str]], console: Console) -> None:
    width = max(len(name) for name, _ in facts)
    for name, value in facts:
        console.print(Text(f"{name:<{width}}  ", style="dim").append(value, style="not dim"))


def _table(columns: cells.Row, rows: Sequence[tuple[cells.Row, bool]], width: int | None) -> Table:
    """Without a width plain; else columns at the right that do not fit are left out."""
    plain = width is None
    heads = columns if plain else tuple(_SHORT.get(column, column) for column in columns)
    shown = cells.used_columns(columns, [row for row, _ in rows])
    if width is not None:
        shown = _fitting(shown, heads, [row for row, _ in rows], width)
    table = Table(box=None if plain else box.SIMPLE_HEAD, padding=(0, 2 if plain else 1, 0, 0), show_edge=False)
    for place in shown:
        table.add_column(
            Text(heads[place]),
            justify="left" if place == 0 else "right",
            no_wrap=plain,
            overflow="fold",
            min_width=0 if place == 0 else _width(place, heads, [row for row, _ in rows]),
        )
    for row, bad in rows:
        table.add_row(*(Text(row[place], style="bold red" if bad and place == 1 else "") for place in shown))
    return table


def _fitting(shown: list[int], heads: cells.Row, rows: Sequence[cells.Row], width: int) -> list[int]:
    fitting = list(shown)
    while len(fitting) > 2 and sum(_width(place, heads, rows) + 2 for place in fitting) > width:
        fitting.pop()
    return fitting


def _width(place: int, heads: cells.Row, rows: Sequence[cells.Row]) -> int:
    """Of the widest cell, or of the longest line of the head."""
    return max(map(len, [*heads[place].split("\n"), *(row[place] for row in rows)]), default=0)
