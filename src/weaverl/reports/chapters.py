"""A report as chapters: text, a table, pictures. Written once, shown as Markdown and as a page."""

import base64
from collections.abc import Sequence
from pathlib import Path

import msgspec

from weaverl.reports.markup import Markup, element
from weaverl.reports.page import page, section
from weaverl.reports.plots.canvas import Picture


class Table(msgspec.Struct, frozen=True):
    """Heads and rows of text; ``prose``: the cells are sentences, not figures."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    prose: bool = False


class Chapter(msgspec.Struct, frozen=True, kw_only=True):
    """A heading with what comes below it: paragraphs, named sentences, a table, pictures."""

    title: str
    paragraphs: tuple[str, ...] = ()
    points: tuple[tuple[str, str], ...] = ()
    table: Table | None = None
    pictures: tuple[Picture, ...] = ()


def as_markdown(title: str, lead: str, chapters: Sequence[Chapter], folder: Path) -> str:
    """The report as Markdown that lies in ``folder``."""
    return "\n".join([f"# {title}", "", lead, "", *(line for one in chapters for line in _markdown(one, folder))])


def as_page(title: str, lead: str, chapters: Sequence[Chapter]) -> str:
    """The report as a page that needs no other file: the pictures are in it."""
    return page(
        title,
        element("h1", title),
        element("p", lead, class_="lead"),
        *(_section(one) for one in chapters),
        footer="Made by weaverl reproduce.",
    )


def _markdown(chapter: Chapter, folder: Path) -> list[str]:
    lines = [f"## {chapter.title}", ""]
    for paragraph in chapter.paragraphs:
        lines += [paragraph, ""]
    for picture in chapter.pictures:
        lines += [f"![{picture.title}]({picture.svg.relative_to(folder).as_posix()})", ""]
    if chapter.points:
        lines += [*(f"- **{name}**: {text}" for name, text in chapter.points), ""]
    if chapter.table is not None:
        lines += [*_markdown_table(chapter.table), ""]
    return lines


def _markdown_table(table: Table) -> list[str]:
    rule = "|".join("---" if table.prose or place == 0 else "---:" for place in range(len(table.heads)))
    rows = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in (table.heads, *table.rows)]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return [lines[0], f"|{rule}|", *lines[1:]]


def _section(chapter: Chapter) -> Markup:
    return section(
        chapter.title,
        *(element("p", paragraph) for paragraph in chapter.paragraphs),
        *(_figure(picture) for picture in chapter.pictures),
        *([_points(chapter.points)] if chapter.points else []),
        *([_html_table(chapter.table)] if chapter.table is not None else []),
        scroll=True,
    )


def _points(points: Sequence[tuple[str, str]]) -> Markup:
    return element(
        "dl",
        *(element("div", element("dt", name), element("dd", text)) for name, text in points),
        class_="words",
    )


def _figure(picture: Picture) -> Markup:
    data = base64.b64encode(picture.svg.read_bytes()).decode("ascii")
    return element("figure", element("img", alt=picture.title, src=f"data:image/svg+xml;base64,{data}"))


def _html_table(table: Table) -> Markup:
    return element(
        "table",
        element("thead", element("tr", *(element("th", head, scope="col") for head in table.heads))),
        element("tbody", *(element("tr", *(element("td", cell) for cell in row)) for row in table.rows)),
        class_="prose" if table.prose else None,
    )
