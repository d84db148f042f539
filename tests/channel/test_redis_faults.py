"""A Redis store through what happens to servers: stalls, restarts, full memory, fail-over, wrong settings."""

import json
import logging
import multiprocessing
import os
import signal
import socket
import threading
import time

import pytest
import redis

from weaverl.channel.connections import check_server
from weaverl.channel.redis import RedisStore
from weaverl.channel.store import START, Append, Delete, Put, Trim
from weaverl.errors import FencedError, StoreRefusedError, StoreUnavailableError


def data(store, stream):
    return [entry.data for entry in store.read(stream, START)]


def fill(admin):
    """Give the server a memory limit that it is already over."""
    admin.set("weaverl:ballast", b"x" * 100_000)
    admin.config_set("maxmemory", 1_000_000)
    assert admin.info("memory")["used_memory"] > 1_000_000


def test_a_commit_to_a_stalled_server_is_applied_once(connect, server, in_thread):
    # PH-02: the answer comes after the client gave up waiting and asked again.
    store = connect(patience_seconds=20)
    store.commit([Append("s", b"warm")], producer="p", sequence=1)
    os.kill(server.pid, signal.SIGSTOP)
    answer = in_thread(lambda: store.commit([Append("s", b"once")], producer="p", sequence=2))
    time.sleep(1.0)  # three times the client's patience with one answer
    os.kill(server.pid, signal.SIGCONT)
    answer()
    assert data(store, "s") == [b"warm", b"once"]


def test_a_lease_asked_for_in_a_stall_is_given_once(connect, server, in_thread):
    # PH-02: a repeated acquire must not raise the token past the one its holder knows.
    store = connect(patience_seconds=20)
    store.identity()
    os.kill(server.pid, signal.SIGSTOP)
    answer = in_thread(lambda: store.acquire_lease("leader", "a", 30))
    time.sleep(0.7)
    os.kill(server.pid, signal.SIGCONT)
    lease = answer()
    assert lease.token == 1
    assert store.commit([], producer="p", sequence=1, guard=lease)


def test_a_stall_longer_than_the_lease_leaves_one_holder(connect, server, in_thread):
    # PH-08
    first, second = connect(patience_seconds=20), connect(patience_seconds=20)
    lease = first.acquire_lease("leader", "a", 0.3)
    os.kill(server.pid, signal.SIGSTOP)
    answers = [in_thread(lambda s=s, o=o: s.acquire_lease("leader", o, 30)) for s, o in ((first, "a"), (second, "b"))]
    time.sleep(0.5)
    os.kill(server.pid, signal.SIGCONT)
    holders = [held for held in (answer() for answer in answers) if held is not None]
    assert len(holders) == 1
    assert holders[0].token == 2
    with pytest.raises(FencedError):
        first.commit([], producer="p", sequence=1, guard=lease)


def test_a_stall_beyond_the_patience_is_told(connect, server):
    # RD-08: silence ends in an error, in bounded time.
    store = connect(patience_seconds=0.5, socket_timeout_seconds=0.2)
    store.identity()
    os.kill(server.pid, signal.SIGSTOP)
    started = time.monotonic()
    with pytest.raises(StoreUnavailableError, match="did not answer for"):
        store.get("k")
    assert 0.5 <= time.monotonic() - started < 2
    os.kill(server.pid, signal.SIGCONT)
    assert store.get("k") is None


def test_a_host_that_takes_connections_and_says_nothing_is_noticed():
    # RD-08
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"redis://127.0.0.1:{mute.getsockname()[1]}/0"
        store = RedisStore.from_url(url, password="x", patience_seconds=0.3, socket_timeout_seconds=0.1)
        with pytest.raises(StoreUnavailableError):
            store.read("s", START, wait_seconds=10)


def test_a_wait_longer_than_the_socket_timeout_is_no_failure(connect):
    # PH-11
    store = connect(patience_seconds=0.0, socket_timeout_seconds=0.3)
    assert store.read("s", START, wait_seconds=0.7) == []


def test_a_server_busy_with_a_script_is_waited_for(connect, admin, in_thread):
    # PH-08: BUSY is an answer, not a lost connection.
    store = connect()
    admin.config_set("busy-reply-threshold", 20)
    now = "(function() local t = redis.call('TIME') return t[1] * 1000 + t[2] / 1000 end)()"
    loop = f"local start = {now} repeat until {now} - start > 600"
    answer = in_thread(lambda: admin.eval(loop, 0))
    time.sleep(0.1)
    assert store.commit([Append("s", b"1")], producer="p", sequence=1)
    answer()
    assert data(store, "s") == [b"1"]


def test_nothing_acknowledged_is_lost_when_the_server_is_killed(connect, server, in_thread):
    store = connect(patience_seconds=20)
    acknowledged, stop = [], threading.Event()

    def commit_until_stopped():
        sequence = 0
        while not stop.is_set():
            sequence += 1
            store.commit([Append("s", b"%d" % sequence)], producer="p", sequence=sequence)
            acknowledged.append(b"%d" % sequence)

    answer = in_thread(commit_until_stopped)
    for _ in range(2):
        time.sleep(0.15)
        os.kill(server.pid, signal.SIGKILL)
        while server.alive():
            time.sleep(0.005)
        server.start()
    time.sleep(0.15)
    stop.set()
    answer()
    entries = store.read("s", START, limit=100_000)
    assert [entry.data for entry in entries] == acknowledged
    assert len(acknowledged) > 10


def test_a_lease_and_its_token_outlive_a_restart(connect, server):
    store = connect()
    lease = store.acquire_lease("leader", "a", 60)
    identity = store.identity()
    os.kill(server.pid, signal.SIGKILL)
    while server.alive():
        time.sleep(0.005)
    server.start()
    assert store.renew_lease(lease, 60)
    assert store.acquire_lease("leader", "b", 60) is None
    assert store.identity().run_id != identity.run_id
    assert store.identity().offset == identity.offset


def test_a_waiting_reader_outlives_a_restart(connect, server, in_thread):
    store, other = connect(patience_seconds=20), connect(patience_seconds=20)
    answer = in_thread(lambda: store.read("s", START, wait_seconds=20))
    server.stop()
    server.start()
    other.commit([Append("s", b"1")], producer="p", sequence=1)
    assert [entry.data for entry in answer()] == [b"1"]


def test_a_record_sent_while_the_readers_connection_was_cut_is_read(connect, admin, in_thread, await_true):
    # PH-10, PH-11: a wake-up cannot be lost, a record cannot be taken by a dead client.
    store, other = connect(), connect()
    answer = in_thread(lambda: store.read("s", START, wait_seconds=20))
    await_true(lambda: admin.info("clients")["blocked_clients"] == 1)
    admin.client_kill_filter(_type="normal", skipme=True)
    other.commit([Append("s", b"1")], producer="p", sequence=1)
    assert [entry.data for entry in answer()] == [b"1"]
    assert data(store, "s") == [b"1"]


def test_killed_connections_are_replaced_without_a_word(connect, admin, caplog):
    store = connect()
    store.identity()
    admin.client_kill_filter(_type="normal", skipme=True)
    assert store.commit([Append("s", b"1")], producer="p", sequence=1)
    assert caplog.records == []


def test_scripts_unknown_to_the_server_are_sent_again(connect, admin):
    store = connect()
    store.commit([], producer="p", sequence=1)
    admin.script_flush()
    assert store.commit([Append("s", b"1")], producer="p", sequence=2)
    assert data(store, "s") == [b"1"]


def test_one_line_an_outage_and_one_when_it_is_over(connect, server, in_thread, caplog):
    # RD-07
    caplog.set_level(logging.INFO, logger="weaverl.channel")
    store = connect(patience_seconds=20)
    store.identity()
    server.stop()
    answers = [in_thread(lambda n=n: store.get(f"k{n}")) for n in range(4)]
    time.sleep(0.3)
    server.start()
    for answer in answers:
        answer()
    first, last = [record.getMessage() for record in caplog.records]
    assert "does not answer" in first
    assert "is back after" in last


def test_many_clients_come_back_without_a_stampede(connect, server, in_thread):
    # RD-07: fewer places than clients, so that some are turned away by an error text at first.
    stores = [connect(patience_seconds=20) for _ in range(24)]
    for store in stores:
        store.identity()
    server.stop()

    def commit_and_leave(number, store):
        applied = store.commit([], producer=f"p{number}", sequence=1)
        store.close()
        return applied

    answers = [in_thread(lambda n=n, s=s: commit_and_leave(n, s)) for n, s in enumerate(stores)]
    time.sleep(1.0)
    server.start()
    with redis.Redis.from_url(server.url, password=server.password) as admin:
        admin.config_set("maxclients", 12)
        assert all(answer() for answer in answers)
        stats = admin.info("stats")
    assert stats["total_connections_received"] < 24 * 12


def test_a_full_store_refuses_a_commit_whole(connect, admin):
    # PH-05
    store = connect()
    store.commit([Put("k", b"old"), Append("s", b"old")], producer="p", sequence=1)
    fill(admin)
    with pytest.raises(StoreRefusedError, match="store is full"):
        store.commit([Delete("k"), Append("s", b"new"), Put("k2", b"new")], producer="p", sequence=2)
    assert (store.get("k"), data(store, "s"), store.get("k2")) == (b"old", [b"old"], None)
    assert store.last_sequence("p") == 1
    admin.config_set("maxmemory", 0)
    assert store.commit([Append("s", b"new")], producer="p", sequence=2)


def test_leases_are_kept_given_back_and_taken_in_a_full_store(connect, admin):
    # PH-05: acquiring is let through too, or nobody could take over and make room.
    store = connect()
    lease = store.acquire_lease("leader", "a", 30)
    fill(admin)
    assert store.renew_lease(lease, 30)
    assert store.release_lease(lease)
    assert store.acquire_lease("leader", "b", 30).token == 2


def test_room_can_be_made_in_a_full_store(connect, admin):
    store = connect()
    store.commit([Append("s", b"x" * 1000), Append("s", b"2"), Put("k", b"v")], producer="p", sequence=1)
    lease = store.acquire_lease("leader", "a", 30)
    fill(admin)
    first = store.read("s", START)[0]
    assert store.commit([Trim("s", first.position), Delete("k")], producer="p", sequence=2, guard=lease)
    assert (data(store, "s"), store.get("k")) == ([b"2"], None)


def test_a_repeat_is_known_in_a_full_store(connect, admin):
    store = connect()
    store.commit([Append("s", b"1")], producer="p", sequence=1)
    fill(admin)
    assert not store.commit([Append("s", b"1")], producer="p", sequence=1)


@pytest.mark.parametrize(
    "policy", ["volatile-lru", "volatile-lfu", "volatile-ttl", "volatile-random", "allkeys-lru", "allkeys-random"]
)
def test_an_evicting_server_is_refused_at_connect_and_at_reconnect(connect, admin, policy):
    # PH-04
    store = connect()
    store.identity()
    admin.config_set("maxmemory-policy", policy)
    with pytest.raises(StoreRefusedError, match=f"maxmemory-policy {policy}"):
        connect().identity()
    admin.client_kill_filter(_type="normal", skipme=True)
    with pytest.raises(StoreRefusedError, match="set maxmemory-policy noeviction"):
        store.commit([], producer="p", sequence=1)


def test_a_demoted_server_counts_as_lost_until_it_leads_again(connect, admin, in_thread):
    # RD-01
    store = connect(patience_seconds=20)
    lease = store.acquire_lease("leader", "a", 60)
    admin.replicaof("127.0.0.1", "1")
    answers = [
        in_thread(lambda: store.commit([Append("s", b"1")], producer="p", sequence=1, guard=lease)),
        in_thread(lambda: store.renew_lease(lease, 60)),
        in_thread(lambda: store.acquire_lease("leader", "b", 60)),
    ]
    time.sleep(0.3)
    admin.replicaof("NO", "ONE")
    assert [answer() for answer in answers] == [True, True, None]
    assert data(store, "s") == [b"1"]


def test_no_lease_is_trusted_from_a_replica(connect, admin):
    # RD-01: the demoted server still has the old lease, and would still answer.
    store = connect(patience_seconds=0.2)
    lease = store.acquire_lease("leader", "a", 60)
    store.commit([], producer="p", sequence=1)
    admin.replicaof("127.0.0.1", "1")
    for call in (
        lambda: store.renew_lease(lease._replace(token=9), 60),
        lambda: store.acquire_lease("leader", "b", 60),
        lambda: store.commit([], producer="p", sequence=1),
        lambda: store.identity(),
    ):
        with pytest.raises(StoreUnavailableError, match="replica"):
            call()


def test_a_waiting_reader_leaves_a_demoted_server(connect, admin, in_thread, await_true):
    store = connect(patience_seconds=0.2)
    answer = in_thread(lambda: store.read("s", START, wait_seconds=20))
    await_true(lambda: admin.info("clients")["blocked_clients"] == 1)
    admin.replicaof("127.0.0.1", "1")
    with pytest.raises(StoreUnavailableError, match="replica"):
        answer()


def test_a_lease_lost_in_a_fail_over_guards_nothing(connect, admin):
    # RD-02: the new primary never heard of the lease and hands out the same token.
    store = connect()
    old = store.acquire_lease("leader", "a", 60)
    admin.flushall()
    new = store.acquire_lease("leader", "b", 60)
    assert old.token == new.token
    with pytest.raises(FencedError):
        store.commit([Append("s", b"old")], producer="a", sequence=1, guard=old)
    assert store.commit([Append("s", b"new")], producer="b", sequence=1, guard=new)


def test_lost_writes_show_in_the_identity(connect, admin):
    store = connect()
    store.commit([], producer="p", sequence=1)
    before = store.identity()
    admin.flushall()
    assert store.identity().offset < before.offset


def test_a_lease_that_a_clock_jump_made_immortal_is_taken_over(connect, admin):
    # PH-07: the jump back is played by an end far in the future; the holder is dead.
    store = connect()
    old = store.acquire_lease("leader", "a", 0.1)
    admin.pexpire("weaverl:lease:leader", 3_600_000)
    assert store.acquire_lease("leader", "b", 30) is None
    time.sleep(0.1)
    assert store.acquire_lease("leader", "b", 30) is None
    time.sleep(0.15)
    assert store.acquire_lease("leader", "b", 30).token == 2
    with pytest.raises(FencedError):
        store.commit([], producer="a", sequence=1, guard=old)


def test_a_renewing_holder_is_not_taken_over(connect, admin):
    store, other = connect(), connect()
    lease = store.acquire_lease("leader", "a", 0.1)
    admin.pexpire("weaverl:lease:leader", 3_600_000)
    for _ in range(5):
        assert other.acquire_lease("leader", "b", 30) is None
        time.sleep(0.06)
        assert store.renew_lease(lease, 0.1)


def test_leases_ended_by_a_forward_jump_leave_one_holder(connect, admin):
    # PH-07: all ends are past at once; both ask again, one gets it.
    store = connect()
    old = store.acquire_lease("leader", "a", 60)
    admin.pexpire("weaverl:lease:leader", 1)
    time.sleep(0.01)
    assert not store.renew_lease(old, 60)
    new = store.acquire_lease("leader", "b", 60)
    assert (new.token, store.acquire_lease("leader", "a", 60)) == (2, None)


def test_a_user_confined_to_its_keys_writes_there_and_nowhere_else(connect, admin, server):
    keys = "~weaverl:commits ~weaverl:key:producer:job-1 ~weaverl:stream:events ~weaverl:stream:inbox/job-1"
    admin.execute_command("ACL", "SETUSER", "job-1", "on", ">pw", *keys.split(), "+@all", "-@dangerous", "+info")
    store = RedisStore.from_url(server.url, username="job-1", password="pw", patience_seconds=5)
    assert store.commit([Append("events", b"1")], producer="job-1", sequence=1)
    assert data(store, "events") == [b"1"]
    with pytest.raises(StoreRefusedError, match="permission"):
        store.commit([Append("events", b"2"), Append("inbox/job-2", b"2")], producer="job-1", sequence=2)
    assert data(store, "events") == [b"1"]
    with pytest.raises(StoreRefusedError, match="permission"):
        store.read("inbox/job-2", START)


def test_a_wrong_password_is_refused_without_waiting(server):
    store = RedisStore.from_url(server.url, password="wrong", patience_seconds=60)
    with pytest.raises(StoreRefusedError, match="password"):
        store.identity()


@pytest.mark.parametrize(
    ("info", "words"),
    [
        ({"redis_version": "6.2.14"}, "version 6.2.14"),
        ({"redis_version": "7.2.4", "redis_mode": "cluster"}, "cluster mode"),
        ({"redis_version": "7.2.4", "server_mode": "cluster"}, "cluster mode"),
        ({"redis_version": "7.2.4", "redis_mode": "sentinel"}, "sentinel mode"),
        ({"redis_version": "8.0.0", "maxmemory_policy": "allkeys-lfu"}, "allkeys-lfu"),
    ],
)
def test_a_server_that_never_will_do_is_refused(info, words):
    with pytest.raises(StoreRefusedError, match=words):
        check_server(info)


@pytest.mark.parametrize("info", [{"role": "slave"}, {"loading": "1"}])
def test_a_server_that_may_do_later_is_waited_for(info):
    with pytest.raises(redis.ConnectionError):
        check_server({"redis_version": "7.2.4"} | info)


def read_own_key(store, number, answers):
    values = {store.get(f"k{number}") for _ in range(500)}
    answers.put((number, json.dumps(sorted(value.decode() for value in values))))


def test_forked_children_never_get_each_others_answers(connect):
    # PH-13
    store = connect()
    store.commit([Put(f"k{n}", b"value %d" % n) for n in range(4)], producer="p", sequence=1)
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    children = [context.Process(target=read_own_key, args=(store, n, answers)) for n in range(4)]
    for child in children:
        child.start()
    assert {store.get("k0") for _ in range(500)} == {b"value 0"}
    for child in children:
        child.join(30)
    got = dict(answers.get() for _ in children)
    assert got == {n: json.dumps([f"value {n}"]) for n in range(4)}
