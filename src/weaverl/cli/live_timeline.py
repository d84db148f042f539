"""A cluster's log as a timeline with its header."""

from collections.abc import Sequence

from weaverl.channel.store import Store
from weaverl.control.recovery import read_facts
from weaverl.control.timeline import pins_of, timeline_of
from weaverl.domain.cluster import Cluster
from weaverl.domain.commands import AcceptJob
from weaverl.domain.events import JobSubmitted
from weaverl.domain.facts import Fact
from weaverl.domain.jobs import JobSpec
from weaverl.domain.timeline import Timeline
from weaverl.reports.timeline_file import TimelineHeader, TimelineJob, timeline_job


def live_timeline(store: Store, cluster: Cluster) -> tuple[TimelineHeader, Timeline]:
    """The whole log of a cluster as a timeline."""
    facts = list(read_facts(store))
    return TimelineHeader(cluster=cluster, jobs=header_jobs(facts)), timeline_of(facts)


def header_jobs(facts: Sequence[Fact]) -> tuple[TimelineJob, ...]:
    """The jobs that a log speaks of, with the pins of their attempts."""
    pins = pins_of(facts)
    specs: dict[str, JobSpec] = {}
    for fact in facts:
        accepted = any(isinstance(command, AcceptJob) for command in fact.commands)
        if accepted and isinstance(fact.event, JobSubmitted) and fact.event.spec.name in pins:
            specs[fact.event.spec.name] = fact.event.spec
    return tuple(timeline_job(spec, pins[name]) for name, spec in specs.items())
