"""Snapshots: states of the simulated world at moments that nobody picked, and where free moves take them."""

import msgspec

from weaverl.scheduling.policies.regrouping import as_placed, best_regrouping, question_of
from weaverl.scheduling.state import ClusterState
from weaverl.simulation.costs import Costs
from weaverl.simulation.snapshots import moments, placed_jobs, snapshot_of
from weaverl.simulation.traces.generate import Order, Preset, generate

TRACE = generate(Order(preset=Preset.PRODUCTION, seed=3, num_jobs=6, iterations=30, hours=2.0), Costs())


def states() -> list[ClusterState]:
    return [msgspec.msgpack.decode(one, type=ClusterState) for one in moments(TRACE, Costs(), 5, gap_hours=0.4)]


def test_moments_are_spread_over_the_whole_run_and_the_same_for_a_seed():
    found = states()
    assert len(found) > 5
    assert [state.now for state in found] == sorted({state.now for state in found})
    assert {len(placed_jobs(state)) for state in found} > {1, 3}
    assert msgspec.msgpack.encode(found) == msgspec.msgpack.encode(states())


def test_free_moves_cost_no_more_than_staying_and_the_best_regrouping_less_than_either():
    for state in [one for one in states() if 2 <= len(placed_jobs(one)) <= 4][:4]:
        snapshot = snapshot_of(state)
        question, settled = question_of(snapshot.placed), as_placed(question_of(snapshot.settled))
        best = best_regrouping(question, settled.groups)
        assert best.usd <= min(as_placed(question).usd, settled.usd)
        assert placed_jobs(snapshot.settled) == placed_jobs(state)
