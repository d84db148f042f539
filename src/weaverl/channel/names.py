"""Names of the streams and keys of one cluster's store, in one place for controller, agents, ranks and command line."""

from weaverl.domain.events import RankId

EVENTS = "events"
"""Stream: what agents, ranks and people tell the controller."""

LOG = "log"
"""Stream: facts, each an event with the commands decided on it."""

CURSOR = "controller/cursor"
"""Key: the position in EVENTS up to which the log tells the story."""

SNAPSHOT = "controller/snapshot"
"""Key: scheduler state at a position of the log, so that the log may be trimmed."""

EPOCH = "controller/epoch"
"""Key: the epoch of the controller that leads."""

STATUS = "status"
"""Key: what `weaverl status` shows."""

LEADER = "controller"
"""Lease: the one controller that may commit."""

CONTROLLER_BEAT = "beat/controller"
NODE_BEATS = "beat/node/"
"""Keys that change while their owner lives."""


def node_beat(node: str) -> str:
    """Key that a node's agent keeps changing."""
    return NODE_BEATS + node


def node_record(node: str) -> str:
    """Key: the node as its agent serves it."""
    return f"node/{node}"


def roll_call(node: str) -> str:
    """Key that the controller changes when it wants a node's agent to report again."""
    return f"call/node/{node}"


def node_inbox(node: str) -> str:
    """Stream of commands for a node's agent."""
    return f"inbox/node/{node}"


def node_cursor(node: str) -> str:
    """Key: the position up to which a node's agent has carried commands out."""
    return f"cursor/node/{node}"


def rank_inbox(rank: RankId) -> str:
    """Stream of commands for one process of a job."""
    return f"inbox/rank/{rank_name(rank)}"


def rank_name(rank: RankId) -> str:
    """A rank as a producer of events."""
    return f"{rank.job}/{rank.attempt}/{rank.role}/{rank.rank}"


def checkpoints(rank: RankId) -> str:
    """Key: the checkpoints that one process of a job found when it started."""
    return f"checkpoints/{rank_name(rank)}"


def revoked(job: str, attempt: int) -> str:
    """Key: it is there once an attempt of a job may have no more effect."""
    return f"revoked/{job}/{attempt}"


def rendezvous(job: str, attempt: int) -> str:
    """Key: host and port where the ranks of an attempt meet."""
    return f"rendezvous/{job}/{attempt}"


def reply(request: str) -> str:
    """Key: the controller's answer to a request."""
    return f"reply/{request}"
