"""One run of the simulator, with what the figures need beside its outcome."""

from collections.abc import Sequence

from weaverl.domain.cluster import PoolKind
from weaverl.domain.commands import AdmitJob, AnyCommand, ChangeJobState, RegroupJobs
from weaverl.domain.events import AgentReported, AnyEvent
from weaverl.domain.jobs import ENDED
from weaverl.domain.units import HOUR_US
from weaverl.simulation.costs import Costs
from weaverl.simulation.ownership import Ownership
from weaverl.simulation.reproduction.records import CostStep, Life, Result, Task
from weaverl.simulation.simulate import Finished, Setup


def setup_of(task: Task) -> Setup:
    """How the task's trace is run."""
    return Setup(policy=task.policy, seed=task.seed, costs=task.costs)


def result_of(task: Task, watch: "Watch", finished: Finished) -> Result:
    """What is kept of a run that has ended."""
    return Result(
        study=task.study,
        outcome=finished.outcome,
        slowdowns=tuple(finished.jobs.slowdown),
        slos=tuple(finished.jobs.slo),
        steps=tuple(watch.steps),
        lives=tuple(watch.lives.values()),
    )


class Watch:
    """Listens to a run: what was paid from when on, and which jobs ran when."""

    def __init__(self, costs: Costs) -> None:
        self.steps: list[CostStep] = []
        self.lives: dict[str, Life] = {}
        self._costs = costs
        self._ownership = Ownership()
        self._began: int | None = None

    def hear(self, event: AnyEvent, commands: Sequence[AnyCommand]) -> None:
        """Take note of an event's commands."""
        if isinstance(event, AgentReported):
            self._ownership.add(event.node)
        for command in commands:
            if isinstance(command, AdmitJob | RegroupJobs):
                self._ownership.regroup(command.group, event.at)
                self._step(event.at)
            if isinstance(command, AdmitJob):
                self.lives[command.job] = Life(job=command.job, began_hours=self._hours(event.at))
            elif isinstance(command, ChangeJobState) and command.state in ENDED:
                self.lives[command.job].ended_hours = self._hours(event.at)

    def _step(self, at: int) -> None:
        devices, costs = self._ownership.devices, self._costs
        step = CostStep(
            hours=self._hours(at),
            rollout_usd_per_hour=devices[PoolKind.ROLLOUT] * costs.rollout_usd_per_gpu_hour,
            training_usd_per_hour=devices[PoolKind.TRAINING] * costs.training_usd_per_gpu_hour,
        )
        if self.steps and self.steps[-1].hours == step.hours:
            self.steps.pop()
        self.steps.append(step)

    def _hours(self, at: int) -> float:
        """Since the first admission."""
        self._began = at if self._began is None else self._began
        return (at - self._began) / HOUR_US
