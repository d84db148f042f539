"""Gantt charts as SVG: one lane a device, runs one above the other on one time scale.

A bar is a phase body; its hatched ends are state coming and going. A hatched strip at the foot of a lane is state that
is restored ahead of its phase; an empty stretch of a lane is a bubble.
A phase on several neighbouring devices is one tall bar. Syncs hold no device and lie between the pools.
"""

from collections.abc import Mapping, Sequence

from weaverl.domain.cluster import Cluster, PoolKind, Slot
from weaverl.domain.jobs import PhaseKind
from weaverl.domain.timeline import Interval, Restore, Timeline
from weaverl.reports import palette
from weaverl.reports.axis import duration, time_ticks
from weaverl.reports.gantt_frame import (
    LEFT,
    SYNC,
    SYNC_MARK,
    TITLE,
    WIDTH,
    Frame,
    GanttRun,
    frame_of,
)
from weaverl.reports.iterations import SECOND
from weaverl.reports.markup import Markup, element, join
from weaverl.reports.metrics import makespan, pool_figures, window

AXIS = 26.0
GAP = 20.0
MOST_LABELS = 16
LABEL_HEIGHT = 12.0
DIGIT_WIDTH = 6.2
FONT = "font-family:system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif"
SHAPE = (
    "text{font-size:12px}.strong{font-weight:650;font-size:13.5px}.small{font-size:10.5px}"
    ".lane{stroke-width:.6}.grid{stroke-width:1;stroke-dasharray:2 3}.mark{stroke-width:1.2}"
    ".number{font-weight:600;font-size:10px}.note{font-weight:400}"
)


def gantt_svg(cluster: Cluster, jobs: Sequence[str], runs: Sequence[GanttRun]) -> str:
    """A picture that stands alone, with its own colours and ground. ``jobs`` gives colours their order."""
    drawing, height = _drawing(cluster, jobs, runs, "gantt")
    pad = 18.0
    return element(
        "svg",
        element("style", Markup(f"svg{{{FONT}}}{SHAPE}{palette.drawing_style(palette.LIGHT)}")),
        element("rect", class_="card", width="100%", height="100%", rx=10),
        element("g", drawing, transform=f"translate({pad:g} {pad:g})"),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDTH + 2 * pad:g} {height + 2 * pad:.0f}",
        width=WIDTH + 2 * pad,
        height=round(height + 2 * pad),
        role="img",
        aria_label="; ".join(f"{run.title}: {duration(run.seconds)}" for run in runs),
    )


def page_gantt(cluster: Cluster, jobs: Sequence[str], runs: Sequence[GanttRun], identity: str = "gantt") -> Markup:
    """The same picture for a page that has the style rules; ``identity`` is unique on the page."""
    drawing, height = _drawing(cluster, jobs, runs, identity)
    return element(
        "svg",
        drawing,
        class_="gantt",
        viewBox=f"0 0 {WIDTH:g} {height:.0f}",
        role="img",
        aria_label="; ".join(f"{run.title}: {duration(run.seconds)}" for run in runs),
    )


def _drawing(cluster: Cluster, jobs: Sequence[str], runs: Sequence[GanttRun], identity: str) -> tuple[Markup, float]:
    frame = frame_of(cluster, jobs, runs, identity)
    seconds = max((run.seconds for run in runs), default=0.0)
    parts: list[Markup] = [_patterns(frame), _legend(frame)]
    top = 26.0
    marks = time_ticks(seconds)
    bottom = top + len(runs) * (frame.height + GAP) - GAP
    for run in runs:
        parts.append(element("g", _run(cluster, run, frame, seconds, marks), transform=f"translate(0 {top:.1f})"))
        top += frame.height + GAP
    parts.append(_axis(marks, frame, bottom))
    return join(parts), bottom + AXIS


def _patterns(frame: Frame) -> Markup:
    return element(
        "defs",
        *(
            element(
                "pattern",
                element("rect", class_=f"p{place}", width=5, height=5),
                element("rect", class_=f"j{place}", width=1.8, height=5),
                id=f"{frame.identity}-hatch{place}",
                width=5,
                height=5,
                patternUnits="userSpaceOnUse",
                patternTransform="rotate(40)",
            )
            for place in range(palette.num_colours())
        ),
    )


def _legend(frame: Frame) -> Markup:
    parts, x = [], 0.0
    shown = list(frame.jobs.items())[:6]
    entries = [(f"j{_colour(place)}", job) for job, place in shown]
    if len(frame.jobs) > len(shown):
        entries.append(("", f"and {len(frame.jobs) - len(shown)} more jobs"))
    entries += [("hatch", "restore, save"), ("thin", "weight sync"), ("lane", "empty: a bubble")]
    for kind, label in entries:
        name = label if len(label) <= 24 else label[:23] + "…"
        if kind:
            parts.append(_swatch(kind, x, frame))
            x += 20
        parts.append(element("text", name, class_="muted", x=x, y=11.0))
        x += 6.6 * len(name) + 20
    return join(parts)


def _swatch(kind: str, x: float, frame: Frame) -> Markup:
    if kind == "hatch":
        return element("rect", fill=frame.hatch(0), x=x, y=1.0, width=14, height=12, rx=2)
    if kind == "thin":
        return element("rect", class_="j0", x=x, y=2.5, width=3, height=9, rx=1)
    return element("rect", class_=kind, x=x, y=1.0, width=14, height=12, rx=2)


def _axis(marks: Sequence[tuple[float, str]], frame: Frame, y: float) -> Markup:
    return join(
        element(
            "text",
            label,
            class_="muted",
            x=LEFT + seconds * frame.pixels_per_second,
            y=y + 16,
            text_anchor="middle",
        )
        for seconds, label in marks
    )


def _run(cluster: Cluster, run: GanttRun, frame: Frame, longest: float, marks: Sequence[tuple[float, str]]) -> Markup:
    right = LEFT + run.seconds * frame.pixels_per_second
    parts = [
        element(
            "text",
            run.title,
            element("tspan", run.note, class_="muted note", dx=10),
            class_="ink strong",
            x=0,
            y=16,
        ),
        *(_grid_line(LEFT + mark * frame.pixels_per_second, frame) for mark, _ in marks),
    ]
    parts += [
        element(
            "rect",
            class_="lane",
            x=LEFT,
            y=frame.y(place),
            width=max(0.0, right - LEFT),
            height=frame.lane_height,
            rx=2,
        )
        for place in range(len(frame.lanes))
    ]
    parts += [_pool_labels(cluster, run, frame), _lane_labels(frame)]
    offset = 0.0
    for timeline in run.timelines:
        parts += _bars(timeline, frame, offset)
        offset += makespan(timeline)
    if 0 < run.seconds < longest:
        parts.append(_saved(right, longest, run.seconds, frame))
    return join(parts)


def _grid_line(x: float, frame: Frame) -> Markup:
    return element("line", class_="grid", x1=x, x2=x, y1=TITLE - 4, y2=frame.height)


def _pool_labels(cluster: Cluster, run: GanttRun, frame: Frame) -> Markup:
    parts = []
    for pool in pool_figures(cluster, run.timelines, run.spans):
        places = [place for place, lane in enumerate(frame.lanes) if lane.pool is pool.pool]
        if not places:
            continue
        middle = (frame.y(places[0]) + frame.y(places[-1]) + frame.lane_height) / 2
        bubble = "" if pool.bubble is None else f"{pool.bubble * 100:.0f} % bubble"
        parts.append(element("text", pool.pool.capitalize(), class_="ink strong", x=0, y=middle - 2))
        parts.append(element("text", bubble, class_="muted", x=0, y=middle + 12))
    return join(parts)


def _lane_labels(frame: Frame) -> Markup:
    step = -(-len(frame.lanes) // MOST_LABELS)
    return join(
        element(
            "text",
            lane.label[-12:],
            class_="muted small",
            x=LEFT - 8,
            y=frame.y(place) + frame.lane_height / 2 + 3.5,
            text_anchor="end",
        )
        for place, lane in enumerate(frame.lanes)
        if place % step == 0
    )


def _saved(right: float, longest: float, seconds: float, frame: Frame) -> Markup:
    """The stretch that the run did not need, with its length if there is room for it."""
    end = LEFT + longest * frame.pixels_per_second
    y = frame.sync_y() + SYNC / 2 - frame.lane_gap / 2
    label = f"{duration(longest - seconds)} less"
    parts = [
        element("line", class_="mark", x1=right, x2=right, y1=TITLE - 4, y2=frame.height),
        element("line", class_="mark", x1=right + 6, x2=end, y1=y, y2=y),
        element("line", class_="mark", x1=end, x2=end, y1=y - 5, y2=y + 5),
    ]
    if end - right > 7 * len(label) + 20:
        parts.append(element("text", label, class_="ink strong", x=(right + end) / 2, y=y - 8, text_anchor="middle"))
    return join(parts)


def _bars(timeline: Timeline, frame: Frame, offset: float) -> list[Markup]:
    first, last = window(timeline)
    start = first - round(offset * SECOND)
    by_slot = {lane.slot: place for place, lane in enumerate(frame.lanes) if lane.slot}
    by_job = {(lane.pool, lane.job): place for place, lane in enumerate(frame.lanes) if lane.job}
    bars = []
    for interval in timeline.intervals:
        if interval.phase is PhaseKind.SYNC and not interval.slots:
            bars.append(_sync(interval, frame, start))
            continue
        if interval.phase is PhaseKind.LOADING and not first <= interval.granted_at <= last:
            continue  # before the run that is drawn
        pool = PoolKind.TRAINING if interval.phase is PhaseKind.TRAINING else PoolKind.ROLLOUT
        places = sorted(by_slot[slot] for slot in interval.slots) or [by_job[pool, interval.job]]
        bars.append(
            element(
                "g",
                element("title", _hover(interval)),
                *(_bar(interval, frame, start, top, bottom) for top, bottom in _stretches(places)),
            )
        )
    restores = (one for one in timeline.restores if one.job in frame.jobs and first <= one.began_at <= last)
    return bars + [_strip(one, frame, start, by_slot) for one in restores]


def _strip(restore: Restore, frame: Frame, start: int, by_slot: Mapping[Slot, int]) -> Markup:
    """State that comes to its slots ahead of its phase, also beside another's: at the foot of their lanes."""
    began, ready = (
        LEFT + (at - start) / SECOND * frame.pixels_per_second for at in (restore.began_at, restore.ready_at)
    )
    places = sorted(by_slot[slot] for slot in restore.slots if slot in by_slot)
    return element(
        "g",
        element("title", f"{restore.job} · {restore.restored} state restored ahead"),
        *(
            element(
                "rect",
                fill=frame.hatch(_colour(frame.jobs[restore.job])),
                x=began,
                y=frame.y(place) + frame.lane_height * 0.7,
                width=max(ready - began, 0.5),
                height=frame.lane_height * 0.3,
            )
            for place in places
        ),
    )


def _stretches(places: Sequence[int]) -> list[tuple[int, int]]:
    """First and last of each stretch of neighbouring lanes."""
    found: list[tuple[int, int]] = []
    for place in places:
        if found and place == found[-1][1] + 1:
            found[-1] = (found[-1][0], place)
        else:
            found.append((place, place))
    return found


def _bar(interval: Interval, frame: Frame, start: int, first: int, last: int) -> Markup:
    colour = _colour(frame.jobs[interval.job])
    y = frame.y(first)
    height = frame.y(last) + frame.lane_height - y
    granted, begun, ended, released = (
        LEFT + (at - start) / SECOND * frame.pixels_per_second
        for at in (interval.granted_at, interval.started_at, interval.ended_at, interval.released_at)
    )
    loading = interval.phase is PhaseKind.LOADING
    parts = [
        element("rect", fill=frame.hatch(colour), x=left, y=y, width=right - left, height=height)
        for left, right in ((granted, begun), (ended, released))
        if right - left > 0.3
    ]
    width = max(0.5, ended - begun)
    parts.append(
        element(
            "rect",
            class_=f"{'p' if loading else 'j'}{colour}",
            x=begun,
            y=y,
            width=width,
            height=height,
            rx=min(2.0, width / 4),
        )
    )
    label = "load" if loading else str(interval.iteration)
    if height >= LABEL_HEIGHT and width > DIGIT_WIDTH * len(label) + 1.2:
        style = f"{'ink' if loading else f't{colour}'} number"
        parts.append(_label(label, style, (begun + ended) / 2, y + height / 2))
    return join(parts)


def _label(label: str, style: str, x: float, y: float) -> Markup:
    return element("text", label, class_=style, x=x, y=y + 3.6, text_anchor="middle")


def _sync(interval: Interval, frame: Frame, start: int) -> Markup:
    begun = LEFT + (interval.started_at - start) / SECOND * frame.pixels_per_second
    width = max(frame.thinnest_mark, (interval.ended_at - interval.started_at) / SECOND * frame.pixels_per_second)
    return element(
        "rect",
        element("title", _hover(interval)),
        class_=f"j{_colour(frame.jobs[interval.job])}",
        x=begun,
        y=frame.sync_y() + (SYNC - SYNC_MARK - frame.lane_gap) / 2,
        width=width,
        height=SYNC_MARK,
        rx=1,
    )


def _hover(interval: Interval) -> str:
    lines = [
        f"{interval.job} · {interval.phase} {interval.iteration}",
        f"{(interval.ended_at - interval.started_at) / SECOND:.3f} s",
    ]
    for name, start, end in (
        ("waited", interval.requested_at, interval.granted_at),
        ("restore", interval.granted_at, interval.started_at),
        ("save", interval.ended_at, interval.released_at),
    ):
        if end > start:
            lines.append(f"{name} {(end - start) / SECOND:.3f} s")
    for count, unit in ((interval.tokens, "tokens"), (interval.samples, "samples")):
        if count:
            lines.append(f"{count:,} {unit}")
    if interval.attempt > 1:
        lines.append(f"attempt {interval.attempt}")
    return "\n".join(lines)


def _colour(place: int) -> int:
    return place % palette.num_colours()
