"""Permits as ranks see them: asked once, granted in turns, given back whatever happens (design 6.1)."""

import _thread
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path

import pytest
from in_process import InProcessCluster, Worker, node_of, spec_of

from weaverl.channel import names
from weaverl.channel.memory import InMemoryStore
from weaverl.channel.sender import Sender
from weaverl.channel.store import Append
from weaverl.channel.wire import WireError, decode_event, encode_command
from weaverl.domain.cluster import PoolKind, Slot
from weaverl.domain.commands import GrantPermit, VacateSlot
from weaverl.domain.events import PermitRequested, PhaseEnded, PhaseReport, RankId, SlotVacated, Token
from weaverl.domain.jobs import PhaseKind
from weaverl.errors import ControllerLostError, FencedError, PhaseError
from weaverl.runtime.permits import PermitClient

ROLLOUT, TRAINING = PhaseKind.ROLLOUT, PhaseKind.TRAINING


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[InProcessCluster]:
    made = InProcessCluster(tmp_path)
    yield made
    made.close()


class Nothing:
    """A slot owner without state."""

    def vacate(self, token: Token) -> PhaseReport:
        return PhaseReport()

    def decline(self, grant: GrantPermit) -> bool:
        return True


def client_of(store: InMemoryStore, number: int = 0, patience: float = 60.0) -> PermitClient:
    client = PermitClient(store, RankId("a", 1, "rollout", number), Nothing(), patience)
    client.start(1)
    return client


def grant_to(store: InMemoryStore, number: int, iteration: int, counter: int, ranks: int = 1) -> None:
    grant = GrantPermit(
        job="a",
        attempt=1,
        role="rollout",
        token=Token(1, counter),
        phase=ROLLOUT,
        pool=PoolKind.ROLLOUT,
        iteration=iteration,
        slots=(Slot("r0", 0),),
        ranks=ranks,
        vacate=False,
    )
    inbox = names.rank_inbox(RankId("a", 1, "rollout", number))
    Sender(store, "controller").commit([Append(inbox, encode_command(grant))])


def events_of(store: InMemoryStore, kind: type) -> list:
    found = [decode_event(entry.data) for entry in store.read(names.EVENTS, "0-0")]
    return [event for event in found if isinstance(event, kind)]


def acquire(client: PermitClient, iteration: int) -> GrantPermit:
    return client.acquire(client.want(ROLLOUT, PoolKind.ROLLOUT, iteration))


def test_two_jobs_take_turns_on_one_slot_and_never_overlap(cluster):
    cluster.submit(spec_of("a"), spec_of("b"))
    holders, most = [], []

    def rollouts(name: str) -> None:
        job = cluster.rank(name, "rollout")
        for _ in range(4):
            with job.open_phase(ROLLOUT, PoolKind.ROLLOUT):
                holders.append(name)
                most.append(len(holders))
                holders.remove(name)
        cluster.end(name)

    workers = [Worker(lambda name=name: rollouts(name)) for name in "ab"]
    for worker in workers:
        worker.result()
    assert most == [1] * 8
    assert sorted(cluster.grants()) == [(name, ROLLOUT, iteration) for name in "ab" for iteration in range(4)]


def test_the_permit_of_a_body_that_raises_goes_back_and_says_that_it_failed(cluster):
    cluster.submit(spec_of("a"))
    job = cluster.rank("a", "rollout")
    with pytest.raises(ZeroDivisionError), job.open_phase(ROLLOUT, PoolKind.ROLLOUT):
        raise ZeroDivisionError
    with job.open_phase(ROLLOUT, PoolKind.ROLLOUT):
        pass
    assert [(event.iteration, event.failed) for event in cluster.told(PhaseEnded)] == [(0, True), (1, False)]


def test_the_inbox_of_a_rank_does_not_grow_with_its_phases(cluster):
    cluster.submit(spec_of("a"))
    job = cluster.rank("a", "rollout")
    for _ in range(6):
        with job.open_phase(ROLLOUT, PoolKind.ROLLOUT):
            pass
    assert len(cluster.grants()) == 6
    assert len(cluster.inbox(RankId("a", 1, "rollout", 0))) <= 2


def test_one_permit_opens_all_ranks_of_a_role_and_goes_back_when_the_last_has_left(tmp_path):
    cluster = InProcessCluster(tmp_path, node_of("r0", devices=2), node_of("t0", devices=2))
    cluster.submit(spec_of("a", gpus=2, processes=2), spec_of("b", gpus=2, processes=2))
    inside, let_last_go = threading.Barrier(3), threading.Event()

    def rollout(number: int) -> None:
        with cluster.rank("a", "rollout", number).open_phase(ROLLOUT, PoolKind.ROLLOUT):
            inside.wait(5)
            if number == 1:
                let_last_go.wait(5)

    ranks = [Worker(lambda number=number: rollout(number)) for number in (0, 1)]
    inside.wait(5)
    ranks[0].result()
    others = [cluster.rank("b", "rollout", number) for number in (0, 1)]

    def other(number: int) -> None:
        with others[number].open_phase(ROLLOUT, PoolKind.ROLLOUT):
            pass

    waiting = [Worker(lambda number=number: other(number)) for number in (0, 1)]
    cluster.until(lambda: len(cluster.told(PermitRequested)) == 2)
    assert cluster.grants() == [("a", ROLLOUT, 0)]
    let_last_go.set()
    for worker in waiting:
        worker.result()
    assert cluster.grants() == [("a", ROLLOUT, 0), ("b", ROLLOUT, 0)]
    assert [event.rank.rank for event in cluster.told(PhaseEnded) if event.rank.job == "a"] == [0, 1]
    cluster.close()


def test_a_rank_that_enters_another_phase_than_its_role_was_granted_is_told_so_and_gives_the_permit_back():
    store = InMemoryStore()
    client = client_of(store, number=1)
    grant_to(store, 1, iteration=0, counter=1, ranks=2)
    with pytest.raises(PhaseError, match="entered rollout 3 while its role was granted rollout 0"):
        acquire(client, 3)
    assert [(event.token, event.failed) for event in events_of(store, PhaseEnded)] == [(Token(1, 1), True)]


def test_a_rank_that_comes_late_finds_its_grant():
    store = InMemoryStore()
    client = client_of(store, number=1)
    grant_to(store, 1, iteration=0, counter=1, ranks=2)
    InProcessCluster.until(lambda: bool(client._early))
    assert acquire(client, 0).token == Token(1, 1)


def test_a_grant_that_nobody_waits_for_any_more_is_given_back_and_the_next_phase_gets_its_own():
    store = InMemoryStore()
    client = client_of(store)
    wanted = client.want(ROLLOUT, PoolKind.ROLLOUT, 0)
    waiting = Worker(lambda: client.acquire(wanted))
    InProcessCluster.until(lambda: len(events_of(store, PermitRequested)) == 1)
    client.abandon(wanted)
    with pytest.raises(CancelledError):
        waiting.result()
    grant_to(store, 0, iteration=0, counter=1)
    InProcessCluster.until(lambda: len(events_of(store, PhaseEnded)) == 1)
    waiting = Worker(lambda: acquire(client, 1))
    InProcessCluster.until(lambda: len(events_of(store, PermitRequested)) == 2)
    grant_to(store, 0, iteration=1, counter=2)
    assert waiting.result().token == Token(1, 2)
    ended = events_of(store, PhaseEnded)
    assert [(event.token, event.failed, event.vacated) for event in ended] == [(Token(1, 1), True, True)]


def test_after_the_patience_without_a_controller_the_wait_ends():
    client = client_of(InMemoryStore(), patience=0.05)
    with pytest.raises(ControllerLostError, match="no controller has led for 0 s"):
        acquire(client, 0)


def test_a_rank_whose_attempt_is_revoked_while_it_waits_stops_waiting(cluster):
    cluster.submit(spec_of("a"), spec_of("b"))
    first, second = cluster.rank("a", "rollout"), cluster.rank("b", "rollout")
    with first.open_phase(ROLLOUT, PoolKind.ROLLOUT):
        waiting = Worker(lambda: second.open_phase(ROLLOUT, PoolKind.ROLLOUT).__enter__())
        cluster.until(lambda: len(cluster.told(PermitRequested)) == 2)
        cluster.revoke("b")
        with pytest.raises(FencedError, match="attempt 1 of b was given up"):
            waiting.result()


def test_a_rank_that_slept_over_its_revocation_stops_at_its_next_side_effect(cluster):
    cluster.submit(spec_of("a"))
    job = cluster.rank("a", "rollout")
    with job.open_phase(ROLLOUT, PoolKind.ROLLOUT):
        cluster.revoke("a")
        with pytest.raises(FencedError):
            job.check()
    ran = []
    with pytest.raises(FencedError), job.open_phase(ROLLOUT, PoolKind.ROLLOUT):
        ran.append(1)
    assert not ran


def test_while_the_controller_is_away_holders_finish_and_the_next_phase_waits_for_the_new_one(cluster):
    cluster.submit(spec_of("a"), spec_of("b"))
    first, second = cluster.rank("a", "rollout"), cluster.rank("b", "rollout")

    def rollout(job) -> None:
        with job.open_phase(ROLLOUT, PoolKind.ROLLOUT):
            pass

    with first.open_phase(ROLLOUT, PoolKind.ROLLOUT):
        cluster.stop_controller()
    waiting = Worker(lambda: rollout(second))
    cluster.until(lambda: len(cluster.told(PermitRequested)) == 2)
    again = Worker(lambda: rollout(first))
    cluster.until(lambda: len(cluster.told(PermitRequested)) == 3)
    assert waiting.is_alive() and cluster.grants() == [("a", ROLLOUT, 0)]
    cluster.start_controller()
    waiting.result()
    again.result()
    assert sorted(cluster.grants()) == [("a", ROLLOUT, 0), ("a", ROLLOUT, 1), ("b", ROLLOUT, 0)]
    epochs = [grant.token.epoch for grant in cluster.commands(GrantPermit)]
    assert epochs[0] < epochs[1] == epochs[2]


def test_a_demand_for_slots_that_are_clean_is_answered_at_once(cluster):
    cluster.submit(spec_of("a"))
    job = cluster.rank("a", "rollout")
    demand = VacateSlot(job="a", attempt=1, role="rollout", token=Token(0, 7), slots=(Slot("r0", 0),), ranks=1)
    with job.open_phase(ROLLOUT, PoolKind.ROLLOUT):
        cluster.forge(RankId("a", 1, "rollout", 0), demand)
        cluster.until(lambda: bool(cluster.told(SlotVacated)))
    answer = cluster.told(SlotVacated)[0]
    assert (answer.token, answer.report) == (Token(0, 7), PhaseReport())


def test_what_breaks_the_listening_thread_reaches_the_phase_that_waits():
    store = InMemoryStore()
    client = client_of(store)
    waiting = Worker(lambda: acquire(client, 0))
    InProcessCluster.until(lambda: len(events_of(store, PermitRequested)) == 1)
    Sender(store, "controller").commit([Append(names.rank_inbox(RankId("a", 1, "rollout", 0)), b"damage")])
    with pytest.raises(WireError):
        waiting.result()
    with pytest.raises(WireError):
        acquire(client, 1)


def test_an_interrupt_while_a_phase_waits_leaves_no_permit_behind(cluster):
    cluster.submit(spec_of("a"), spec_of("b"))
    job, other = cluster.rank("a", "rollout"), cluster.rank("b", "rollout")

    def interrupt() -> None:
        cluster.until(lambda: len(cluster.told(PermitRequested)) == 2)
        _thread.interrupt_main()

    with other.open_phase(ROLLOUT, PoolKind.ROLLOUT):
        interrupting = Worker(interrupt)
        with pytest.raises(KeyboardInterrupt), job.open_phase(ROLLOUT, PoolKind.ROLLOUT):
            raise AssertionError("the body must not run")
        interrupting.result()
    cluster.end("b")
    with job.open_phase(ROLLOUT, PoolKind.ROLLOUT):
        pass
    ended = [(event.iteration, event.failed) for event in cluster.told(PhaseEnded) if event.rank.job == "a"]
    assert ended == [(0, True), (1, False)]


def test_what_was_asked_in_vain_is_given_back_when_a_controller_leads_again(cluster):
    cluster.submit(spec_of("a"))
    job = cluster.rank("a", "rollout", outage_patience_seconds=0.1)
    cluster.stop_controller()
    with pytest.raises(ControllerLostError), job.open_phase(ROLLOUT, PoolKind.ROLLOUT):
        raise AssertionError("the body must not run")
    cluster.start_controller()
    with job.open_phase(ROLLOUT, PoolKind.ROLLOUT):
        pass
    assert [(event.iteration, event.failed) for event in cluster.told(PhaseEnded)] == [(0, True), (1, False)]
