"""Report pages: one HTML file each that needs nothing else, light or dark as the reader's system is."""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from weaverl.domain.timeline import NodeSpan, Timeline
from weaverl.reports import cells
from weaverl.reports.axis import duration
from weaverl.reports.curves import limits_of, missing, reward_curves
from weaverl.reports.demo import DemoFigures, DemoReport, bubbles, headline
from weaverl.reports.gantt import gantt_svg, page_gantt
from weaverl.reports.gantt_frame import GanttRun
from weaverl.reports.iterations import SECOND
from weaverl.reports.markup import Markup, element
from weaverl.reports.metrics import RunFigures, file_figures, makespan, window
from weaverl.reports.page import change, facts, page, section, table, tile
from weaverl.reports.timeline_file import TimelineFile

MOST_READABLE = 400
CLOSER = 90
COMPARED = (
    (
        "Throughput ratio",
        "Seconds of the solo runs one after the other, over seconds of the woven run, on the same devices. "
        "A run lasts from its first grant to the end of its last phase.",
    ),
    (
        "Predicted ratio, schedule efficiency",
        "The throughput ratio that the round model gives for the times of the solo runs, logged before the woven run. "
        "It knows nothing of interference, so it is compared with the measured ratio times interference. "
        "Schedule efficiency: the round model's length for the woven run's own times, over the measured length.",
    ),
    (
        "Interference",
        "Seconds per token or sample (per iteration where neither is reported) inside a phase, woven over solo. "
        "It is never hidden in the solo time.",
    ),
)
"""Figures of a woven run beside its solo runs."""

MEASURED = (
    (
        "Slowdown",
        "Wall time of a job's iterations, with waits and switches, over the solo time of the same iterations: "
        "measured phase durations divided by interference (taken as 1 where there is no solo run), plus everything "
        "else in an iteration. Worst 20 is the worst of 20 iterations in a row. "
        "In a simulated run solo time is what the phases take undisturbed, which is known there.",
    ),
    (
        "Bubble",
        "1 − busy over provisioned device-seconds of a pool. Busy is inside the body of a rollout or training, "
        "overlaps counted once; loading, waiting and switching are not busy. "
        "Every device of the cluster is provisioned throughout; in a simulated run, where nodes come and go, from when "
        "its node was taken until it was given back.",
    ),
    ("Dollars", "Devices provisioned × hours × the cluster file's price per GPU-hour."),
    (
        "Attempts, moves",
        "How often a job was started, and how often that was because it had left its slots at the end of an iteration, "
        "through its checkpoint, to go on elsewhere or later. The other starts but the first followed a failure.",
    ),
    (
        "State moved, sync, hand-overs",
        "State saved from devices to make room, cold starts left out; weights sent to the rollout side; "
        "permits that went to another job than the slot's last one.",
    ),
)
"""Figures of any run."""


def demo_page(report: DemoReport) -> str:
    """The page of ``weaverl demo``: solo over woven on one time scale, rewards, tables, definitions."""
    figures = report.figures()
    names = [job.name for job in report.jobs]
    jobs = [
        (cells.job_row(row, job.slo, job.rewards_woven), cells.over_slo(row, job.slo))
        for job in report.jobs
        for row in (figures.job(job.name),)
    ]
    pools = cells.pool_rows({"solo": figures.pools_solo, "woven": figures.woven.pools})
    title = headline(report, figures)
    return page(
        title,
        element("h1", title),
        element("p", _lead(report), class_="lead"),
        _demo_tiles(report, figures),
        section("Who held which device", page_gantt(report.cluster, names, demo_runs(report)), scroll=True),
        _rewards(report),
        section("Jobs, woven", table(cells.JOB_COLUMNS, jobs), scroll=True),
        section("Pools", table(cells.POOL_COLUMNS, [(row, False) for row in pools], "pools"), scroll=True),
        _definitions(COMPARED + MEASURED),
        facts({"Parameters": report.parameters, "Machine": report.machine}),
    )


def run_page(file: TimelineFile, title: str = "Timeline") -> str:
    """The page of ``weaverl report``: one run of any cluster, live or simulated."""
    header, run = file.header, GanttRun(title="Run", timelines=(file.timeline,), spans=file.spans)
    names = [job.name for job in header.jobs]
    slos = {job.name: job.slo for job in header.jobs}
    figures = file_figures(file)
    jobs = [(cells.job_row(job, slos.get(job.name)), cells.over_slo(job, slos.get(job.name))) for job in figures.jobs]
    pools = cells.pool_rows({"": figures.pools})
    return page(
        title,
        element("h1", title),
        element("p", _run_lead(file, figures), class_="lead"),
        _run_tiles(figures),
        section("Who held which device", page_gantt(header.cluster, names, [run]), scroll=True),
        _closer(file, names),
        section("Jobs", table(cells.JOB_COLUMNS, jobs), scroll=True),
        section("Pools", table(cells.POOL_COLUMNS, [(row, False) for row in pools], "pools"), scroll=True),
        _definitions(MEASURED),
    )


def demo_picture(report: DemoReport) -> str:
    """The demo's Gantt charts as an SVG file that stands alone, for a README."""
    return gantt_svg(report.cluster, [job.name for job in report.jobs], demo_runs(report))


def demo_runs(report: DemoReport) -> list[GanttRun]:
    """Solo over woven."""
    alone = tuple(job.solo for job in report.jobs)
    together = duration(makespan(report.woven))
    efficiency = f"schedule efficiency {cells.percent(report.schedule_efficiency)}"
    return [
        GanttRun(title="Solo", timelines=alone, note=f"one job after the other: {duration(sum(map(makespan, alone)))}"),
        GanttRun(
            title="Woven", timelines=(report.woven,), note=f"all jobs on the same devices: {together}, {efficiency}"
        ),
    ]


def _closer(file: TimelineFile, names: Sequence[str]) -> Markup:
    """The middle of a run that has more intervals than can be told apart."""
    intervals = file.timeline.intervals
    if len(intervals) <= MOST_READABLE:
        return Markup("")
    first = (len(intervals) - CLOSER) // 2
    excerpt = Timeline(intervals=intervals[first : first + CLOSER])
    start, end = window(excerpt)
    after = (start - window(file.timeline)[0]) / SECOND
    run = GanttRun(
        title="Run",
        timelines=(excerpt,),
        note=f"from {duration(after)} after its start",
        spans=tuple(_clipped(file.spans, start, end)),
    )
    return section("A closer look at its middle", page_gantt(file.header.cluster, names, [run], "closer"), scroll=True)


def _clipped(spans: Sequence[NodeSpan], start: int, end: int) -> Iterator[NodeSpan]:
    """What lies between two moments."""
    for span in spans:
        taken_at, given_back_at = max(span.taken_at, start), min(span.given_back_at, end)
        if taken_at < given_back_at:
            yield replace(span, taken_at=taken_at, given_back_at=given_back_at)


def _lead(report: DemoReport) -> str:
    cluster = report.cluster
    pools = [
        f"{sum(node.num_devices for node in cluster.nodes if node.pool is pool.kind)} × {pool.gpu} for {pool.kind}"
        for pool in (cluster.rollout, cluster.training)
    ]
    return f"{', '.join(pools)}. Each job ran alone, then all together; nothing in any job's algorithm was changed."


def _run_lead(file: TimelineFile, figures: RunFigures) -> str:
    intervals = cells.counted(len(file.timeline.intervals), "interval")
    lead = f"{intervals} of {cells.counted(len(figures.jobs), 'job')} on cluster {file.header.cluster.name}."
    if file.header.partial:
        lead += " The beginning is missing: the cluster's log keeps recent history only. Figures are of what is here."
    if file.torn_bytes:
        lead += f" The file's last line was cut off; its {file.torn_bytes} bytes were skipped."
    return lead


def _demo_tiles(report: DemoReport, figures: DemoFigures) -> Markup:
    fractions = bubbles(figures)
    woven = figures.woven
    equal = Markup("yes") if report.bit_equal else element("span", "NO", class_="bad")
    return element(
        "div",
        tile(
            "Throughput",
            cells.times(figures.throughput_ratio),
            f"{duration(figures.seconds_solo)} → {duration(woven.seconds)}",
            main=True,
        ),
        tile(
            "Predicted ratio",
            f"{report.predicted_ratio:.2f}x",
            f"{cells.times(figures.undisturbed_ratio)} without interference",
        ),
        tile("Bit for bit equal", equal, "woven, solo, plain script"),
        tile("Dollars", change(cells.usd(figures.usd_solo), cells.usd(woven.usd)), "solo → woven"),
        tile(
            "Rollout bubble",
            change(cells.percent(fractions["bubble_rollout_solo"]), cells.percent(fractions["bubble_rollout_woven"])),
            "solo → woven",
        ),
        tile(
            "Training bubble",
            change(cells.percent(fractions["bubble_training_solo"]), cells.percent(fractions["bubble_training_woven"])),
            "solo → woven",
        ),
        tile("State moved", cells.gib(woven.moved_gib), f"{woven.handovers} hand-overs"),
        tile("Weights synced", cells.mib(woven.sync_mib), "training → rollout"),
        class_="tiles eight",
    )


def _run_tiles(figures: RunFigures) -> Markup:
    return element(
        "div",
        tile("Length", duration(figures.seconds), "first grant to last end", main=True),
        *(
            tile(f"{pool.pool.capitalize()} bubble", cells.percent(pool.bubble), f"{pool.num_devices} × {pool.gpu}")
            for pool in figures.pools
        ),
        *([tile("Dollars", cells.usd(figures.usd), "devices provisioned")] if figures.usd else []),
        tile("State moved", cells.gib(figures.moved_gib), f"{figures.handovers} hand-overs"),
        tile("Weights synced", cells.mib(figures.sync_mib), "training → rollout"),
        class_="tiles six",
    )


def _rewards(report: DemoReport) -> Markup:
    """Rewards of every job, on one scale."""
    limits = limits_of([reward for job in report.jobs for reward in (*job.rewards_solo, *job.rewards_woven)])
    curves = [
        element(
            "figure",
            element("figcaption", element("b", job.name), _curve_note(job.rewards_solo, job.rewards_woven)),
            reward_curves(job.name, place, job.rewards_solo, job.rewards_woven, limits),
        )
        for place, job in enumerate(report.jobs)
        if job.rewards_solo or job.rewards_woven
    ]
    if not curves:
        return Markup("")
    return section("Reward by iteration", element("div", *curves, class_="pair"))


def _curve_note(solo: Sequence[float], woven: Sequence[float]) -> Markup:
    gaps = missing(solo, woven)
    same = "the two coincide" if tuple(solo) == tuple(woven) else "the two differ"
    note = f" wide: solo, thin: woven; {same}" + (f"; {gaps} values missing" if gaps else "")
    return element("span", note, class_="muted")


def _definitions(definitions: Sequence[tuple[str, str]]) -> Markup:
    words = [element("div", element("dt", word), element("dd", meaning)) for word, meaning in definitions]
    return section("How each figure is defined", element("dl", *words, class_="words"))
