"""The answer of `weaverl whatif` as text."""

from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from weaverl.reports.axis import duration
from weaverl.reports.sheets import sheet
from weaverl.reports.tables import console_for
from weaverl.simulation.what_if import Answer


def print_answer(answer: Answer, stream: TextIO) -> None:
    """Where the job would go, everybody's slowdown, and every placement that was looked at."""
    console = console_for(stream)
    for line in _headline(answer):
        console.print(Text(line, style="bold"))
    if answer.effects:
        console.print()
        console.print(_effects(answer, console), crop=False)
    console.print()
    console.print("looked at now, cheapest first:" if answer.wait else "looked at, cheapest first:")
    console.print(_looked_at(answer, console), crop=False)


def _headline(answer: Answer) -> list[str]:
    lines = []
    if answer.wait is not None:
        if answer.wait.seconds is None:
            return [f"{answer.job} would wait in the queue; for how long cannot be said: {answer.wait.unknown}."]
        ends = f"the end of {', '.join(answer.wait.after_jobs)}"
        wait = duration(answer.wait.seconds)
        lines.append(f"{answer.job} would wait for {ends}, in about {wait} at mean iterations.")
    group = {"isolate": f"a new group {answer.group}"}.get(answer.kind, f"group {answer.group} ({answer.kind})")
    verb = "It would then" if lines else f"{answer.job} would"
    lines.append(f"{verb} run in {group} on {', '.join(answer.nodes)}.")
    if answer.wait is None and answer.added_usd_per_hour is not None:
        now, added = answer.usd_per_hour_before, answer.added_usd_per_hour
        lines.append(f"It adds ${added:.2f} an hour: ${now + added:.2f} instead of ${now:.2f}.")
    elif answer.added_usd_per_hour is not None:
        lines.append(f"It adds ${answer.added_usd_per_hour:.2f} an hour to what runs then.")
    if answer.profiled_first:
        lines.append("It has no profile: its first iterations give one, alone; then others may join it.")
    return lines


def _effects(answer: Answer, console: Console) -> Table:
    rows = [
        (
            effect.job,
            "-" if effect.before is None else f"{effect.before:.2f}x",
            f"{effect.after:.2f}x",
            f"{effect.slo:.2f}x",
        )
        for effect in answer.effects
    ]
    return sheet(("job", "slowdown now", "with it", "SLO"), rows, console)


def _looked_at(answer: Answer, console: Console) -> Table:
    rows = [
        (
            looked.kind,
            looked.group,
            ", ".join(looked.members),
            "" if looked.added_usd_per_hour is None else f"{looked.added_usd_per_hour:.2f}",
            ", ".join(f"{name} {slowdown:.2f}x" for name, slowdown in looked.slowdowns.items()),
            looked.refused or "would be taken",
        )
        for looked in answer.looked_at
    ]
    heads = ("placement", "group", "jobs there", "adds $/hour", "predicted slowdowns", "verdict")
    return sheet(heads, rows, console, words=("jobs there", "predicted slowdowns", "verdict"))
