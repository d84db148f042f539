"""A cluster's log as a timeline with its header."""

from collections.abc import Iterator, Sequence

from weaverl.channel.store import Store
from weaverl.control.recovery import read_facts, snapshot_jobs
from weaverl.control.timeline import moved_of, pins_of, timeline_of
from weaverl.domain.cluster import Cluster
from weaverl.domain.commands import AcceptJob
from weaverl.domain.events import ControllerStarted, JobSubmitted
from weaverl.domain.facts import Fact
from weaverl.domain.jobs import JobSpec
from weaverl.domain.timeline import Timeline
from weaverl.reports.timeline_file import TimelineHeader, TimelineJob, timeline_job


def live_timeline(store: Store, cluster: Cluster) -> tuple[TimelineHeader, Timeline]:
    """The log of a cluster as a timeline; ``partial`` in the header if its beginning was dropped already."""
    facts = list(read_facts(store))
    is_partial = bool(facts) and not isinstance(facts[0].event, ControllerStarted)
    timeline = timeline_of(facts)
    jobs = header_jobs(facts)
    if is_partial:
        jobs = (*_earlier_jobs(store, timeline, jobs), *jobs)
    return TimelineHeader(cluster=cluster, jobs=jobs, partial=is_partial), timeline


def _earlier_jobs(store: Store, timeline: Timeline, known: Sequence[TimelineJob]) -> Iterator[TimelineJob]:
    """The jobs that were submitted before the log begins, as the snapshot has them."""
    missing = {interval.job for interval in timeline.intervals} - {job.name for job in known}
    for name, record in snapshot_jobs(store).items():
        if name in missing:
            yield timeline_job(record.spec, {record.attempt: record.pin} if record.pin is not None else {})


def header_jobs(facts: Sequence[Fact]) -> tuple[TimelineJob, ...]:
    """The jobs that a log speaks of, with the pins of their attempts, in the order of their last submission."""
    pins, moved = pins_of(facts), moved_of(facts)
    specs: dict[str, JobSpec] = {}
    for fact in facts:
        accepted = any(isinstance(command, AcceptJob) for command in fact.commands)
        if accepted and isinstance(fact.event, JobSubmitted) and fact.event.spec.name in pins:
            specs.pop(fact.event.spec.name, None)
            specs[fact.event.spec.name] = fact.event.spec
    return tuple(timeline_job(spec, pins[name], moved.get(name, ())) for name, spec in specs.items())
