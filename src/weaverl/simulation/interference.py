"""What neighbours cost: a phase's body takes longer while the job shares the phase's nodes."""

from collections.abc import Mapping

from weaverl.domain.groups import Group
from weaverl.domain.jobs import PhaseKind
from weaverl.simulation.costs import Costs
from weaverl.simulation.phase_run import ROLLOUT, TRAINING
from weaverl.simulation.run import Run


class Interference:
    """Judges each body once, at its grant: who comes or goes later in the phase changes nothing.

    A neighbour is another member of the group that is pinned to a node of this phase, with whichever of its own. It is
    one from its admission until it is stopped or has ended, at work or not: what disturbs is what lives on the node,
    state that is saved and restored, processes that load or wait. The scheduler is told nothing of it.
    """

    def __init__(self, costs: Costs, runs: Mapping[str, Run], groups: Mapping[str, Group]) -> None:
        self._factors = {ROLLOUT: costs.interference_rollout, TRAINING: costs.interference_training}
        self._runs, self._groups = runs, groups

    def factor(self, run: Run, phase: PhaseKind) -> float:
        """How many times as long the body of a phase that is granted now takes."""
        factor = self._factors[phase]
        return factor if factor != 1.0 and self._has_neighbour(run, phase) else 1.0

    def _has_neighbour(self, run: Run, phase: PhaseKind) -> bool:
        nodes = run.nodes[phase]
        others = (self._runs.get(name) for name in self._groups[run.group].members if name != run.name)
        return any(
            other is not None and other.present and not nodes.isdisjoint(other.nodes[ROLLOUT] | other.nodes[TRAINING])
            for other in others
        )
