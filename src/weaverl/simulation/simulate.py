"""A trace under a policy: the scheduler of the live cluster in a simulated world."""

from collections.abc import Callable, Collection, Iterable
from typing import Any, NamedTuple

import msgspec

from weaverl.domain.cluster import Cluster
from weaverl.domain.events import PlanProposed
from weaverl.domain.sharing import Sharing
from weaverl.scheduling.making_room import propose
from weaverl.scheduling.scheduler import Scheduler
from weaverl.scheduling.state import ClusterState, Parameters
from weaverl.simulation.costs import Costs
from weaverl.simulation.metrics import JobFigures, Metrics
from weaverl.simulation.outcome import Outcome, outcome
from weaverl.simulation.run import Run
from weaverl.simulation.supply import Supply, empty_cluster
from weaverl.simulation.timeline import Recorder
from weaverl.simulation.traces.records import Trace
from weaverl.simulation.workload import SimulatedJob, Work, drawn_work, simulated_job
from weaverl.simulation.world import Listener, World


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """How a trace is run. ``seed`` None: nothing is random, every rollout takes its mean."""

    policy: str = "weave-paper"
    objective: str = "dollars"
    colocates: bool = False
    seed: int | None = 0
    costs: Costs = Costs()
    timings: bool = True
    max_moves_per_job: int = Parameters().max_moves_per_job
    hidden_switches: bool = True
    sharing: Sharing | None = None


class Replacing(NamedTuple):
    """How running jobs are moved: who plans, aside, and the scheduler's parameters but for the policy.

    ``propose`` is asked with the groups that have changed (none when a job has drifted), and at a review with the time
    of the last one.
    """

    propose: Callable[[ClusterState, Collection[str], int | None], PlanProposed | None] = propose
    parameters: Parameters = Parameters()


class Finished(msgspec.Struct, frozen=True):
    """A run that has ended: its outcome, the figures of its jobs in the order in which they ended, and its cluster."""

    outcome: Outcome
    jobs: JobFigures
    cluster: Cluster


def simulate(trace: Trace, setup: Setup, ended: Callable[[], None] = lambda: None) -> Outcome:
    """Run a trace to its end. ``ended`` is called whenever a job has ended."""
    return simulate_heard(trace, setup, (), ended).outcome


def simulate_heard(
    trace: Trace,
    setup: Setup,
    listeners: Iterable[Listener],
    ended: Callable[[], None] = lambda: None,
    recorder: Recorder | None = None,
    replacing: Replacing | None = None,
) -> Finished:
    """Run a trace to its end before ``listeners``, which hear every event with what was decided on it.

    A ``recorder`` is told what the world does: the timeline. ``replacing``: moves that are not the policy's own.
    """
    costs, by_name = setup.costs, {job.job_id: job for job in trace.jobs}
    runs: dict[str, Run] = {}
    metrics = Metrics(costs, runs, ended, setup.sharing, sorted({job.tenant for job in trace.jobs}))
    supply = Supply(costs)
    cluster = msgspec.structs.replace(empty_cluster(costs), sharing=setup.sharing)
    replacing = replacing or Replacing(parameters=Parameters(max_moves_per_job=setup.max_moves_per_job))
    known = msgspec.structs.replace(
        replacing.parameters,
        policy=setup.policy,
        objective=setup.objective,
        colocates=setup.colocates,
        ended_jobs_kept=0,
        hidden_switches=setup.hidden_switches,
    )
    door = Scheduler(cluster, known)

    def work_of(job: SimulatedJob) -> Work:
        return drawn_work(by_name[job.spec.name], costs, setup.seed)

    world = World(
        door,
        costs,
        supply,
        work_of,
        runs,
        [metrics, *listeners],
        recorder,
        setup.seed or 0,
        propose=lambda near, reviewed_at: replacing.propose(door.state, near, reviewed_at),
        review_us=known.review_us if known.moves_jobs else 0,
        makes_room=known.for_throughput,
        says_saves=known.moves_jobs or (setup.sharing is not None and setup.sharing.preemption is not None),
    )
    world.run(simulated_job(job, costs) for job in trace.jobs)
    named = {"trace": trace.name, "policy": setup.policy, "seed": setup.seed, "parameters": _parameters(setup, known)}
    summed = outcome(metrics, costs, named, world.decision_ns if setup.timings else None, None)
    return Finished(summed, metrics.jobs, msgspec.structs.replace(cluster, nodes=tuple(supply.nodes)))


def _parameters(setup: Setup, known: Parameters) -> dict[str, Any]:
    """All that a result depends on beside trace, policy and seed."""
    others: dict[str, Any] = {"random": setup.seed is not None, "max_moves_per_job": known.max_moves_per_job}
    if setup.policy == "weave":
        others |= {"objective": setup.objective, "colocates": setup.colocates}
        others["hidden_switches"] = setup.hidden_switches
    if setup.sharing is not None:
        others["sharing"] = msgspec.to_builtins(setup.sharing)
    return {**others, **msgspec.to_builtins(setup.costs)}
