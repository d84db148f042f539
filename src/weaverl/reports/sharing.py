"""How a simulated cluster was shared, as tables in the terminal."""

from rich.console import Console
from rich.table import Table

from weaverl.reports.sheets import sheet
from weaverl.simulation.outcome import ClassFigures, Outcome
from weaverl.simulation.queueing import SharingFigures


def has_sharing(outcome: Outcome) -> bool:
    """Whether there is anything to show."""
    return outcome.sharing is not None or len(outcome.classes) > 1


def print_sharing(outcome: Outcome, console: Console) -> None:
    """Waits by priority, and what tenants used; nothing where there is one priority and no sharing."""
    if has_sharing(outcome):
        console.print()
        console.print(_classes(outcome, console), crop=False)
    if outcome.sharing is not None:
        unit = str(outcome.parameters["sharing"]["by"]).replace("_", "-")
        console.print()
        console.print(_shares(outcome.sharing, unit, console), crop=False)
        console.print("contended: while every tenant had a job in the queue; per weight: 1 is a fair share of that")


def _classes(outcome: Outcome, console: Console) -> Table:
    rows = [(name, str(one.jobs), *_hours(one)) for name, one in outcome.classes.items()]
    return sheet(("priority", "jobs", "hours in the queue p50", "p90", "max"), rows, console)


def _hours(one: ClassFigures) -> tuple[str, ...]:
    return tuple(f"{hours:.2f}" for hours in (one.queued_hours.p50, one.queued_hours.p90, one.queued_hours.max))


def _shares(sharing: SharingFigures, unit: str, console: Console) -> Table:
    rows = [
        (
            name,
            f"{one.weight:g}",
            f"{one.usage:,.0f}",
            f"{one.contended_usage:,.0f}",
            "-" if one.per_weight is None else f"{one.per_weight:.2f}",
        )
        for name, one in sharing.tenants.items()
    ]
    contended = f"in {sharing.contended_hours:,.1f} h contended"
    return sheet(("tenant", "weight", unit, contended, "per weight"), rows, console)
