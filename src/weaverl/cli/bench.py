"""`weaverl bench`: measuring commands."""

import typer


def register(app: typer.Typer) -> None:
    """Add the commands."""
