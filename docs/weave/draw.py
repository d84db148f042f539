"""The pictures of ``docs/weave.md``, and the figures that the page quotes.

``python docs/weave/draw.py [FOLDER]`` writes the SVGs beside this file, or as SVG and PNG into a folder, and prints the
figures. Nothing in them is made up: the live scheduler decides, and the simulated world runs what it decided.
"""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from weaverl.domain.cluster import PoolKind
from weaverl.domain.commands import AnyCommand, ChangeJobState, LearnProfile, PlanMove, SetTimer
from weaverl.domain.events import AnyEvent, PermitRequested, PhaseEnded
from weaverl.domain.jobs import JobState, PhaseKind
from weaverl.domain.timeline import Interval
from weaverl.reports.palette import LIGHT, text_on
from weaverl.reports.plots.canvas import INK, MUTED, only_grid, pale, save_picture, swatch
from weaverl.scheduling.expected_dollars import course_of, nodes_of_pin, slowdowns_of, until_us
from weaverl.scheduling.policies import weave
from weaverl.scheduling.progress import HORIZON, SHARE, mean_us, slack_us
from weaverl.scheduling.replanning import propose
from weaverl.scheduling.scheduler import Scheduler
from weaverl.scheduling.state import ClusterState, JobRecord, Parameters, switches_of
from weaverl.simulation.costs import Costs
from weaverl.simulation.metrics import Metrics
from weaverl.simulation.run import Run
from weaverl.simulation.standing import cluster_of, standing_scheduler, submit, with_enough_nodes
from weaverl.simulation.supply import Supply, empty_cluster
from weaverl.simulation.timeline import Recorder
from weaverl.simulation.traces.records import TraceJob
from weaverl.simulation.workload import drawn_work, simulated_job
from weaverl.simulation.world import World

MINUTE, HOUR = 60e6, 3600e6
BLUE, ORANGE, GREEN, PURPLE = LIGHT.jobs[:4]
DEVICES = 8
NARROW = 0.025
"""A bar shorter than this share of the picture has no room for a number."""
SEED = 0


class InRounds(Parameters, frozen=True, kw_only=True):
    """Policy weave in all but the order: its groups run in lockstep rounds."""

    @property
    def by_slack(self) -> bool:
        """Never."""
        return False


class Way(NamedTuple):
    """A way to place a job: what it adds an hour and in all, and until when each node is needed, in hours."""

    kind: str
    group: str
    usd_per_hour: float
    usd: float
    refused: str
    slowdowns: dict[str, float]
    before: dict[str, float]
    after: dict[str, float]


class Diary:
    """Hears a run, and takes down how one job stands at the end of each iteration and what was done for it."""

    def __init__(self, job: str) -> None:
        self.job = job
        self.door: Scheduler | None = None
        self.slack: list[tuple[float, float]] = []
        self.late_below: list[tuple[float, float]] = []
        self.kept_free: list[float] = []
        self.neighbour_learned: list[float] = []
        self.planned: list[float] = []
        self.left: list[float] = []
        self.began: list[float] = []
        self.ended: dict[str, float] = {}

    def hear(self, event: AnyEvent, commands: Sequence[AnyCommand]) -> None:
        """Hear one event with what was decided on it."""
        at = event.at / MINUTE
        for command in commands:
            self._note(at, command)
        assert self.door is not None
        record = self.door.state.jobs.get(self.job)
        if record is None or not record.live:
            return
        if isinstance(event, PermitRequested) and event.job == self.job and event.attempt > 1 and not self.began:
            self.began.append(at)
        if isinstance(event, PhaseEnded) and event.rank.job == self.job and event.phase is PhaseKind.TRAINING:
            self.slack.append((at, slack_us(record, event.at) / MINUTE))
            self.late_below.append((at, late_below_us(self.door.state, record) / MINUTE))

    def _note(self, at: float, command: AnyCommand) -> None:
        match command:
            case SetTimer(name=name) if name.startswith("turn/") and name.split("/")[2] == self.job:
                self.kept_free.append(at)
            case LearnProfile(job=job) if job != self.job:
                self.neighbour_learned.append(at)
            case PlanMove(job=self.job):
                self.planned.append(at)
            case ChangeJobState(job=self.job, final=JobState.QUEUED):
                self.left.append(at)
            case ChangeJobState(job=job, state=JobState.FINISHED):
                self.ended[job] = at


def late_below_us(state: ClusterState, record: JobRecord) -> float:
    """The slack below which a job is late between two iterations: the rule of ``progress.is_late`` solved for it."""
    assert record.profile is not None and record.spec.iterations is not None
    left = min(max(record.spec.iterations - record.progress.iterations, 1), HORIZON)
    could_make_good = (record.spec.slo - 1.0) * left * mean_us(record.profile)
    return max_wait_us(state, record) - (1.0 - SHARE) * could_make_good


def max_wait_us(state: ClusterState, record: JobRecord) -> float:
    """The longest phase of another on the job's slots."""
    assert record.pin is not None and record.group is not None
    own, longest = {*record.pin.rollout, *record.pin.training}, 0.0
    for name in state.groups[record.group].members:
        other = state.jobs[name]
        if other is record or other.pin is None or other.profile is None:
            continue
        switches = switches_of(state.cluster, other.profile)
        if not own.isdisjoint(other.pin.rollout):
            longest = max(longest, other.profile.rollout_mean_seconds * 1e6 + switches.rollout_us)
        if not own.isdisjoint(other.pin.training):
            longest = max(longest, other.profile.training_seconds * 1e6 + switches.training_us)
    return longest


def row(name: str, *, rollout: float, training: float, iterations: int, slo: float, **more: Any) -> TraceJob:
    """A 7B job on one node of 8 GPUs in each pool, unless it is said otherwise. Seconds."""
    fields: dict[str, Any] = {
        "tenant": "t",
        "arrival_seconds": 0.0,
        "model_billions": 7.0,
        "max_tokens": 8192,
        "turns": 1,
        "rollout_gpus": 8,
        "training_gpus": 8,
        "rollout_max_seconds": rollout * 2,
        "rollout_mean_seconds": rollout,
        "rollout_cv": 0.0,
        "rollout_p80": 0.5,
        "sync_gib": 14.0,
        "rollout_host_gib": 100.0,
        "training_host_gib": 100.0,
    }
    return TraceJob(job_id=name, training_seconds=training, iterations=iterations, slo=slo, **{**fields, **more})


def run(jobs: Iterable[TraceJob], parameters: Parameters, costs: Costs, diary: Diary | None = None) -> list[Interval]:
    """Run jobs to their end, as ``weaverl simulate`` does; who ran where."""
    by_name = {job.job_id: job for job in jobs}
    runs: dict[str, Run] = {}
    door, recorder = Scheduler(empty_cluster(costs), parameters), Recorder()
    listeners: list[Any] = [Metrics(costs, runs, lambda: None)]
    if diary is not None:
        diary.door = door
        listeners.append(diary)
    world = World(
        door,
        costs,
        Supply(costs),
        lambda job: drawn_work(by_name[job.spec.name], costs, SEED),
        runs,
        listeners,
        recorder,
        propose=lambda near, reviewed_at: propose(door.state, near, reviewed_at=reviewed_at),
        review_us=parameters.review_us,
        says_saves=True,
    )
    world.run(simulated_job(job, costs) for job in by_name.values())
    return sorted(recorder.intervals(), key=lambda one: one.granted_at)


# What is decided when a job arrives


def ways() -> list[Way]:
    """All ways to place a job beside a big one and one that ends soon, the best of each kind and group."""
    costs = Costs()
    big = row("big", rollout=160, training=200, iterations=200, slo=1.3, rollout_gpus=32, training_gpus=32)
    ending = row("ending", rollout=90, training=60, iterations=48, slo=1.15)
    new = row("new", rollout=90, training=60, iterations=192, slo=2.0)
    specs = [simulated_job(job, costs).spec for job in (big, ending, new)]
    door = standing_scheduler(with_enough_nodes(cluster_of(costs), specs), Parameters(policy="weave"))
    for spec in specs[:2]:
        submit(door, spec)
    state, best = door.state, dict[tuple[str, str], Way]()
    options = [weave.alone(state, specs[2]), *weave.into_groups(state, specs[2], state.groups.values())]
    before = _hours({node: end for group in state.groups.values() for node, end in _until(state, group.name).items()})
    for option in options:
        way = _way(state, option, before)
        key = (way.kind, way.group)
        if key not in best or way.usd < best[key].usd:
            best[key] = way
    submit(door, specs[2])
    chosen = door.state.jobs["new"]
    assert chosen.pin is not None
    print("chosen:", chosen.group, nodes_of_pin(chosen.pin))
    return sorted(best.values(), key=lambda way: way.usd)


def _until(state: ClusterState, group: str) -> dict[str, float]:
    stays = weave.company_of(state, state.groups[group]).stays
    return until_us(stays, course_of(stays, slowdowns_of(stays)).ends_us)


def _hours(until: dict[str, float]) -> dict[str, float]:
    return {node: end / HOUR for node, end in until.items()}


def _way(state: ClusterState, option: weave.Option, before: dict[str, float]) -> Way:
    assert option.newcomer is not None
    judgement, usd = weave.judged(state, option)
    stays = [*option.company.stays, option.newcomer]
    after = {**before, **_hours(until_us(stays, course_of(stays, judgement.slowdowns).ends_us))}
    others = [name for name in option.candidate.group.members if name != "new"]
    group = " and ".join(others) or "nobody"
    candidate = option.candidate
    return Way(
        candidate.kind, group, candidate.added_usd_per_hour, usd, judgement.refused, judgement.slowdowns, before, after
    )


def paint_arrival(figure: Figure, shown: Sequence[tuple[str, Way]]) -> None:
    """Nodes over hours, each as high as its price an hour: area is dollars."""
    costs = Costs()
    price = {
        PoolKind.ROLLOUT: costs.rollout_usd_per_gpu_hour * costs.gpus_per_node,
        PoolKind.TRAINING: costs.training_usd_per_gpu_hour * costs.gpus_per_node,
    }
    all_axes = figure.subplots(1, len(shown), sharey=True)
    for axes, (title, way) in zip(all_axes, shown, strict=True):
        top, marks = 0.0, []
        for owner, nodes in _lanes([one for _, one in shown]).items():
            first = top
            for node in nodes:
                height = price[PoolKind.ROLLOUT if node.startswith("rollout") else PoolKind.TRAINING]
                _node_bar(axes, way, node, top, height)
                top += height
            marks.append(((first + top) / 2, owner))
            top += 12.0
        axes.set_yticks([at for at, _ in marks], [owner for _, owner in marks], color=INK)
        axes.set_ylim(top - 8, -4)
        axes.set_xlim(0, 25)
        axes.set_xticks(range(0, 25, 6))
        axes.set_xlabel("hours from now")
        axes.set_title(title)
        only_grid(axes, "x")
        axes.spines["left"].set_visible(False)
    paid, added = swatch(LIGHT.lane_rule, "paid anyway"), swatch(ORANGE, "added by the new job")
    figure.legend(handles=[paid, added], loc="outside lower center", ncols=2)


def _lanes(all_ways: Sequence[Way]) -> dict[str, list[str]]:
    """Nodes by whose they are; the new job's own ones last."""
    before = all_ways[0].before
    soon = min(before.values())
    new = dict.fromkeys(node for way in all_ways for node in way.after if node not in before)
    return {
        "4 + 4 nodes\nof big": sorted(node for node, end in before.items() if end > soon),
        "1 + 1 of\nending": sorted(node for node, end in before.items() if end == soon),
        "new\nnodes": sorted(new),
    }


def _node_bar(axes: Axes, way: Way, node: str, top: float, height: float) -> None:
    since, end = way.before.get(node, 0.0), way.after.get(node, 0.0)
    axes.broken_barh([(0, since)], (top, height - 1), color=LIGHT.lane_rule, linewidth=0)
    if end > since:
        axes.broken_barh([(since, end - since)], (top, height - 1), color=ORANGE, linewidth=0)


# How a group takes turns


def turns() -> tuple[list[Interval], list[Interval]]:
    """The same three jobs on the same nodes, in lockstep rounds and by slack."""
    costs = Costs(tail_migration=False, max_nodes_per_pool=2)
    jobs = [
        row("long", rollout=90, training=210, iterations=8, slo=2.0, rollout_gpus=16),
        row("short-1", rollout=60, training=50, iterations=30, slo=2.2, arrival_seconds=1.0),
        row("short-2", rollout=50, training=60, iterations=30, slo=2.2, arrival_seconds=2.0),
    ]
    rounds = run(jobs, InRounds(policy="weave", max_moves_per_job=0), costs)
    return rounds, run(jobs, Parameters(policy="weave", max_moves_per_job=0), costs)


def paint_turns(figure: Figure, runs: tuple[list[Interval], list[Interval]]) -> None:
    """One chart above the other on one scale of time."""
    names = ("long", "short-1", "short-2")
    for axes, title, intervals in zip(
        figure.subplots(2, 1, sharex=True), ("Lockstep rounds", "By slack"), runs, strict=True
    ):
        start = min(one.granted_at for one in intervals if one.slots)
        done = ", ".join(f"{name} {finished(intervals, name, start + 16 * MINUTE)}" for name in names)
        gantt(axes, intervals, names, (start, start + 16 * MINUTE))
        axes.set_title(f"{title}: iterations finished after 16 minutes: {done}")
    axes.set_xlabel("minutes")
    handles = [swatch(LIGHT.job(place), name) for place, name in enumerate(names)]
    figure.legend(handles=handles, loc="outside lower center", ncols=3)


def finished(intervals: Iterable[Interval], job: str, by_us: float) -> int:
    """How many iterations of a job have been trained by then."""
    ended = [one for one in intervals if one.job == job and one.phase is PhaseKind.TRAINING and one.ended_at <= by_us]
    return len(ended)


def gantt(axes: Axes, intervals: Iterable[Interval], names: Sequence[str], window: tuple[float, float]) -> list[str]:
    """Phases by node, as high as the devices that they hold, with the number of their iteration; the nodes drawn.

    What comes before a body is pale.
    """
    start, end = window
    shown = [one for one in intervals if one.slots and one.granted_at < end and one.released_at > start]
    nodes = sorted({slot.node for one in shown for slot in one.slots})
    parts: dict[tuple[str, str, PhaseKind, int], list[tuple[float, float, float]]] = {}
    for one in shown:
        colour = LIGHT.job(names.index(one.job))
        began, body, over = ((at - start) / MINUTE for at in (one.granted_at, one.started_at, one.ended_at))
        for node in dict.fromkeys(slot.node for slot in one.slots):
            devices = [slot.device for slot in one.slots if slot.node == node]
            bar = (nodes.index(node) - 0.4 + min(devices) / DEVICES * 0.8, len(devices) / DEVICES * 0.8)
            axes.broken_barh([(began, body - began)], bar, color=pale(colour))
            axes.broken_barh([(body, over - body)], bar, color=colour)
            first, last = max(body, 0.0), min(over, (end - start) / MINUTE)
            part = ((last - first) * len(devices), first, last)
            parts.setdefault((one.job, node, one.phase, one.iteration), []).append(part)
    for (job, node, _, iteration), found in parts.items():
        _, first, last = max(found)
        if last - first > NARROW * (end - start) / MINUTE:
            ink = text_on(LIGHT.job(names.index(job)))
            at = ((first + last) / 2, nodes.index(node))
            axes.text(*at, str(iteration), ha="center", va="center", color=ink, fontsize=8)
    pools = {"r": "rollout", "t": "training"}
    axes.set_yticks(range(len(nodes)), [f"{pools[node[0]]} {int(node[1:]) + 1}" for node in nodes], color=INK)
    axes.set_ylim(len(nodes) - 0.45, -0.55)
    axes.set_xlim(0, (end - start) / MINUTE)
    only_grid(axes, "x")
    axes.spines["left"].set_visible(False)
    return nodes


# What keeps a promise, and a move


def promise() -> tuple[Diary, list[Interval]]:
    """Two nodes a pool; a neighbour's rollouts grow to 2.5 times, and until a third job ends no place is free."""
    jobs = [
        row("third", rollout=100, training=100, iterations=125, slo=1.0, sync_gib=0.0),
        row("watched", rollout=100, training=50, iterations=150, slo=1.3, rollout_cv=0.15, arrival_seconds=4.0),
        row(
            "neighbour",
            rollout=80,
            training=100,
            iterations=160,
            slo=1.8,
            rollout_cv=0.2,
            rollout_growth=2.5,
            arrival_seconds=5.0,
        ),
    ]
    diary = Diary("watched")
    return diary, run(jobs, Parameters(policy="weave"), Costs(max_nodes_per_pool=2), diary)


def paint_promise(figure: Figure, diary: Diary) -> None:
    """Slack at the end of each iteration, and what was done when."""
    axes = figure.add_subplot()
    times, slack = zip(*diary.slack, strict=True)
    _, late = zip(*diary.late_below, strict=True)
    assert diary.left, "the watched job was not moved: choose other jobs in promise()"
    moved = diary.left[0]
    split = next(place for place, at in enumerate(times) if at > moved)
    axes.axhline(0.0, color=MUTED, linewidth=1)
    axes.plot(times[:split], late[:split], color=MUTED, linestyle="--", linewidth=1.4)
    axes.plot(times[split:], late[split:], color=MUTED, linestyle="--", linewidth=1.4)
    axes.plot(times, slack, color=BLUE)
    is_late = [low < limit for low, limit in zip(slack, late, strict=True)]
    axes.fill_between(times, slack, late, where=is_late, color=pale(LIGHT.bad, 0.35), linewidth=0)
    bottom = min(*slack, *late) - 7
    axes.plot(diary.kept_free, [bottom + 2] * len(diary.kept_free), "^", color=PURPLE, markersize=6)
    axes.plot(diary.neighbour_learned, [bottom + 2] * len(diary.neighbour_learned), "|", color=ORANGE, markersize=11)
    axes.axvline(moved, color=GREEN, linewidth=1.6)
    highest = (times[-1], max(slack[split:]))
    axes.annotate(f"{slack[-1]:.0f} minutes\nleft over", highest, (0, 8), **_BESIDE, ha="right")
    first = slack.index(max(slack[:split]))
    axes.annotate("the neighbour's rollouts grow", (times[first], slack[first]), (-10, 12), **_BESIDE)
    lowest = slack.index(min(slack))
    axes.annotate("late", (times[lowest], (slack[lowest] + late[lowest]) / 2), (0, 0), **_BESIDE, ha="center")
    axes.annotate("a place is free:\nit moves there", (moved, 12), (-8, 0), **_BESIDE, ha="right")
    axes.annotate("late below this line", (times[split // 4], late[split // 4]), (0, -16), **_BESIDE)
    axes.set_ylim(bottom, max(slack) + 7)
    axes.set_xlim(0, times[-1] + 8)
    axes.set_xlabel("minutes since the job arrived")
    axes.set_ylabel("slack at the end of an iteration, minutes")
    handles = [
        *axes.plot([], [], "|", color=ORANGE, markersize=11, label="the neighbour's profile follows"),
        *axes.plot([], [], "^", color=PURPLE, markersize=6, label="slots kept free for the late job"),
        *axes.plot([], [], color=GREEN, linewidth=1.6, label="moved"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3)


_BESIDE: Any = {"textcoords": "offset points", "fontsize": 9, "color": INK, "va": "center"}


def paint_move(figure: Figure, told: tuple[Diary, list[Interval]]) -> None:
    """The minutes around the move, by node."""
    diary, intervals = told
    names = ("watched", "neighbour", "third")
    axes = figure.add_subplot()
    start = round(diary.planned[0]) - 6
    nodes = gantt(axes, intervals, names, (start * MINUTE, (start + 18) * MINUTE))
    planned, left, began = (at - start for at in (diary.planned[0], diary.left[0], diary.began[0]))
    for at in (planned, left, began):
        axes.axvline(at, color=INK, linewidth=1.4)
    before = _places(intervals, "watched", start * MINUTE)
    for node in _places(intervals, "watched", (start + began) * MINUTE):
        if node in before:
            continue
        lane = nodes.index(node)
        axes.broken_barh([(left, began - left)], (lane - 0.4, 0.8), color=pale(BLUE))
        axes.text((left + began) / 2, lane, "cold\nstart", ha="center", va="center", color=INK, fontsize=8)
    for at, text, side in ((planned, "planned", "right"), (left, "leaves", "left"), (began, "goes on", "left")):
        offset = -4 if side == "right" else 4
        axes.annotate(text, (at, -0.55), (offset, 7), **_BESIDE, ha=side)
    axes.set_xlabel(f"minutes, from minute {start} of the picture above")
    handles = [swatch(LIGHT.job(place), name) for place, name in enumerate(names)]
    figure.legend(handles=handles, loc="outside lower center", ncols=3)


def _places(intervals: Iterable[Interval], job: str, since_us: float) -> list[str]:
    """The nodes that a job's first phases from then on are on."""
    later = [one for one in intervals if one.job == job and one.slots and one.granted_at >= since_us - 1]
    return list(dict.fromkeys(slot.node for one in later[:4] for slot in one.slots))


def main(folder: Path | None) -> None:
    """Draw all, and say what the page quotes."""
    with TemporaryDirectory() as scratch:
        out = folder or Path(scratch)
        found = ways()
        for way in found:
            slow = ", ".join(f"{name} {value:.2f}x" for name, value in way.slowdowns.items())
            print(f"{way.kind}, {way.group}: {way.usd_per_hour:.2f}/h, ${way.usd:.0f}; {slow}; {way.refused}")
        by_key = {(way.kind, way.group): way for way in found}
        shown = [by_key["pack", "ending"], by_key["isolate", "nobody"], by_key["scale rollout", "big"]]
        titles = ["Beside ending", "On its own nodes", "Beside big, rollout new"]
        titled = [
            (f"{title}\n${way.usd_per_hour:.2f} an hour, ${way.usd:.0f} in all", way)
            for title, way in zip(titles, shown, strict=True)
        ]
        save_picture(out, "arrival", "Dollars of three placements", (8.2, 4.2), lambda f: paint_arrival(f, titled))
        both = turns()
        save_picture(out, "turns", "Lockstep rounds and turns by slack", (8.2, 5.0), lambda f: paint_turns(f, both))
        told = promise()
        diary = told[0]
        save_picture(out, "promise", "Slack of a job over time", (8.2, 4.4), lambda f: paint_promise(f, diary))
        save_picture(out, "move", "A move", (8.2, 2.8), lambda f: paint_move(f, told))
        print(f"planned {diary.planned}, left {diary.left}, began {diary.began}, ended {diary.ended}")
        print(f"kept free {[round(at) for at in diary.kept_free]}")
        print(f"the neighbour's profile followed {[round(at) for at in diary.neighbour_learned]}")
        print(f"slack at the end {diary.slack[-1]}, least {min(slack for _, slack in diary.slack):.1f}")
        if folder is None:
            for picture in out.glob("*.svg"):
                (Path(__file__).parent / picture.name).write_bytes(picture.read_bytes())


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else None)
