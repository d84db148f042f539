"""Which nodes are there: their agents report, are lost, and have to report again under a new controller."""

from weaverl.domain.events import AgentReported, ControllerStarted, NodeLost
from weaverl.scheduling import lifecycle
from weaverl.scheduling.state import ClusterState, NodeRecord


def observe_controller(state: ClusterState, event: ControllerStarted) -> None:
    """Fold a new epoch: nobody has reported in it."""
    state.epoch = event.epoch
    for name, node in state.nodes.items():
        node.ready = False
        state.changed.nodes[name] = None


def observe_loss(state: ClusterState, event: NodeLost) -> None:
    """Fold that a node's agent is silent."""
    node = state.nodes[event.node]
    node.ready, node.lost_at = False, event.at
    state.changed.nodes[event.node] = None


def observe_report(state: ClusterState, event: AgentReported) -> None:
    """Fold an agent's report of this epoch: what lives there and belongs to no living attempt is in the way."""
    attempts = dict.fromkeys((rank.job, rank.attempt) for rank in event.alive)
    strangers = [one for one in attempts if lifecycle.current(state, *one) is None]
    state.nodes[event.node.name] = NodeRecord(event.node, ready=True, strangers=strangers)
    state.changed.nodes[event.node.name] = None
