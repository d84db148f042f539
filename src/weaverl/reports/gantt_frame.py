"""The frame of a Gantt chart: which lanes there are, where they lie, and the time scale that all runs share."""

from collections.abc import Sequence

import msgspec

from weaverl.domain.cluster import Cluster, PoolKind, Slot
from weaverl.domain.jobs import PhaseKind
from weaverl.domain.timeline import Interval, NodeSpan, Timeline
from weaverl.reports.metrics import makespan

WIDTH = 1000.0
LEFT = 158.0
RIGHT = 14.0
TITLE = 30.0
SYNC = 18.0
SYNC_MARK = 9.0


class GanttRun(msgspec.Struct, frozen=True, kw_only=True):
    """One chart of a picture. Several timelines are drawn one after the other, each from its first grant.

    ``spans``: when nodes were taken, if not throughout.
    """

    title: str
    timelines: tuple[Timeline, ...]
    note: str = ""
    spans: tuple[NodeSpan, ...] = ()

    @property
    def seconds(self) -> float:
        """Length of all timelines together."""
        return sum(makespan(timeline) for timeline in self.timelines)


class Lane(msgspec.Struct, frozen=True):
    """A row of the chart: a device, or a job's phases that were measured on no known device."""

    pool: PoolKind
    label: str
    slot: Slot | None = None
    job: str = ""


class Frame(msgspec.Struct, frozen=True):
    """What all runs of a picture share: lanes, their height, the scale and the colours' order."""

    lanes: tuple[Lane, ...]
    lane_height: float
    lane_gap: float
    pixels_per_second: float
    jobs: dict[str, int]
    thinnest_mark: float
    identity: str

    def hatch(self, colour: int) -> str:
        """The fill of a hatched end."""
        return f"url(#{self.identity}-hatch{colour})"

    def y(self, place: int) -> float:
        """Top of a lane, from the top of its run."""
        below = SYNC if self.lanes[place].pool is PoolKind.TRAINING else 0.0
        return TITLE + below + place * (self.lane_height + self.lane_gap)

    @property
    def height(self) -> float:
        """Height of one run."""
        return TITLE + SYNC + len(self.lanes) * (self.lane_height + self.lane_gap)

    def sync_y(self) -> float:
        """Top of the strip between the pools."""
        rollout = sum(lane.pool is PoolKind.ROLLOUT for lane in self.lanes)
        return TITLE + rollout * (self.lane_height + self.lane_gap)


def frame_of(cluster: Cluster, jobs: Sequence[str], runs: Sequence[GanttRun], identity: str) -> Frame:
    """The frame of all runs; ``jobs`` gives colours their order, ``identity`` is unique on the page."""
    intervals = [interval for run in runs for timeline in run.timelines for interval in timeline.intervals]
    lanes = lanes_of(cluster, intervals)
    order = dict.fromkeys((*jobs, *(interval.job for interval in intervals)))
    seconds = max((run.seconds for run in runs), default=0.0)
    height = min(28.0, max(3.0, 200.0 / max(1, len(lanes))))
    return Frame(
        lanes=lanes,
        lane_height=height,
        lane_gap=min(5.0, height / 6),
        pixels_per_second=(WIDTH - LEFT - RIGHT) / seconds if seconds > 0 else 0.0,
        jobs={job: place for place, job in enumerate(order)},
        thinnest_mark=2.0 if len(intervals) <= 1000 else 0.5,
        identity=identity,
    )


def lanes_of(cluster: Cluster, intervals: Sequence[Interval]) -> tuple[Lane, ...]:
    """By pool: the cluster's devices, devices that only intervals know, jobs measured on no device."""
    pools = {node.name: node.pool for node in cluster.nodes}
    several = {node.name: node.num_devices > 1 for node in cluster.nodes}
    slots = {Slot(node.name, device): node.pool for node in cluster.nodes for device in range(node.num_devices)}
    loose: dict[tuple[PoolKind, str], None] = {}
    for interval in intervals:
        pool = PoolKind.TRAINING if interval.phase is PhaseKind.TRAINING else PoolKind.ROLLOUT
        for slot in interval.slots:
            slots.setdefault(slot, pools.get(slot.node, pool))
        if not interval.slots and interval.phase is not PhaseKind.SYNC:
            loose[pool, interval.job] = None
    lanes = [Lane(pool, str(slot) if several.get(slot.node, True) else slot.node, slot) for slot, pool in slots.items()]
    lanes += [Lane(pool, job, None, job) for pool, job in loose]
    return tuple(lane for kind in PoolKind for lane in lanes if lane.pool is kind)
