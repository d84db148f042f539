"""Tails of rollouts: who moves when, who gets what is free, and what death or a stale word changes."""

import msgspec
from builders import SECOND, World, cluster, derived, job, node
from hypothesis import given, settings
from test_lifecycle import SMALL, image, play, recovered, streams

from weaverl.domain.cluster import PoolKind, Slot
from weaverl.domain.commands import AnyCommand, GrantPermit, MoveTail, VacateSlot, WidenPermit
from weaverl.domain.events import (
    DeathConfirmed,
    JobCancelled,
    PermitRequested,
    PhaseEnded,
    PhaseReport,
    RankId,
    SlotVacated,
    TailMoved,
    TailReached,
    Token,
)
from weaverl.domain.jobs import ENDED, JobSpec, PhaseKind
from weaverl.scheduling.scheduler import Scheduler, Snapshot


def slots(*devices: int, name: str = "r0") -> tuple[Slot, ...]:
    return tuple(Slot(name, device) for device in devices)


ALL, FIRST_TWO, OTHERS = slots(*range(8)), slots(0, 1), slots(*range(2, 8))


def with_slack(spec: JobSpec) -> JobSpec:
    """A job that does other things most of the time, so that many fit into one group."""
    assert spec.profile is not None
    return msgspec.structs.replace(spec, profile=msgspec.structs.replace(spec.profile, other_seconds=100.0))


class Table:
    """Jobs that are up on shared nodes and say what the test lets them say."""

    def __init__(self, *names: str, nodes: tuple[str, ...] = ("r0", "t0"), gpus: tuple[int, int] = (8, 8)) -> None:
        self.world = World(cluster(*(node(name, devices=8) for name in nodes)), iterations=0)
        for name in names:
            self.world.submit(with_slack(job(name, gpus=gpus, slo=9.0)))
        assert len(self.world.scheduler.state.groups) == 1
        self.world.register_all()
        self.world.pending.clear()

    def asks(
        self, name: str, phase: PhaseKind = PhaseKind.ROLLOUT, iteration: int = 0, pool: PoolKind | None = None
    ) -> list[AnyCommand]:
        pool = pool or PoolKind(str(phase))
        said = PermitRequested(job=name, attempt=1, role=str(pool), phase=phase, pool=pool, iteration=iteration)
        return self._send(said)

    def reaches_tail(self, grant: GrantPermit, keep: tuple[Slot, ...] = FIRST_TWO) -> list[AnyCommand]:
        return self._send(TailReached(rank=_rank(grant), token=grant.token, iteration=grant.iteration, keep=keep))

    def moved(self, grant: GrantPermit, rank: int = 0) -> list[AnyCommand]:
        return self._send(TailMoved(rank=_rank(grant, rank), token=grant.token))

    def ends(self, grant: GrantPermit, rank: int = 0, *, vacated: bool = True) -> list[AnyCommand]:
        return self._send(
            PhaseEnded(
                rank=_rank(grant, rank),
                token=grant.token,
                phase=grant.phase,
                iteration=grant.iteration,
                vacated=vacated,
                report=PhaseReport(body_us=SECOND),
            )
        )

    def vacates(self, grant: GrantPermit) -> list[AnyCommand]:
        return self._send(SlotVacated(rank=_rank(grant), token=grant.token, report=PhaseReport()))

    def _send(self, event: object) -> list[AnyCommand]:
        answers = self.world.send(event)
        self.world.pending.clear()
        return answers


def _rank(grant: GrantPermit, rank: int = 0) -> RankId:
    return RankId(grant.job, grant.attempt, grant.role, rank)


def of(kind: type, answers: list[AnyCommand]) -> list:
    return [command for command in answers if isinstance(command, kind)]


def granted(answers: list[AnyCommand]) -> GrantPermit:
    (grant,) = of(GrantPermit, answers)
    return grant


def beside_a_tail() -> tuple[Table, GrantPermit, GrantPermit]:
    """Job a is in its tail on two slots, b runs on the other six."""
    table = Table("a", "b", "c")
    first = granted(table.asks("a"))
    table.asks("b")
    table.reaches_tail(first)
    return table, first, granted(table.moved(first))


def test_nobody_moves_while_nobody_else_waits():
    table = Table("a", "b")
    first = granted(table.asks("a"))
    assert table.reaches_tail(first) == []
    assert table.moved(first) == []
    (move,) = table.asks("b")
    assert move == MoveTail(job="a", attempt=1, role="rollout", token=first.token, keep=FIRST_TWO, ranks=1)


def test_a_tail_moves_at_once_when_somebody_waits_already():
    table = Table("a", "b")
    first = granted(table.asks("a"))
    table.asks("b")
    assert [command.job for command in of(MoveTail, table.reaches_tail(first))] == ["a"]
    assert of(MoveTail, table.asks("b", PhaseKind.TRAINING)) == [], "it is told once"


def test_the_next_rollout_starts_beside_the_tail_and_gets_the_rest_when_it_ends():
    table, first, second = beside_a_tail()
    assert (second.job, second.slots, second.later, second.ranks) == ("b", OTHERS, FIRST_TWO, 1)
    assert table.ends(first) == [
        WidenPermit(job="b", attempt=1, role="rollout", token=second.token, slots=FIRST_TWO, ranks=1)
    ]
    assert table.world.scheduler.rotation("g1").permits["b"].grant.slots == OTHERS + FIRST_TWO


def test_a_tail_that_was_told_to_move_and_ends_first_leaves_all_its_slots():
    table = Table("a", "b")
    first = granted(table.asks("a"))
    table.reaches_tail(first)
    table.asks("b")
    second = granted(table.ends(first))
    assert (second.slots, second.later) == (ALL, ())
    assert table.moved(first) == []


def test_promised_slots_that_a_tail_left_dirty_are_vacated_before_they_are_given():
    table, first, second = beside_a_tail()
    (demand,) = of(VacateSlot, table.ends(first, vacated=False))
    assert (demand.job, demand.slots) == ("a", FIRST_TWO)
    (widening,) = table.vacates(first)
    assert (widening.job, widening.token, widening.slots) == ("b", second.token, FIRST_TWO)


def test_what_one_tail_keeps_and_another_was_promised_goes_to_the_third_in_turn():
    table, first, second = beside_a_tail()
    table.asks("c")
    (move,) = of(MoveTail, table.reaches_tail(second, keep=slots(2)))
    assert move.job == "b"
    third = granted(table.moved(second))
    assert (third.job, third.slots, third.later) == ("c", slots(3, 4, 5, 6, 7), slots(0, 1, 2))
    assert [(w.job, w.slots) for w in of(WidenPermit, table.ends(first))] == [("c", FIRST_TWO)]
    assert [(w.job, w.slots) for w in of(WidenPermit, table.ends(second))] == [("c", slots(2))]


def test_promised_slots_are_nobody_elses():
    table, first, _ = beside_a_tail()
    asked = table.asks("c")
    assert of(GrantPermit, asked) == of(MoveTail, asked) == []
    assert of(GrantPermit, table.ends(first)) == []


def test_it_must_be_the_waiting_jobs_turn():
    table = Table("a", "b", "c")
    first = granted(table.asks("a"))
    table.asks("b")
    table.asks("c")
    table.reaches_tail(first)
    second = granted(table.moved(first))
    assert second.job == "b"


def test_only_a_rollout_starts_on_a_part_of_its_slots():
    table = Table("a", "b")
    first = granted(table.asks("a"))
    table.asks("b", PhaseKind.LOADING, pool=PoolKind.ROLLOUT)
    assert table.reaches_tail(first) == []
    assert granted(table.ends(first)).slots == ALL


def test_slots_are_free_when_every_rank_has_moved_or_ended_clean():
    table = Table("a", "b", nodes=("r0", "r1", "t0"), gpus=(16, 8))
    first = granted(table.asks("a"))
    assert first.ranks == 2
    table.asks("b")
    table.reaches_tail(first)
    assert table.moved(first, 0) == []
    second = granted(table.ends(first, 1))
    assert (len(second.slots), second.later) == (14, FIRST_TWO)
    assert second.ranks == 2


def test_nothing_is_free_before_the_end_if_a_rank_ended_and_left_its_state():
    table = Table("a", "b", nodes=("r0", "r1", "t0"), gpus=(16, 8))
    first = granted(table.asks("a"))
    table.asks("b")
    table.reaches_tail(first)
    table.ends(first, 1, vacated=False)
    assert table.moved(first, 0) == []
    assert [c.slots for c in of(VacateSlot, table.ends(first, 0))] == [first.slots]


def test_a_stale_token_a_training_or_a_keep_that_is_no_true_part_changes_nothing():
    table = Table("a", "b")
    first = granted(table.asks("a"))
    table.asks("b")
    stale = msgspec.structs.replace(first, token=Token(0, 7))
    for grant, keep in ((stale, FIRST_TWO), (first, ALL), (first, ()), (first, slots(0, name="r7"))):
        assert table.reaches_tail(grant, keep) == []
    assert table.moved(stale) == table.moved(first) == []
    rotation = table.world.scheduler.rotation("g1")
    assert rotation.permits["a"].tail is None
    table.ends(first)
    training = granted(table.asks("a", PhaseKind.TRAINING))
    table.reaches_tail(training, slots(0, name="t0"))
    assert rotation.permits["a"].tail is None


def test_death_in_the_tail_widens_the_other_and_only_when_it_is_confirmed():
    table, _, second = beside_a_tail()
    assert of(WidenPermit, table.world.send(JobCancelled(job="a", request="x"))) == []
    confirmed = DeathConfirmed(job="a", attempt=1, node="r0")
    (widening,) = of(WidenPermit, table.world.send(confirmed))
    assert (widening.job, widening.token, widening.slots) == ("b", second.token, FIRST_TWO)


def test_death_beside_a_tail_frees_what_was_held_and_what_was_promised():
    table, first, _ = beside_a_tail()
    table.asks("c")
    table.world.send(JobCancelled(job="b", request="x"))
    third = granted(table.world.send(DeathConfirmed(job="b", attempt=1, node="r0")))
    assert (third.job, third.slots, third.later) == ("c", OTHERS, FIRST_TWO)
    assert [w.job for w in of(WidenPermit, table.ends(first))] == ["c"]


def test_a_job_that_is_ending_is_not_told_to_move():
    table = Table("a", "b")
    first = granted(table.asks("a"))
    table.reaches_tail(first)
    table.world.send(JobCancelled(job="a", request="x"))
    assert of(MoveTail, table.asks("b")) == []
    assert granted(table.world.send(DeathConfirmed(job="a", attempt=1, node="r0"))).slots == ALL


@settings(max_examples=60, deadline=None)
@given(streams)
def test_invariants_hold_with_tails_and_the_log_rebuilds_the_state(steps: list[tuple[str, int]]):
    world = World(cluster(*SMALL), tails=True)
    play(world, steps)
    rebuilt = recovered(world)
    assert image(rebuilt) == image(world.scheduler)
    thawed = Scheduler.from_snapshot(msgspec.msgpack.decode(image(rebuilt), type=Snapshot))
    assert derived(thawed) == derived(rebuilt) == derived(world.scheduler)
    again = Scheduler(world.scheduler.state.cluster)
    for event, commands in world.log:
        assert again.handle(event) == commands
    world.run()
    assert {record.state for record in world.scheduler.state.jobs.values()} <= ENDED
