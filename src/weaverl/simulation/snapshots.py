"""States of policy ``weave`` at random moments of small production-like traces, in the simulated world.

Moments come from a Poisson clock, so that each is as likely as any other, whatever has just happened. Of a trace one
moment of many jobs and one of few are taken, by lot; a trace that lacks one of them gives none.
"""

from random import Random
from typing import NamedTuple

import msgspec

from weaverl.scheduling.joint_moves import after
from weaverl.scheduling.replanning import propose
from weaverl.scheduling.scheduler import Scheduler
from weaverl.scheduling.state import ClusterState, Parameters
from weaverl.simulation.costs import Costs
from weaverl.simulation.run import Run
from weaverl.simulation.supply import Supply, empty_cluster
from weaverl.simulation.traces.generate import Order, Preset, generate
from weaverl.simulation.traces.records import Trace
from weaverl.simulation.workload import SimulatedJob, Work, drawn_work, simulated_job
from weaverl.simulation.world import World

NUM_JOBS = 14
HOURS = 60.0
"""So many jobs of some 28 hours arrive in so many hours: six to eight run at once most of the time."""

_GAP_HOURS = 3.0
"""Mean time between two moments that are looked at."""

_ANY, _MOST_PLANS = 1_000_000, 50


class Snapshot(NamedTuple):
    """Where jobs are, those on the way of a move where they will be; and where free moves, one after another, end."""

    placed: ClusterState
    settled: ClusterState


def states(seed: int, number: int) -> list[bytes]:
    """Encoded: the state at a moment of 7 or 8 jobs, and at one of 2 to 6, of one trace; none where it lacks one.

    Each ``number`` is another trace of a ``seed``, and what it gives depends on nothing else.
    """
    random = Random(f"{seed}/{number}")
    trace_seed, sizes = random.getrandbits(32), [random.randint(7, 8), random.randint(2, 6)]
    found = _states(trace_seed)
    chosen = [[state for state in found if len(placed_jobs(state)) == size] for size in sizes]
    return [msgspec.msgpack.encode(random.choice(some)) for some in chosen] if all(chosen) else []


def snapshot_of(state: ClusterState) -> Snapshot:
    """A state as it is looked at."""
    placed = after(state, state.moves.values())
    return Snapshot(placed, settled(placed))


def settled(state: ClusterState) -> ClusterState:
    """The state after all moves that ``weave`` would make if they were free and as many as may be."""
    free = {"max_moves_per_job": _ANY, "least_stay_us": 0, "least_saving_usd": 0.0, "saving_over_cost": 0.0}
    jobs = {name: msgspec.structs.replace(record, start_us=0) for name, record in state.jobs.items()}
    parameters = msgspec.structs.replace(state.parameters, **free)
    state = msgspec.structs.replace(state, parameters=parameters, jobs=jobs, moves={})
    for _ in range(_MOST_PLANS):
        plan = propose(state)
        if plan is None:
            break
        state = after(state, plan.moves)
    return state


def placed_jobs(state: ClusterState) -> list[str]:
    """The jobs that have slots, in the order in which they came."""
    return [name for name, record in state.jobs.items() if record.pin is not None]


def moments(trace: Trace, costs: Costs, seed: int, gap_hours: float = _GAP_HOURS) -> list[bytes]:
    """The scheduler's state, encoded, at the moments of a Poisson clock while a trace runs under ``weave``."""
    by_name = {job.job_id: job for job in trace.jobs}
    runs: dict[str, Run] = {}
    parameters = Parameters(policy="weave", ended_jobs_kept=0)
    door, random, found = Scheduler(empty_cluster(costs), parameters), Random(f"{seed}/moments"), list[bytes]()

    def work_of(job: SimulatedJob) -> Work:
        return drawn_work(by_name[job.spec.name], costs, seed)

    world = World(
        door,
        costs,
        Supply(costs),
        work_of,
        runs,
        [],
        seed=seed,
        propose=lambda near, reviewed_at: propose(door.state, near, reviewed_at=reviewed_at),
        review_us=parameters.review_us,
        says_saves=True,
    )

    def take(_: None) -> None:
        if runs:
            found.append(msgspec.msgpack.encode(msgspec.structs.replace(door.state, now=world.engine.now)))
        if runs or world.engine.now < trace.jobs[-1].arrival_seconds * 1e6:
            world.engine.at(world.engine.now + gap(), take, None)

    def gap() -> int:
        return round(random.expovariate(1.0 / gap_hours) * 3600e6)

    world.engine.at(gap(), take, None)
    world.run(simulated_job(job, costs) for job in trace.jobs)
    return found


def _states(seed: int) -> list[ClusterState]:
    costs = Costs()
    trace = generate(Order(preset=Preset.PRODUCTION, seed=seed, num_jobs=NUM_JOBS, hours=HOURS), costs)
    return [msgspec.msgpack.decode(one, type=ClusterState) for one in moments(trace, costs, seed)]
