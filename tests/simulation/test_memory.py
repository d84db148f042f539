"""Nothing is kept of a job that has ended but a few numbers."""

import pytest

from simulation.small import FREE, row
from weaverl.scheduling.scheduler import Scheduler
from weaverl.scheduling.state import Parameters
from weaverl.simulation.metrics import Metrics
from weaverl.simulation.supply import Supply, empty_cluster
from weaverl.simulation.workload import drawn_work, simulated_job
from weaverl.simulation.world import World


@pytest.mark.parametrize(("kept", "remembered"), [(0, []), (2, ["j6", "j7"]), (None, [f"j{n}" for n in range(8)])])
def test_the_scheduler_remembers_as_many_ended_jobs_as_it_is_told_to(kept, remembered):
    rows = {f"j{number}": row(f"j{number}", at=700.0 * number, iterations=5) for number in range(8)}
    door, runs = Scheduler(empty_cluster(FREE), Parameters(ended_jobs_kept=kept)), {}
    metrics = Metrics(FREE, runs)
    world = World(door, FREE, Supply(FREE), lambda job: drawn_work(rows[job.spec.name], FREE, 1), runs, [metrics])
    world.run(simulated_job(job, FREE) for job in rows.values())
    assert sorted(door.state.jobs) == remembered
    assert metrics.num_finished == 8
    assert (door.state.groups, door.snapshot().rotations, runs, len(world.engine)) == ({}, {}, {}, 0)
    assert (metrics.unfinished, metrics.tenants.num_known, metrics.ownership.devices) == (
        {},
        0,
        {"rollout": 0, "training": 0},
    )
