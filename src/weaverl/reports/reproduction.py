"""The report of `weaverl reproduce`: chapters, pictures, and the files that they are written to."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from weaverl.reports.chapters import Chapter, Table, as_markdown, as_page
from weaverl.reports.plots.names import policy_name
from weaverl.reports.reproduction_pictures import Pictures, draw_pictures
from weaverl.simulation.reproduction.records import Reproduction, Result, Row
from weaverl.simulation.reproduction.reproduce import NOTES
from weaverl.whole_file import write_whole

TITLE = "WEAVE's evaluation, reproduced"
_QUICK = " This is a quick run: its jobs are short, so that totals are not those of two weeks."


def write_report(found: Reproduction, folder: Path) -> None:
    """Write README.md, index.html, results.json and figures/ into a folder, which is made.

    Raises:
        UsageError: matplotlib is not installed.
    """
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    chapters = _chapters(found, draw_pictures(found, folder / "figures"))
    write_whole(folder / "README.md", as_markdown(TITLE, _lead(found), chapters, folder))
    write_whole(folder / "index.html", as_page(TITLE, _lead(found), chapters))
    figures = msgspec.json.format(msgspec.json.encode(_figures(found)), indent=2)
    write_whole(folder / "results.json", figures.decode() + "\n")


def _lead(found: Reproduction) -> str:
    lead = (
        "Every figure of WEAVE (OSDI 2026) beside ours. Ours come from weaverl's simulator, which drives the scheduler "
        "of the live cluster; no GPU was used. Where the set-up differs, the table says how."
    )
    return f"{lead} Traces: {found.parameters['traces']}." + (_QUICK if found.quick else "")


def _figures(found: Reproduction) -> dict[str, object]:
    """What goes into the JSON: everything but the excerpt's intervals and each run's steps."""
    return {
        "quick": found.quick,
        "rows": found.rows,
        "sensitivity": found.sweeps,
        "decisions": found.decisions,
        "drift": found.drifts,
        "mixes": found.mixes,
        "runs": [one.outcome for results in found.replay.values() for one in results],
        "parameters": found.parameters,
        "machine": found.machine,
        "audits": {"confirmed": found.confirmed, "refuted": found.refuted},
    }


def _chapters(found: Reproduction, pictures: Pictures) -> tuple[Chapter, ...]:
    return (
        Chapter(title="Published figures and ours", pictures=(pictures.overview,)),
        *(
            Chapter(
                title=section.capitalize(),
                paragraphs=(NOTES[section],),
                table=_rows(rows),
                pictures=pictures.of_section.get(section, ()),
            )
            for section, rows in _by_section(found.rows).items()
        ),
        Chapter(
            title="Where weaving stops paying",
            paragraphs=(
                "One parameter at a time, all else as in the evaluation protocol, on shortened jobs. Weaving pays "
                "against Solo-D or veRL where that costs at least 2 % more for the same work.",
            ),
            pictures=(pictures.sensitivity,),
            points=tuple((f"{sweep.title} ({sweep.axis})", sweep.answer) for sweep in found.sweeps),
        ),
        Chapter(
            title="A woven group",
            paragraphs=(
                "Numbers are iterations. Where a rollout's last responses would hold up the next job, they move to a "
                "quarter of the node's GPUs (the short bar above) and the next rollout begins on the others. Pale "
                "stripes are switches.",
            ),
            pictures=(pictures.gantt,),
        ),
        Chapter(title="All runs of the replay", paragraphs=(_audit(found),), table=_runs(found)),
        Chapter(title="Parameters", table=_facts(found.parameters)),
        Chapter(title="Machine", table=_facts(found.machine)),
    )


def _audit(found: Reproduction) -> str:
    refuted = f"; it does not agree with {', '.join(found.refuted)}" if found.refuted else ""
    return (
        f"The auditor worked out the figures of {found.confirmed} simulated runs again, from trace and timeline alone, "
        f"and agrees{refuted}."
    )


def _by_section(rows: Sequence[Row]) -> dict[str, list[Row]]:
    sections: dict[str, list[Row]] = {}
    for row in rows:
        sections.setdefault(row.section, []).append(row)
    return sections


def _rows(rows: Sequence[Row]) -> Table:
    return Table(
        ("figure", "published", "ours", "what differs"),
        tuple((row.what, row.published, row.ours, row.differs) for row in rows),
        prose=True,
    )


def _runs(found: Reproduction) -> Table:
    heads = ("policy", "trace", "$/hour", "dollars", "of bound", "SLO met", "peak GPUs", "bubbles", "jobs", "audited")
    return Table(heads, tuple(_run(one) for results in found.replay.values() for one in results))


def _facts(facts: Mapping[str, Any]) -> Table:
    return Table(("name", "value"), tuple((name, _fact(value)) for name, value in facts.items()))


def _fact(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, tuple | list):
        return ", ".join(_fact(one) for one in value)
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _run(result: Result) -> tuple[str, ...]:
    one = result.outcome
    return (
        policy_name(one.policy),
        one.trace,
        f"{one.usd_per_hour:,.0f}",
        f"{one.usd:,.0f}",
        "–" if one.bound_multiple is None else f"{one.bound_multiple:.2f}x",
        f"{one.slo_attainment:.1%}",
        f"{one.peak_gpus.rollout:.0f} + {one.peak_gpus.training:.0f}",
        f"{one.bubbles.rollout:.0%}, {one.bubbles.training:.0%}",
        f"{one.jobs_finished} of {one.jobs}",
        {True: "yes", False: "NO", None: "–"}[one.audited],
    )
