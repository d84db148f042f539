"""The building blocks of report pages: the page with its style, tiles, sections, tables, lists of facts."""

from collections.abc import Mapping, Sequence
from importlib.resources import files

from weaverl.reports import cells, palette
from weaverl.reports.gantt import SHAPE
from weaverl.reports.markup import Markup, element, join

GANTT_HINT = "Made by weaverl. Hover over a bar for its job, phase, iteration and seconds."


def page(title: str, *content: Markup, footer: str = GANTT_HINT) -> str:
    """A whole page in one file: nothing else is loaded."""
    css = files("weaverl.reports").joinpath("report.css").read_text(encoding="utf-8")
    style = (
        f"{css}{SHAPE}{_theme(palette.LIGHT)}@media screen and (prefers-color-scheme:dark){{{_theme(palette.DARK)}}}"
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width,initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        element("style", Markup(style)),
    )
    body = element(
        "body",
        element(
            "main",
            *content,
            element("footer", footer),
        ),
    )
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def _theme(theme: palette.Theme) -> str:
    accent = theme.jobs[0]
    return (
        f":root{{--page:{theme.page};--card:{theme.card};--ink:{theme.ink};--muted:{theme.muted};--rule:{theme.rule};"
        f"--accent:{accent};--on-accent:{palette.text_on(accent)};--bad:{theme.bad}}}{palette.drawing_style(theme)}"
    )


def tile(name: str, figure: object, below: str, *, main: bool = False) -> Markup:
    """A key figure with its name and a word below; the main one is coloured."""
    return element(
        "div",
        element("div", name, class_="name"),
        element("div", figure, class_="figure"),
        element("div", below, class_="below"),
        class_="tile main" if main else "tile",
    )


def change(before: str, after: str) -> Markup:
    """A figure before and after."""
    return join((element("span", f"{before} → ", class_="from"), after))


def section(title: str, *content: Markup, scroll: bool = False) -> Markup:
    """A titled box; with ``scroll`` what is too wide scrolls inside it."""
    return element("section", element("h2", title), element("div", *content, class_="scroll" if scroll else None))


def table(columns: cells.Row, rows: Sequence[tuple[cells.Row, bool]], style: str | None = None) -> Markup:
    """``rows``: cells, and whether the second one is to be marked as bad. Columns empty in all rows are left out."""
    shown = cells.used_columns(columns, [row for row, _ in rows])
    return element(
        "table",
        element("thead", element("tr", *(element("th", columns[place], scope="col") for place in shown))),
        element(
            "tbody",
            *(
                element(
                    "tr",
                    *(element("td", row[place], class_="bad" if bad and place == 1 else None) for place in shown),
                )
                for row, bad in rows
            ),
        ),
        class_=style,
    )


def facts(groups: Mapping[str, Mapping[str, object]]) -> Markup:
    """Named lists of names and values; nothing if all are empty."""
    parts = [
        element(
            "div",
            element("h2", name),
            element(
                "dl",
                *(
                    element(tag, value)
                    for entry in entries.items()
                    for tag, value in zip(("dt", "dd"), entry, strict=True)
                ),
                class_="facts",
            ),
        )
        for name, entries in groups.items()
        if entries
    ]
    return element("section", element("div", *parts, class_="pair")) if parts else Markup("")
