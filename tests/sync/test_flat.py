"""Flat sync between real processes over gloo: whole on every rank or on none (field cases WS)."""

import os
import signal
import threading
from contextlib import ExitStack

import pytest
import torch
from ranks import Rank
from torch.distributed import HashStore

from weaverl.errors import WeightSyncError
from weaverl.sync.flat import FlatSync
from weaverl.sync.manifest import Manifest

ZEROS = {"a": ([0.0] * 20, "float32"), "b": ([0.0] * 20, "float32"), "c": ([0.0] * 20, "bfloat16")}
ONES = {"a": ([1.0] * 20, "float32"), "b": ([2.0] * 20, "float32"), "c": ([3.0] * 20, "bfloat16")}


@pytest.fixture
def ranks():
    with ExitStack() as stack:

        def start(receivers, first=None, **options):
            sender = Rank(0, receivers, 0, **options)
            others = [Rank(k + 1, receivers, sender.port, **(first or {}), **options) for k in range(receivers)]
            started = [sender, *others]
            for rank in started:
                stack.callback(rank.close)
            return started

        yield start


def together(ranks, *steps):
    for rank, step in zip(ranks, steps, strict=True):
        rank.tell(**step)
    return [rank.result() for rank in ranks]


def test_every_rank_has_every_tensor_and_later_versions_follow(ranks):
    group = ranks(2)
    pull = {"do": "pull", "model": ZEROS}
    sent, first, second = together(group, {"do": "push", "model": ONES}, pull, pull)
    assert sent["error"] == first["error"] == second["error"] == ""
    assert first["model"] == second["model"] == sent["model"]
    doubled = {name: ([2 * value for value in values], dtype) for name, (values, dtype) in ONES.items()}
    sent, first, second = together(group, {"do": "push", "model": doubled}, {"do": "pull"}, {"do": "pull"})
    assert [report["version"] for report in (sent, first, second)] == [2, 2, 2]
    assert first["model"] == second["model"] == {"a": [2.0] * 20, "b": [4.0] * 20, "c": [6.0] * 20}


def test_other_order_of_names_does_not_swap_contents(ranks):
    group = ranks(1)
    swapped = {"do": "pull", "model": {name: ZEROS[name] for name in ("c", "b", "a")}}
    _, received = together(group, {"do": "push", "model": ONES}, swapped)
    assert received["model"]["a"] == [1.0] * 20
    assert received["model"]["b"] == [2.0] * 20


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"a": ([0.0] * 20, "float16")}, "a (sent float32 [20], wanted float16 [20])"),
        ({"a": ([0.0] * 21, "float32")}, "a (sent float32 [20], wanted float32 [21])"),
        ({"d": ([0.0], "float32")}, "missing d; unexpected none"),
    ],
)
def test_disagreement_is_told_on_both_sides_with_nothing_applied_and_the_next_sync_works(ranks, change, message):
    group = ranks(2)
    sent, agreeing, refusing = together(
        group,
        {"do": "push", "model": ONES},
        {"do": "pull", "model": ZEROS},
        {"do": "pull", "model": ZEROS | change},
    )
    assert message in sent["error"]
    assert "rollout rank 1 refused" in sent["error"]
    assert message in refusing["error"]
    assert "rollout rank 1 refused" in agreeing["error"]
    assert [report["version"] for report in (sent, agreeing, refusing)] == [0, 0, 0]
    assert agreeing["model"]["a"] == [0.0] * 20
    pull = {"do": "pull", "model": ZEROS}
    assert [report["version"] for report in together(group, {"do": "push"}, pull, pull)] == [1, 1, 1]


def test_receiver_killed_in_the_middle_fails_the_sync_by_name_and_a_new_one_joins_the_next(ranks):
    group = ranks(2, chunk=64)
    sender, survivor, victim = group
    pull = {"do": "pull", "model": ZEROS}
    together(group, {"do": "push", "model": ONES}, pull, pull)
    doubled = {name: ([9.0] * len(values), dtype) for name, (values, dtype) in ONES.items()}
    sender.tell(do="push", model=doubled)
    survivor.tell(do="pull")
    victim.tell(do="pull", signal_at=2)
    sent, survived = sender.result(), survivor.result()
    assert "rollout rank 1 takes no more bytes" in sent["error"] or "rollout rank 1 did not answer" in sent["error"]
    assert sent["seconds"] < 11
    assert "rollout rank 1" in survived["error"]
    assert survived["version"] == 1
    assert survived["model"]["a"] == [1.0] * 20
    replacement = Rank(2, 2, sender.port)
    try:
        reports = together([sender, survivor, replacement], {"do": "push"}, {"do": "pull"}, pull)
        assert [report["error"] for report in reports] == ["", "", ""]
        assert [report["version"] for report in reports] == [2, 2, 2]
        assert reports[1]["model"] == reports[2]["model"] == {name: [9.0] * 20 for name in "abc"}
    finally:
        replacement.close()


def test_receiver_frozen_in_the_middle_is_named_within_the_set_time_and_takes_the_next_sync(ranks):
    group = ranks(2, timeout=1.0)
    sender, survivor, frozen = group
    sender.tell(do="push", model=ONES)
    survivor.tell(do="pull", model=ZEROS)
    frozen.tell(do="pull", model=ZEROS, signal_at=2, signal=signal.SIGSTOP)
    sent, survived = sender.result(), survivor.result()
    os.kill(frozen.process.pid, signal.SIGCONT)
    woken = frozen.result()
    assert "rollout rank 1 did not answer (verified)" in sent["error"] or "rollout rank 1 takes no" in sent["error"]
    assert sent["seconds"] < 4
    assert all("rollout rank 1" in report["error"] for report in (survived, woken))
    assert woken["model"]["a"] == [0.0] * 20
    reports = together(group, {"do": "push"}, {"do": "pull"}, {"do": "pull"})
    assert [report["version"] for report in reports] == [1, 1, 1]


def test_sender_killed_in_the_middle_fails_every_receiver_with_rank_and_tensor(ranks):
    sender, *receivers = ranks(2)
    for receiver in receivers:
        receiver.tell(do="pull", model=ZEROS)
    sender.tell(do="push", model=ONES, signal_at=3)
    for receiver in receivers:
        report = receiver.result()
        assert "no more bytes come from training rank 0" in report["error"]
        assert "; at b, byte 192" in report["error"]
        assert report["model"]["a"] == [0.0] * 20
        assert report["seconds"] < 11


def test_damage_on_the_way_is_found_and_the_version_is_published_nowhere(ranks):
    group = ranks(2)
    sent, good, damaged = together(
        group,
        {"do": "push", "model": ONES},
        {"do": "pull", "model": ZEROS},
        {"do": "pull", "model": ZEROS, "damage_at": 2},
    )
    assert "rollout rank 1 refused: b arrived damaged" in sent["error"]
    assert [report["version"] for report in (sent, good, damaged)] == [0, 0, 0]
    assert good["model"]["a"] == [0.0] * 20
    reports = together(group, {"do": "push"}, {"do": "pull"}, {"do": "pull"})
    assert [report["version"] for report in reports] == [1, 1, 1]


def test_silent_receiver_is_named_within_the_set_time_and_the_next_sync_works(ranks):
    group = ranks(2, patience=1.0)
    pull = {"do": "pull", "model": ZEROS}
    sent, present = together(group[:2], {"do": "push", "model": ONES}, pull)
    assert sent["error"] == "WeightSyncError: rollout rank 1 did not answer (accepted) within 1 s"
    assert "rollout rank 1 did not answer" in present["error"]
    assert sent["seconds"] < 2
    reports = together(group, {"do": "push"}, pull, pull)
    assert [report["version"] for report in reports] == [1, 1, 1]


def test_receiver_whose_sender_never_comes_gives_up_within_the_set_time(ranks):
    group = ranks(1, patience=0.5)
    report = group[1].do(do="pull", model=ZEROS)
    assert report["error"] == "WeightSyncError: the training role sent no weights within 0.5 s"


def test_other_backend_on_one_side_is_told_in_seconds(ranks):
    group = ranks(1, first={"backend": "nccl"})
    sent, received = together(group, {"do": "push", "model": ONES}, {"do": "pull", "model": ZEROS})
    assert "training rank 0 speaks gloo (protocol 1), this rank nccl (protocol 1)" in sent["error"]
    assert received["seconds"] < 5


def test_float8_arrives_with_equal_bytes(ranks):
    group = ranks(1)
    values = [0.0, 1.0, -3.5, 448.0]
    _, received = together(
        group,
        {"do": "push", "model": {"w": (values, "float8_e4m3fn"), "scale": ([2.0], "float32")}},
        {"do": "pull", "model": {"w": ([0.0] * 4, "float8_e4m3fn"), "scale": ([0.0], "float32")}},
    )
    assert received["model"] == {"w": values, "scale": [2.0]}


def test_any_exception_of_a_receiver_before_bytes_move_ends_the_wait_of_the_sender():
    store = HashStore()
    sender, receiver = FlatSync(store, 0, 1), FlatSync(store, 1, 1)

    def fail(manifest):
        raise ValueError(f"no room for version {manifest.version}")

    def receive():
        with pytest.raises(ValueError, match="no room for version 1"):
            receiver.receive(fail)

    thread = threading.Thread(target=receive)
    thread.start()
    with pytest.raises(WeightSyncError, match="rollout rank 0 refused: ValueError: no room for version 1"):
        sender.send(Manifest(1, ()), torch.empty(0, dtype=torch.uint8))
    thread.join()
