"""A job against the clock: what counts as done, and which time counts."""

import msgspec
import pytest
from builders import SECOND, World, cluster, job, node

from weaverl.domain.cluster import PoolKind
from weaverl.domain.commands import GrantPermit
from weaverl.domain.events import (
    DeathConfirmed,
    JobCancelled,
    PermitRequested,
    PhaseEnded,
    PhaseReport,
    ProcessExited,
    RankId,
    RankRegistered,
    TailMoved,
    TailReached,
)
from weaverl.domain.jobs import JobSpec, PhaseKind
from weaverl.scheduling.progress import (
    HORIZON,
    SHARE,
    WEIGHT,
    allowance,
    forecast_error,
    hangs,
    is_late,
    measured_slowdown,
    room,
    slack_us,
)
from weaverl.scheduling.state import Parameters, Progress

ROLLOUT, TRAINING = PhaseKind.ROLLOUT, PhaseKind.TRAINING


def whole_job(name: str, **more) -> JobSpec:
    """Rollout 10 s, training 10 s, sync 3 s, other 2 s."""
    spec = job(name, driver=False, slo=1.5, **more)
    assert spec.profile is not None
    return msgspec.structs.replace(
        spec, profile=msgspec.structs.replace(spec.profile, sync_seconds=3.0, other_seconds=2.0)
    )


class Clock:
    """A world with a job a, whose phases begin and end at the seconds that a test says."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.register(attempt=1)

    @property
    def progress(self) -> Progress:
        return self.world.scheduler.state.jobs["a"].progress

    def register(self, attempt: int) -> None:
        events = [event for event in self.world.pending if isinstance(event, RankRegistered)]
        self.world.pending.clear()
        for event in events:
            assert event.rank.attempt == attempt
            self.world.send(event)
        self.world.pending.clear()

    def at(self, second: float, event) -> list:
        self.world.now = round(second * SECOND) - 1
        commands = self.world.send(event)
        self.world.pending.clear()
        return commands

    def asks(self, second: float, phase: PhaseKind, iteration: int = 0, attempt: int = 1) -> GrantPermit:
        pool = PoolKind.TRAINING if phase is TRAINING else PoolKind.ROLLOUT
        request = PermitRequested(job="a", attempt=attempt, role=str(pool), phase=phase, pool=pool, iteration=iteration)
        (grant,) = [command for command in self.at(second, request) if isinstance(command, GrantPermit)]
        return grant

    def ends(self, second: float, grant: GrantPermit, body: float, rank: int = 0, *, failed: bool = False) -> None:
        ended = PhaseEnded(
            rank=RankId("a", grant.attempt, grant.role, rank),
            token=grant.token,
            phase=grant.phase,
            iteration=grant.iteration,
            vacated=True,
            report=PhaseReport(body_us=round(body * SECOND)),
            failed=failed,
        )
        self.at(second, ended)

    def iterates(self, second: float, iteration: int = 0, attempt: int = 1) -> float:
        """Rollout 12 s and training 10 s, each after a wait of 1 s; sync and other follow."""
        self.ends(second + 13, self.asks(second, ROLLOUT, iteration, attempt), 12)
        self.ends(second + 24, self.asks(second + 13, TRAINING, iteration, attempt), 10)
        return second + 29


def alone(*nodes: str, **more) -> Clock:
    world = World(cluster(*map(node, nodes or ("r0", "t0"))), iterations=0)
    world.submit(whole_job("a", **more))
    return Clock(world)


def seconds(microseconds: int) -> float:
    return microseconds / SECOND


def test_the_time_begins_when_the_first_rollout_is_asked_for():
    clock = alone()
    clock.ends(70, clock.asks(20, PhaseKind.LOADING), 50)
    assert clock.progress == Progress(foreseen=1.0)
    clock.asks(100, ROLLOUT)
    assert clock.progress == Progress(since=100 * SECOND, company=(0, 0, 0), pace=1.5, foreseen=1.0)


def test_an_iteration_counts_its_measured_phases_and_the_profiles_sync_and_rest():
    clock = alone()
    after = clock.iterates(100)
    solo_us = (12 + 10 + 3 + 2) * SECOND
    whole = Progress(iterations=1, solo_us=solo_us, since=100 * SECOND, company=(0, 0, 0), pace=1.5, foreseen=1.0)
    assert clock.progress == whole
    clock.ends(after + 13, clock.asks(after, ROLLOUT, 1), 12)
    assert clock.progress.lap_us == (29 * SECOND, 27 * SECOND)
    assert seconds(clock.progress.done_us) == 27 + 12
    assert slack_us(clock.world.scheduler.state.jobs["a"], 150 * SECOND) == round(1.5 * 39 * SECOND) - 50 * SECOND


def test_a_forecast_is_corrected_by_what_was_measured_and_its_error_outlives_the_company():
    clock = alone()
    record = clock.world.scheduler.state.jobs["a"]
    assert measured_slowdown(record, 1.5) == 1.5
    at = 100.0
    for iteration in range(WEIGHT):
        at = clock.iterates(at, iteration)
    clock.asks(at, ROLLOUT, WEIGHT)
    assert measured_slowdown(record, 1.5) == pytest.approx((29 / 27 + 1.5) / 2)
    clock.world.submit(whole_job("b"))
    assert record.progress.company is None
    error = (29 / 27 - 1.0) / 2
    assert forecast_error(record) == pytest.approx(error)
    assert measured_slowdown(record, 1.5) == pytest.approx(1.5 + error)


def test_the_slowest_rank_says_how_long_a_phase_took_and_a_failed_one_does_not_count():
    clock = alone("r0", "r1", "t0", gpus=(16, 8))
    grant = clock.asks(1, ROLLOUT)
    clock.ends(10, grant, 9, 1)
    clock.ends(11, grant, 7, 0)
    assert seconds(clock.progress.part_us) == 9
    clock.ends(21, clock.asks(11, TRAINING), 10, failed=True)
    assert seconds(clock.progress.part_us) == 9


def test_a_later_start_counts_the_queue_before_it_does_not_and_a_lost_iteration_is_done_again():
    clock = alone(max_retries=1)
    after = clock.iterates(100)
    clock.ends(after + 13, clock.asks(after, ROLLOUT, 1), 12)
    clock.at(150, ProcessExited(rank=RankId("a", 1, "rollout", 0), node="r0", exit_code=-9))
    over = (29 * SECOND, 27 * SECOND)
    assert clock.progress == Progress(
        iterations=1, solo_us=27 * SECOND, wall_us=50 * SECOND, lap_us=over, company=(0, 0, 0), pace=1.5, foreseen=1.0
    )
    world = clock.world
    for name in ("r0", "t0"):
        world.now = 200 * SECOND - 10
        world.send(DeathConfirmed(job="a", attempt=1, node=name))
    assert seconds(clock.progress.wall_us) == 50 and clock.progress.since == world.now
    clock.register(attempt=2)
    began = clock.progress.since
    clock.iterates(280, 0, 2)
    assert seconds(clock.progress.solo_us) == 27, "it began again before what it had finished"
    clock.iterates(310, 1, 2)
    assert seconds(clock.progress.solo_us) == 54
    assert clock.progress.elapsed_us(340 * SECOND) == 50 * SECOND + 340 * SECOND - began
    clock.at(340, JobCancelled(job="a", request="x"))
    assert (clock.progress.since, clock.progress.wall_us) == (None, 50 * SECOND + 340 * SECOND - began)


def test_time_for_want_of_slots_is_no_solo_time():
    world = World(cluster(), iterations=0)
    for name in "ab":
        world.submit(whole_job(name))
    clock = Clock(world)
    first = clock.asks(0.5, ROLLOUT)
    request = PermitRequested(job="b", attempt=1, role="rollout", phase=ROLLOUT, pool=PoolKind.ROLLOUT, iteration=0)
    clock.at(1, request)
    rank = RankId("a", 1, "rollout", 0)
    clock.at(8, TailReached(rank=rank, token=first.token, iteration=0, keep=first.slots[:2]))
    (second,) = [one for one in clock.at(10, TailMoved(rank=rank, token=first.token)) if isinstance(one, GrantPermit)]
    assert len(second.later) == 2
    clock.ends(14, first, 14)
    other = PhaseEnded(
        rank=RankId("b", 1, "rollout", 0),
        token=second.token,
        phase=ROLLOUT,
        iteration=0,
        vacated=True,
        report=PhaseReport(body_us=11 * SECOND),
    )
    clock.at(21, other)
    jobs = world.scheduler.state.jobs
    assert seconds(jobs["a"].progress.part_us) == pytest.approx(8 + 5 / 1.05), (
        "a move of 1 s, and 5 % more for the rest"
    )
    assert seconds(jobs["b"].progress.part_us) == 10, "for 4 s it had 6 of 8 slots"


def test_a_colocated_rollout_counts_as_on_its_own_gpus():
    world = World(cluster(), iterations=0, parameters=Parameters(policy="colocated"))
    world.submit(whole_job("a"))
    clock = Clock(world)
    clock.ends(12, clock.asks(1, ROLLOUT), 11)
    assert seconds(clock.progress.part_us) == pytest.approx(10)


@pytest.mark.parametrize(
    ("part", "elapsed", "left"),
    [(0, 0, 1.75), (0, 150, 1.5), (0, 250, 1 + 1 / 3), (50, 150, 900 / 550)],
)
def test_room_is_what_the_promise_leaves_for_the_work_ahead(part: float, elapsed: float, left: float):
    given = [round(value * SECOND) for value in (100, part, 600, elapsed)]
    assert room(1.5, *given, 0) == int(1000 * left)
    assert room(1.5, *given[:3], given[3] - 10 * SECOND, 10 * SECOND) == int(1000 * left), (
        "what is kept in hand counts as gone"
    )


def test_a_job_near_its_end_has_only_the_rest_to_make_good_in():
    clock = alone(iterations=3)
    record = clock.world.scheduler.state.jobs["a"]
    clock.iterates(1)
    assert allowance(record, 61 * SECOND) == (1.5, 1000 * (1.5 * (27 + 50) - 60) // 50)
    record.spec = msgspec.structs.replace(record.spec, iterations=None)
    assert allowance(record, 61 * SECOND) == (1.5, 1000 * (1.5 * (27 + HORIZON * 25) - 60) // (HORIZON * 25))


def test_what_a_job_had_to_spare_it_spends_by_its_end_and_not_at_once():
    clock = alone(iterations=100)
    record, at = clock.world.scheduler.state.jobs["a"], 1.0
    for iteration in range(20):
        at = clock.iterates(at, iteration)
    clock.world.submit(whole_job("b"))
    clock.asks(at, ROLLOUT, 20)
    solo, wall, left = 20 * 27, 20 * 29, 80 * 25
    pace = (1.5 * (solo + left) - wall) / left
    assert record.progress.pace == pytest.approx(pace)
    assert not is_late(*allowance(record, round(at * SECOND)))
    spare = (pace - 1.0) * HORIZON * 25
    late_at = at + spare * SHARE
    for later, late in ((-1.0, False), (1.0, True)):
        now = round((late_at + later) * SECOND)
        assert is_late(*allowance(record, now)) is late
        assert slack_us(record, now) > 200 * SECOND - (now - round(at * SECOND)), "by its promise it is far from late"


@pytest.mark.parametrize(("usual_seconds", "seconds"), [(0, 3700), (20, 3700), (100, 4000)])
def test_a_job_may_hang_an_hour_after_four_of_its_iterations(usual_seconds, seconds):
    """Of 25 s by the profile, or longer ones as they were so far."""
    world = World(cluster(), iterations=9)
    world.submit(whole_job("a", iterations=9))
    record = world.scheduler.state.jobs["a"]
    wall_us = 7 * usual_seconds * SECOND
    record.progress = Progress(7 if usual_seconds else 0, lap_us=(wall_us, 0), wall_us=wall_us, since=1000)
    assert not hangs(record, 1000 + seconds * SECOND)
    assert hangs(record, 1001 + seconds * SECOND)
