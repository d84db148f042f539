"""The ranks of a sync agree over a store: one decision, seen alike by all."""

import msgspec
import pytest
from torch.distributed import HashStore

from weaverl.errors import WeightSyncError
from weaverl.sync.agreement import Agreement, Answer, Decision, Proposal
from weaverl.sync.manifest import Manifest

PROPOSAL = Proposal(1, "gloo", 64, Manifest(1, ()))


class DecidingStore(HashStore):
    """Gets an abort between a receiver's two looks at the decision."""

    def __init__(self):
        super().__init__()
        self.looks = 0

    def check(self, keys):
        present = super().check(keys)
        if keys == ["1/decision"]:
            self.looks += 1
            self.set("1/decision", msgspec.json.encode(Decision(commit=False, reason="b is damaged")).decode())
        return present


def test_abort_that_comes_while_a_receiver_looks_is_never_taken_for_a_commit():
    store = DecidingStore()
    Agreement(store, 0, 1).propose(PROPOSAL)
    store.set("latest", "1")
    receiver = Agreement(store, 1, 1)
    receiver._attempt = 1
    assert receiver.is_committed() is False
    with pytest.raises(WeightSyncError, match="b is damaged"):
        receiver.is_committed()
    assert store.looks == 2


def test_attempt_that_is_over_is_not_joined():
    store = HashStore()
    sender, receiver = Agreement(store, 0, 1), Agreement(store, 1, 1)
    sender.propose(PROPOSAL)
    sender.decide(Decision(commit=False, reason="gave up"))
    with pytest.raises(WeightSyncError, match=r"the training role sent no weights within 0\.05 s"):
        receiver.await_proposal(0.05)
    sender.propose(PROPOSAL)
    assert receiver.await_proposal(1.0) == PROPOSAL


def test_all_refusals_are_named():
    store = HashStore()
    sender, receivers = Agreement(store, 0, 2), [Agreement(store, rank, 2) for rank in (1, 2)]
    sender.propose(PROPOSAL)
    for receiver, reason in zip(receivers, ("no room", "no such tensor"), strict=True):
        receiver.await_proposal(1.0)
        receiver.answer("accepted", Answer(refused=reason))
    with pytest.raises(WeightSyncError) as refused:
        sender.gather("accepted", 1.0)
    assert str(refused.value) == "rollout rank 0 refused: no room; rollout rank 1 refused: no such tensor"


def test_keys_of_old_attempts_are_removed():
    store = HashStore()
    sender = Agreement(store, 0, 1)
    for _ in range(50):
        sender.propose(PROPOSAL)
        sender.decide(Decision(commit=True))
    assert store.num_keys() <= 2 * 8 + 2
