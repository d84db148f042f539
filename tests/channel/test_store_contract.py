"""What every store does, whichever it is."""

import threading

import pytest

from weaverl.channel.store import START, Append, Delete, Lease, Put, Store, Trim, producer_key
from weaverl.errors import FencedError


def append(store: Store, stream: str, *records: bytes, producer: str = "p") -> None:
    store.commit(
        [Append(stream, record) for record in records], producer=producer, sequence=store.last_sequence(producer) + 1
    )


def data(store: Store, stream: str, after: str = START) -> list[bytes]:
    return [entry.data for entry in store.read(stream, after)]


def test_records_are_read_in_the_order_of_their_appends(store):
    append(store, "s", b"1", b"2")
    append(store, "s", b"3")
    assert data(store, "s") == [b"1", b"2", b"3"]


def test_values_of_any_bytes_come_back_as_they_were(store):
    record = bytes(range(256)) * 300
    store.commit([Append("s", record), Put("k", record), Put("empty", b"")], producer="p", sequence=1)
    assert (data(store, "s"), store.get("k"), store.get("empty")) == ([record], record, b"")


def test_reading_goes_on_after_a_position(store):
    append(store, "s", b"1", b"2", b"3")
    first, *_ = store.read("s", START, limit=1)
    assert data(store, "s", first.position) == [b"2", b"3"]


def test_a_read_takes_no_more_than_its_limit(store):
    append(store, "s", *[b"%d" % n for n in range(10)])
    assert len(store.read("s", START, limit=4)) == 4


def test_two_readers_see_every_record_each(store):
    append(store, "s", b"1")
    assert data(store, "s") == data(store, "s") == [b"1"]


def test_nothing_is_read_from_a_stream_that_never_was(store):
    assert store.read("none", START) == []
    assert store.read("none", START, wait_seconds=0.01) == []


def test_a_waiting_reader_wakes_for_a_record(store, in_thread):
    answer = in_thread(lambda: store.read("s", START, wait_seconds=20))
    append(store, "other", b"not this")
    append(store, "s", b"this")
    assert [entry.data for entry in answer()] == [b"this"]


def test_a_record_in_one_stream_does_not_end_the_wait_on_another(store, in_thread):
    answer = in_thread(lambda: store.read("s", START, wait_seconds=0.2))
    append(store, "other", b"1")
    assert answer() == []


def test_many_waiting_readers_delay_no_commit(bench, in_thread):
    answers = [in_thread(lambda: bench.store.read("s", START, wait_seconds=20)) for _ in range(8)]
    append(bench.store, "other", b"1")
    append(bench.store, "s", b"go")
    assert all([entry.data for entry in answer()] == [b"go"] for answer in answers)


def test_a_repeated_commit_is_applied_once(store):
    writes = [Append("s", b"1")]
    assert store.commit(writes, producer="p", sequence=1)
    assert not store.commit(writes, producer="p", sequence=1)
    assert data(store, "s") == [b"1"]


def test_a_late_commit_of_a_lower_sequence_is_dropped(store):
    assert store.commit([Append("s", b"2")], producer="p", sequence=2)
    assert not store.commit([Append("s", b"1")], producer="p", sequence=1)
    assert (data(store, "s"), store.last_sequence("p")) == ([b"2"], 2)


def test_sequences_of_two_producers_are_apart(store):
    assert store.commit([Append("s", b"p")], producer="p", sequence=5)
    assert store.commit([Append("s", b"q")], producer="q", sequence=1)
    assert (store.last_sequence("p"), store.last_sequence("q"), store.last_sequence("r")) == (5, 1, 0)


def test_sequences_are_compared_as_numbers(store):
    assert store.commit([], producer="p", sequence=9)
    assert store.commit([], producer="p", sequence=10)
    assert store.commit([], producer="p", sequence=2**53 - 1)
    assert store.last_sequence("p") == 2**53 - 1


def test_an_ended_producers_record_can_be_removed(store):
    store.commit([], producer="job-1", sequence=7)
    assert store.get_prefix(producer_key("")) == {producer_key("job-1"): b"7"}
    store.commit([Delete(producer_key("job-1"))], producer="controller", sequence=1)
    assert store.last_sequence("job-1") == 0


def test_a_commit_writes_everything_together(store):
    append(store, "s", b"old")
    position = store.read("s", START)[-1].position
    store.commit([Put("gone", b"1")], producer="p", sequence=2)
    store.commit(
        [Append("s", b"new"), Put("k", b"v"), Delete("gone"), Trim("s", position), Append("t", b"1")],
        producer="p",
        sequence=3,
    )
    assert (data(store, "s"), data(store, "t")) == ([b"new"], [b"1"])
    assert (store.get("k"), store.get("gone")) == (b"v", None)


def test_a_key_and_a_stream_may_bear_the_same_name(store):
    store.commit([Put("n", b"value"), Append("n", b"record")], producer="p", sequence=1)
    assert (store.get("n"), data(store, "n")) == (b"value", [b"record"])
    store.commit([Delete("n")], producer="p", sequence=2)
    assert (store.get("n"), data(store, "n")) == (None, [])


def test_a_trim_drops_the_position_and_what_is_before(store):
    append(store, "s", b"1", b"2", b"3")
    second = store.read("s", START)[1]
    store.commit([Trim("s", second.position)], producer="q", sequence=1)
    assert data(store, "s") == [b"3"]


def test_positions_still_grow_after_a_stream_was_trimmed_empty(store):
    append(store, "s", b"1")
    last = store.read("s", START)[-1].position
    store.commit([Trim("s", last)], producer="q", sequence=1)
    append(store, "s", b"2")
    assert data(store, "s", last) == [b"2"]


def test_removing_what_is_not_there_is_no_error(store):
    assert store.commit([Delete("none"), Trim("none", "5-0")], producer="p", sequence=1)


def test_a_key_with_an_end_goes_away(bench):
    bench.store.commit([Put("k", b"v", ttl_seconds=0.5), Put("stays", b"v")], producer="p", sequence=1)
    assert bench.store.get("k") == b"v"
    bench.pass_seconds(0.6)
    assert (bench.store.get("k"), bench.store.get("stays")) == (None, b"v")
    assert bench.store.get_prefix("k") == {}


def test_a_key_put_again_without_an_end_stays(bench):
    bench.store.commit([Put("k", b"v", ttl_seconds=0.05)], producer="p", sequence=1)
    bench.store.commit([Put("k", b"w")], producer="p", sequence=2)
    bench.pass_seconds(0.08)
    assert bench.store.get("k") == b"w"


def test_keys_are_found_by_their_beginning_and_no_letter_is_a_pattern(store):
    writes = [Put(key, key.encode()) for key in ("job/a", "job/b", "jobs", "j*b/a", "j[o]b/a", "j\\b", "jö/ü")]
    store.commit(writes, producer="p", sequence=1)
    assert store.get_prefix("job/") == {"job/a": b"job/a", "job/b": b"job/b"}
    assert store.get_prefix("j*b") == {"j*b/a": b"j*b/a"}
    assert store.get_prefix("j[o]b") == {"j[o]b/a": b"j[o]b/a"}
    assert store.get_prefix("j\\") == {"j\\b": b"j\\b"}
    assert store.get_prefix("jö") == {"jö/ü": "jö/ü".encode()}


def test_more_keys_than_one_page_are_all_found(store):
    store.commit([Put(f"key/{n}", b"%d" % n) for n in range(2500)], producer="p", sequence=1)
    assert store.get_prefix("key/") == {f"key/{n}": b"%d" % n for n in range(2500)}


def test_leases_are_not_among_the_keys(store):
    store.acquire_lease("leader", "a", 30)
    assert store.get_prefix("") == {}


def test_a_lease_has_one_holder(store):
    assert store.acquire_lease("leader", "a", 30) == Lease("leader", 1, "a")
    assert store.acquire_lease("leader", "b", 30) is None
    assert store.acquire_lease("other", "b", 30) == Lease("other", 1, "b")


def test_the_owner_gets_its_lease_again_with_the_same_token(store):
    assert store.acquire_lease("leader", "a", 30) == store.acquire_lease("leader", "a", 30)


def test_tokens_grow_with_every_holder(bench):
    store = bench.store
    first = store.acquire_lease("leader", "a", 30)
    assert first is not None
    assert store.release_lease(first)
    second = store.acquire_lease("leader", "b", 0.05)
    assert second == Lease("leader", 2, "b")
    bench.pass_seconds(0.08)
    assert store.acquire_lease("leader", "b", 30) == Lease("leader", 3, "b")


def test_a_renewed_lease_outlives_its_first_end(bench):
    lease = bench.store.acquire_lease("leader", "a", 0.5)
    assert lease is not None
    assert bench.store.renew_lease(lease, 30)
    bench.pass_seconds(0.6)
    assert bench.store.acquire_lease("leader", "b", 30) is None


def test_an_expired_lease_cannot_be_renewed(bench):
    lease = bench.store.acquire_lease("leader", "a", 0.02)
    assert lease is not None
    bench.pass_seconds(0.04)
    assert not bench.store.renew_lease(lease, 30)
    assert not bench.store.release_lease(lease)


def test_a_late_release_leaves_the_next_holder_alone(bench):
    # RD-11
    late = bench.store.acquire_lease("leader", "a", 0.02)
    assert late is not None
    bench.pass_seconds(0.04)
    held = bench.store.acquire_lease("leader", "b", 30)
    assert held is not None
    assert not bench.store.release_lease(late)
    assert not bench.store.renew_lease(late, 30)
    assert bench.store.renew_lease(held, 30)


def test_the_holder_of_a_lease_may_commit(store):
    lease = store.acquire_lease("leader", "a", 30)
    assert store.commit([Append("s", b"1")], producer="p", sequence=1, guard=lease)


def test_an_ended_lease_guards_nothing_even_if_nobody_took_it(bench):
    lease = bench.store.acquire_lease("leader", "a", 0.02)
    bench.pass_seconds(0.04)
    with pytest.raises(FencedError):
        bench.store.commit([Append("s", b"1")], producer="p", sequence=1, guard=lease)


def test_of_two_leaders_the_older_writes_nothing(bench):
    # PH-01, PH-08: a holder that was frozen past its lease wakes and goes on.
    store = bench.store
    old = store.acquire_lease("leader", "a", 0.02)
    bench.pass_seconds(0.04)
    new = store.acquire_lease("leader", "b", 30)
    with pytest.raises(FencedError, match="token 1 is no longer held"):
        store.commit([Append("s", b"old"), Put("k", b"old")], producer="a", sequence=1, guard=old)
    assert store.commit([Append("s", b"new")], producer="b", sequence=1, guard=new)
    assert (data(store, "s"), store.get("k"), store.last_sequence("a")) == ([b"new"], None, 0)


def test_a_lease_of_another_owner_with_the_same_token_guards_nothing(store):
    # RD-02: after a fail-over that lost the lease, both may hold token 1.
    held = store.acquire_lease("leader", "b", 30)
    assert held is not None
    with pytest.raises(FencedError):
        store.commit([Append("s", b"1")], producer="a", sequence=1, guard=held._replace(owner="a"))
    assert not store.renew_lease(held._replace(owner="a"), 30)


def test_a_repeat_is_a_repeat_even_after_its_lease_ended(bench):
    lease = bench.store.acquire_lease("leader", "a", 0.5)
    bench.store.commit([Append("s", b"1")], producer="p", sequence=1, guard=lease)
    bench.pass_seconds(0.6)
    assert not bench.store.commit([Append("s", b"1")], producer="p", sequence=1, guard=lease)


def test_the_offset_counts_commits_and_a_repeat_does_not_count(store):
    before = store.identity()
    store.commit([Append("s", b"1")], producer="p", sequence=1)
    store.commit([Append("s", b"1")], producer="p", sequence=1)
    after = store.identity()
    assert (after.run_id, after.offset) == (before.run_id, before.offset + 1)


def test_another_handle_sees_what_was_committed(bench):
    append(bench.store, "s", b"1")
    other = bench.other_handle()
    assert data(other, "s") == [b"1"]
    other.close()


def test_a_closed_store_can_be_used_again(store):
    append(store, "s", b"1")
    store.close()
    store.close()
    assert data(store, "s") == [b"1"]


def test_commits_of_many_threads_are_all_there(store, in_thread):
    start = threading.Barrier(4)

    def commit_fifty(producer: str) -> None:
        start.wait()
        for sequence in range(1, 51):
            assert store.commit([Append("s", f"{producer}{sequence}".encode())], producer=producer, sequence=sequence)

    answers = [in_thread(lambda name=name: commit_fifty(name)) for name in "abcd"]
    for answer in answers:
        answer()
    entries = store.read("s", START)
    assert sorted(entry.data for entry in entries) == sorted(f"{p}{n}".encode() for p in "abcd" for n in range(1, 51))
    assert [e.data for e in entries if e.data.startswith(b"a")] == [f"a{n}".encode() for n in range(1, 51)]


def test_the_last_position_is_that_of_the_last_record(store):
    assert store.last_position("log") == START
    store.commit([Append("log", b"a"), Append("log", b"b")], producer="p", sequence=1)
    assert store.last_position("log") == store.read("log", START)[-1].position
