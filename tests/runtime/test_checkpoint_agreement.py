"""Ranks of a job that was killed between their writes go on from one iteration, of one and the same run."""

import itertools
import os
import shutil
import tempfile
import threading
from pathlib import Path

import pytest
from by_hand import run_by_hand
from hypothesis import given, settings
from hypothesis import strategies as st

from weaverl.channel.memory import InMemoryStore
from weaverl.domain.events import RankId
from weaverl.errors import CheckpointError, FencedError
from weaverl.runtime import job_checkpoints, session
from weaverl.runtime.checkpoint import load_checkpoint, save_checkpoint
from weaverl.runtime.checkpoint_agreement import StoreExchange, agreed_iteration
from weaverl.runtime.checkpoint_files import Found, find_checkpoints, set_newer_aside
from weaverl.runtime.environment import RankEnvironment
from weaverl.runtime.session import Job
from weaverl.runtime.unwoven import PlainCalls


def found(*whole, damaged=()):
    return Found(tuple(whole), (), tuple(damaged))


@pytest.mark.parametrize(
    ("has", "agreed"),
    [
        ([found(5, 4), found(5, 4)], 5),
        ([found(5, 4), found(4, 3)], 4),
        ([found(4, damaged=(5,)), found(5, 4)], 4),
        ([found(3, damaged=(5, 4)), Found((5, 4), (3, 2))], 3),
        ([found(5, 4), found()], None),
        ([found(5, 4), None], None),
        ([None, None], None),
    ],
)
def test_ranks_of_a_role_go_on_from_the_newest_iteration_that_is_whole_at_all(has, agreed):
    assert agreed_iteration({("training", rank): one for rank, one in enumerate(has)}) == agreed


def test_roles_agree_and_one_that_keeps_no_checkpoints_has_no_say():
    ranks = {("driver", 0): None, ("rollout", 0): found(6, 5), ("training", 0): found(7, 6), ("training", 1): found(6)}
    assert agreed_iteration(ranks) == 6
    assert agreed_iteration({**ranks, ("rollout", 0): None}) == 6
    assert agreed_iteration({**ranks, ("driver", 0): found()}) == 6


def test_a_role_that_may_have_been_about_to_write_its_first_makes_all_begin_at_the_start():
    training = {("training", 0): found(0), ("training", 1): found(0)}
    assert agreed_iteration({**training, ("rollout", 0): None}) == 0
    assert agreed_iteration({**training, ("rollout", 0): found()}) is None
    training = {("training", 0): found(1, 0), ("training", 1): found(0)}
    assert agreed_iteration({**training, ("rollout", 0): found()}) == 0


def test_no_iteration_that_is_whole_everywhere_is_an_error_and_not_a_silent_new_start():
    with pytest.raises(CheckpointError, match=r"training-0 has 5, 4; training-1 has 3 \(damaged: 4\)"):
        agreed_iteration({("training", 0): found(5, 4), ("training", 1): found(3, damaged=(4,))})


SOME = st.builds(
    lambda whole, damaged: Found(tuple(sorted(whole - damaged, reverse=True)), (), tuple(damaged)),
    st.sets(st.integers(0, 9), min_size=1),
    st.sets(st.integers(0, 9), max_size=2),
)


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.tuples(st.sampled_from(["rollout", "training"]), st.integers(0, 3)), SOME, min_size=1))
def test_what_is_agreed_is_everywhere_whole_is_the_newest_such_and_hangs_on_no_order(has):
    outcomes = set()
    for order in itertools.islice(itertools.permutations(has), 6):
        try:
            outcomes.add(agreed_iteration({rank: has[rank] for rank in order}))
        except CheckpointError:
            outcomes.add("nothing")
    (agreed,) = outcomes
    everywhere = set.intersection(*({*one.whole} for one in has.values()))
    if any(not one.whole and not one.damaged for one in has.values()):
        assert agreed is None
    else:
        assert agreed == max(everywhere, default="nothing")


STEPS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.sampled_from(["", "cut", "gone"])), max_size=4)


@settings(max_examples=10, deadline=None)
@given(STEPS)
def test_whenever_a_job_is_killed_all_ranks_go_on_with_the_history_of_one_run(steps):
    """Each attempt writes its own number, so what a rank has left of an attempt that others lost would show."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as directory:
        folders = [Path(directory) / f"training-{rank}" for rank in range(3)]
        done = [0]
        for attempt, (iterations, written, damage) in enumerate(steps):
            start = resume_all(folders, done)
            for iteration in range(start, start + iterations):
                for folder in folders:
                    save_checkpoint(folder, iteration, {"attempt": attempt})
                done.append(iteration + 1)
            for folder in folders[:written]:  # killed between two ranks' writes
                save_checkpoint(folder, start + iterations, {"attempt": attempt})
            if damage and iterations >= 2 and not written:
                harm(folders[attempt % 3], damage)
                done.pop()
        resume_all(folders, done)


def resume_all(folders, done):
    everybody = {("training", rank): find_checkpoints(folder) for rank, folder in enumerate(folders)}
    agreed = agreed_iteration(everybody)
    assert (0 if agreed is None else agreed + 1) == done[-1]
    if agreed is not None:
        assert len({str(load_checkpoint(folder, agreed).data) for folder in folders}) == 1
    for folder in folders:
        folder.mkdir(exist_ok=True)
        set_newer_aside(folder, agreed)
    return done[-1]


def harm(folder, how):
    newest = max(folder.glob("iteration-*.pt"))
    newest.unlink() if how == "gone" else newest.write_bytes(newest.read_bytes()[:-1])


def test_only_the_newest_two_whole_ones_are_read_and_a_size_that_is_wrong_shows_in_all(tmp_path):
    for iteration in range(6):
        save_checkpoint(tmp_path, iteration, {"position": iteration}, keep=6)
    for iteration, change in [(5, lambda data: data[:-9] + b"123456789"), (1, lambda data: data[:-1])]:
        (data,) = tmp_path.glob(f"iteration-{iteration:08d}-*.pt")
        data.write_bytes(change(data.read_bytes()))
    assert find_checkpoints(tmp_path) == Found((4, 3), (2, 0), (5, 1))
    assert find_checkpoints(tmp_path / "absent") is None


def test_two_checkpoints_stay_even_if_one_is_asked(tmp_path):
    for iteration in range(4):
        save_checkpoint(tmp_path, iteration, {}, keep=1)
    assert find_checkpoints(tmp_path).whole == (3, 2)


def environment(base, role, rank, sizes):
    return RankEnvironment(
        url="",
        prefix="weaverl:",
        password=None,
        rank=RankId("job", 1, role, rank),
        world_size=sizes[role],
        role_sizes=sizes,
        node="t0",
        slots=(),
        ledger=base,
        host_bytes=None,
        master=("", 0),
        master_fd=None,
        checkpoint_directory=base,
    )


class Ranks:
    """A job whose ranks are all in this process: they started, and said in the store what they have."""

    def __init__(self, base, monkeypatch, **sizes):
        store = InMemoryStore()
        self.monkeypatch = monkeypatch
        self.jobs = {}
        for role, size in sizes.items():
            for rank in range(size):
                own = environment(base, role, rank, sizes)
                exchange = StoreExchange(store, own)
                exchange.publish()
                self.jobs[role, rank] = Job(own, PlainCalls(), exchange)

    def resume(self, role, rank):
        self.monkeypatch.setattr(session._session, "job", self.jobs[role, rank])
        checkpoint = job_checkpoints.resume({})
        return None if checkpoint is None else (checkpoint.iteration, checkpoint.data["run"])

    def checkpoint(self, role, rank, iteration, run):
        self.monkeypatch.setattr(session._session, "job", self.jobs[role, rank])
        job_checkpoints.checkpoint(iteration, {"run": run})


def test_ranks_killed_between_two_writes_resume_from_the_last_common_one_and_keep_the_later_one_aside(
    tmp_path, monkeypatch
):
    first = Ranks(tmp_path, monkeypatch, driver=1, training=2)
    assert [first.resume("training", rank) for rank in (0, 1)] == [None, None]
    for iteration in (0, 1, 2):
        first.checkpoint("training", 0, iteration, "first")
        if iteration < 2:
            first.checkpoint("training", 1, iteration, "first")
    second = Ranks(tmp_path, monkeypatch, driver=1, training=2)
    told = r"go on after iteration 1: training-0 has 2, 1; training-1 has 1, 0"
    for rank in (0, 1):
        with pytest.warns(RuntimeWarning, match=told):
            assert second.resume("training", rank) == (1, "first")
    assert find_checkpoints(tmp_path / "training-0").whole == (1,)
    assert find_checkpoints(tmp_path / "training-0" / "superseded").whole == (2,)
    assert not (tmp_path / "driver-0").exists()


def test_a_role_that_lost_its_folder_does_not_begin_anew_beside_one_that_goes_on(tmp_path, monkeypatch):
    first = Ranks(tmp_path, monkeypatch, rollout=1, training=1)
    for role in ("rollout", "training"):
        first.resume(role, 0)
        first.checkpoint(role, 0, 0, "first")
    shutil.rmtree(tmp_path / "rollout-0")
    second = Ranks(tmp_path, monkeypatch, rollout=1, training=1)
    assert second.resume("training", 0) == (0, "first")
    with pytest.raises(CheckpointError, match=r"the others go on after iteration 0 .* this role has no checkpoint"):
        second.resume("rollout", 0)


def test_a_rank_without_checkpoints_makes_all_begin_at_the_start(tmp_path, monkeypatch):
    first = Ranks(tmp_path, monkeypatch, training=2)
    for rank in (0, 1):
        first.resume("training", rank)
    first.checkpoint("training", 0, 0, "first")
    second = Ranks(tmp_path, monkeypatch, training=2)
    for rank in (0, 1):
        with pytest.warns(RuntimeWarning, match="go on from the start: training-0 has 0; training-1 has none"):
            assert second.resume("training", rank) is None
    with pytest.raises(CheckpointError, match="a second time"):
        second.resume("training", 0)


def test_a_rank_that_never_comes_is_named_and_one_of_a_dead_attempt_stops_waiting(tmp_path):
    sizes = {"training": 3}
    exchange = StoreExchange(store := InMemoryStore(), environment(tmp_path, "training", 0, sizes))
    exchange.publish()
    with pytest.raises(CheckpointError, match=r"training-1, training-2 did not say in 0 s what checkpoints"):
        exchange.gather(lambda: None, patience_seconds=0.0)

    def revoked():
        raise FencedError("attempt 1 was given up")

    with pytest.raises(FencedError):
        StoreExchange(store, environment(tmp_path, "training", 0, sizes)).gather(revoked)


def test_a_rank_waits_for_one_that_says_later_what_it_has(tmp_path):
    store, sizes = InMemoryStore(), {"training": 2}
    save_checkpoint(tmp_path / "training-1", 3, {})
    one, other = (StoreExchange(store, environment(tmp_path, "training", rank, sizes)) for rank in (0, 1))
    one.publish()
    thread = threading.Timer(0.02, other.publish)
    thread.start()
    assert one.gather(lambda: None) == {("training", 0): None, ("training", 1): Found((3,))}
    thread.join()


def test_two_processes_without_a_controller_agree_in_their_process_group_after_a_kill(tmp_path):
    assert run_by_hand(tmp_path, "write") == [None, None]
    assert [find_checkpoints(tmp_path / f"run-{rank}").whole for rank in (0, 1)] == [(2, 1), (1, 0)]
    assert run_by_hand(tmp_path) == [1, 1]


def test_a_process_whose_peer_dies_while_they_agree_says_so_and_does_not_hang(tmp_path):
    answer, other = run_by_hand(tmp_path, "resume")
    assert other == "dead"
    assert answer.startswith("the ranks could not agree on a checkpoint (")


def test_a_world_without_a_process_group_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("WEAVERL_CHECKPOINT_DIRECTORY", str(tmp_path))
    monkeypatch.setattr(session._session, "job", None)
    with pytest.raises(CheckpointError, match="WORLD_SIZE is 2 and there is no process group"):
        job_checkpoints.resume({})
