"""Groups whose whole jobs take turns, and jobs with both phases on the same slots."""

import pytest
from builders import SECOND, World, cluster, job, node
from hypothesis import given, settings
from hypothesis import strategies as st
from test_lifecycle import SMALL, play, streams

from weaverl.domain.cluster import PoolKind, SwitchCost
from weaverl.domain.commands import AnyCommand, GrantPermit, SetTimer, VacateSlot
from weaverl.domain.events import PermitRequested, PhaseEnded, PhaseReport, RankId, SlotVacated, TimerFired
from weaverl.domain.jobs import ENDED, PhaseKind
from weaverl.scheduling.policies.gavel import QUANTUM_US
from weaverl.scheduling.state import Parameters

ROLLOUT, TRAINING = PhaseKind.ROLLOUT, PhaseKind.TRAINING


class Turns:
    """Two jobs of one group that say what the test lets them say."""

    def __init__(self, *names: str) -> None:
        of = cluster(node("r0"), node("t0"), switch=SwitchCost(rollout_seconds=2.0, training_seconds=5.0))
        self.world = World(of, iterations=0, parameters=Parameters(policy="gavel"))
        for name in names:
            self.world.submit(job(name, 10, 10, slo=9.0))
        assert self.world.scheduler.state.groups["g1"].members == names
        self.world.register_all()
        self.world.pending.clear()

    def asks(self, name: str, phase: PhaseKind, *, after_us: int = 0) -> list[AnyCommand]:
        self.world.now += after_us
        pool = PoolKind(str(phase))
        return self._send(PermitRequested(job=name, attempt=1, role=str(pool), phase=phase, pool=pool, iteration=0))

    def runs(self, answers: list[AnyCommand], *, after_us: int = SECOND) -> list[AnyCommand]:
        """Carry out the one grant among answers, state staying where it is, and end its phase."""
        self.world.now += after_us
        (grant,) = [command for command in answers if isinstance(command, GrantPermit)]
        return self._send(
            PhaseEnded(
                rank=RankId(grant.job, 1, grant.role, 0),
                token=grant.token,
                phase=grant.phase,
                iteration=0,
                vacated=grant.vacate,
                report=PhaseReport(body_us=after_us),
            )
        )

    def vacates(self, demand: VacateSlot) -> list[AnyCommand]:
        rank = RankId(demand.job, 1, demand.role, 0)
        return self._send(SlotVacated(rank=rank, token=demand.token, report=PhaseReport()))

    def _send(self, event: object) -> list[AnyCommand]:
        answers = self.world.send(event)
        self.world.pending.clear()
        return answers


def jobs(kind: type, answers: list[AnyCommand]) -> list[str]:
    return [command.job for command in answers if isinstance(command, kind)]


def test_the_front_goes_on_while_its_quantum_lasts_and_nobody_gets_a_slot_between():
    turns = Turns("a", "b")
    first = turns.asks("a", ROLLOUT)
    assert turns.asks("b", ROLLOUT) == []
    assert jobs(GrantPermit, turns.runs(first)) == []
    training = turns.asks("a", TRAINING)
    assert jobs(GrantPermit, training) == ["a"], "b gets no rollout while a trains"
    turns.runs(training)
    assert jobs(GrantPermit, turns.asks("a", ROLLOUT, after_us=QUANTUM_US - 3 * SECOND)) == ["a"]


def test_the_turn_goes_on_when_the_front_asks_after_its_quantum_and_comes_back():
    turns = Turns("a", "b")
    first = turns.asks("a", ROLLOUT)
    turns.asks("b", ROLLOUT)
    turns.runs(first, after_us=QUANTUM_US)
    answers = turns.asks("a", TRAINING)
    assert jobs(GrantPermit, answers) == [] and jobs(VacateSlot, answers) == ["a"]
    (demand,) = [command for command in answers if isinstance(command, VacateSlot)]
    second = turns.vacates(demand)
    assert jobs(GrantPermit, second) == ["b"]
    turns.runs(second, after_us=QUANTUM_US)
    answers = turns.asks("b", TRAINING)
    assert jobs(GrantPermit, answers) == ["a"], "a trains on the other pool: there b left nothing"


def test_nobody_gives_up_a_turn_while_nobody_waits_and_a_newcomer_waits_for_no_second_quantum():
    turns = Turns("a", "b")
    turns.runs(turns.asks("a", ROLLOUT), after_us=5 * QUANTUM_US)
    training = turns.asks("a", TRAINING)
    assert jobs(GrantPermit, training) == ["a"]
    turns.asks("b", ROLLOUT)
    turns.runs(training)
    assert jobs(VacateSlot, turns.asks("a", ROLLOUT)) == ["a"]


def test_a_front_that_asks_nothing_is_passed_over_and_its_quantum_is_over():
    turns = Turns("a", "b")
    turns.runs(turns.asks("a", ROLLOUT))
    (timer,) = [command for command in turns.asks("b", TRAINING) if isinstance(command, SetTimer)]
    turns.world.now = timer.at
    assert jobs(GrantPermit, turns.world.send(TimerFired(name=timer.name))) == ["b"]
    turns.world.pending.clear()
    assert turns.asks("a", TRAINING) == [], "it is behind b now"


@settings(max_examples=40, deadline=None)
@given(
    streams, st.sampled_from(["gavel", "gavel", "colocated", "solo"]), st.booleans(), st.sampled_from([1, 2 * SECOND])
)
def test_every_job_ends_under_the_other_policies(steps: list[tuple[str, int]], policy: str, loading: bool, tick: int):
    world = World(cluster(*SMALL), loading=loading, parameters=Parameters(policy=policy))
    world.tick_us = tick
    play(world, steps)
    world.run()
    assert {record.state for record in world.scheduler.state.jobs.values()} <= ENDED


def test_a_job_alone_on_slots_of_both_phases_goes_on_without_moving_state():
    world = World(cluster(node("r0"), node("t0")), parameters=Parameters(policy="colocated"))
    world.submit(job("a"))
    world.run()
    assert [grant.phase for grant in world.grants()] == [ROLLOUT, TRAINING] * 3
    assert {slot.node for grant in world.grants() for slot in grant.slots} == {"t0"}
    assert not any(grant.vacate for grant in world.grants())


@pytest.mark.parametrize("iterations", [1, 3])
def test_a_colocated_job_keeps_its_place_between_its_last_rollout_and_its_last_training(iterations: int):
    world = World(cluster(node("r0"), node("t0")), iterations=iterations, parameters=Parameters(policy="colocated"))
    world.submit(job("a", iterations=iterations))
    world.register_all()
    rings = []
    while world.pending and "g1" in world.scheduler.state.groups:
        world.deliver()
        if "g1" in world.scheduler.state.groups:
            rings.append([list(lane.ring) for lane in world.scheduler.rotation("g1").lanes])
    assert [["a"]] in rings
    assert rings.index([[]], rings.index([["a"]])) >= rings.index([["a"]]) + 4 * iterations - 1
