"""Placements whose groups go by slack, to be put in the place of a policy."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
import pytest

from weaverl.domain.cluster import PoolKind
from weaverl.domain.groups import Group
from weaverl.domain.jobs import JobSpec
from weaverl.scheduling import placement
from weaverl.scheduling.admission import Candidate, Decision, Judgement, verdict_on
from weaverl.scheduling.index import index_of
from weaverl.scheduling.policies import solo, weave_paper
from weaverl.scheduling.state import ClusterState

Choose = Callable[[ClusterState, JobSpec], Decision]


def with_slack(choose: Choose) -> Choose:
    """The same placements, in groups by slack."""

    def chosen(state: ClusterState, spec: JobSpec) -> Decision:
        decision = choose(state, spec)
        if decision.chosen is None:
            return decision
        group = msgspec.structs.replace(decision.chosen.group, by_slack=True)
        return msgspec.structs.replace(decision, chosen=msgspec.structs.replace(decision.chosen, group=group))

    return chosen


def all_in_one(state: ClusterState, spec: JobSpec) -> Decision:
    """All jobs on the slots of the first, if there is memory, whatever becomes of their promises."""
    if not state.groups:
        return solo.choose(state, spec)
    (group,) = state.groups.values()
    pin, memory, free = state.jobs[group.members[0]].pin, spec.host_memory, index_of(state).free_bytes
    assert pin is not None
    sides = ((PoolKind.ROLLOUT, memory.rollout_bytes), (PoolKind.TRAINING, memory.training_bytes))
    if any(free[node] < needs for pool, needs in sides for node in pin.nodes(pool)):
        return Decision(chosen=None, verdicts=())
    grown = Group(group.name, group.rollout_nodes, group.training_nodes, (*group.members, spec.name))
    candidate = Candidate(kind="pack", group=grown, added_usd_per_hour=0.0, pin=pin)
    return Decision(chosen=candidate, verdicts=(verdict_on(candidate, Judgement()),))


published = with_slack(weave_paper.choose)
packed = with_slack(all_in_one)


@contextmanager
def placing(choose: Choose) -> Iterator[None]:
    """Within, the policy ``weave`` places so."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(placement._POLICIES, "weave", choose)
        yield
