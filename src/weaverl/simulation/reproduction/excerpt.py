"""A few minutes of a woven group, for a Gantt chart."""

from weaverl.simulation.reproduction.records import Excerpt
from weaverl.simulation.simulate import Setup, simulate_heard
from weaverl.simulation.timeline import Recorder
from weaverl.simulation.traces.records import Trace

_MINUTE_US = 60e6


def woven_excerpt(title: str, trace: Trace, start_minutes: float, minutes: float) -> Excerpt:
    """Run a trace woven, and keep what happens in some minutes of it."""
    recorder = Recorder()
    simulate_heard(trace, Setup(), (), recorder=recorder)
    start, end = start_minutes * _MINUTE_US, (start_minutes + minutes) * _MINUTE_US
    intervals = tuple(one for one in recorder.intervals() if one.granted_at < end and one.released_at > start)
    return Excerpt(
        title=title,
        jobs=tuple(job.job_id for job in trace.jobs),
        intervals=intervals,
        start_us=round(start),
        minutes=minutes,
    )
