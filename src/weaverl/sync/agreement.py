"""How the ranks of a sync agree, over a store: proposal, answers of every rank, one decision.

Only the sender decides, by writing one key, so no two ranks can see different decisions. Waiting is polling with a
deadline: a rank that died or hangs is named, and nothing blocks for ever.
"""

import time
from collections.abc import Callable
from typing import TypeVar

import msgspec
from torch._C._distributed_c10d import Store

from weaverl.errors import WeightSyncError
from weaverl.sync.manifest import Manifest

_Value = TypeVar("_Value")

_FIRST_PAUSE = 0.001
_LONGEST_PAUSE = 0.02
_GRACE_SECONDS = 2.0
_KEPT_ATTEMPTS = 8  # no rank looks at an attempt that old


class Proposal(msgspec.Struct, frozen=True):
    """What the sender wants to do. ``protocol`` and ``backend`` must be the receiver's own."""

    protocol: int
    backend: str
    chunk_bytes: int
    manifest: Manifest


class Answer(msgspec.Struct, frozen=True):
    """A receiver's word at one step; ``refused`` says why not. ``generation`` is that of its link, 0 for none."""

    refused: str = ""
    generation: int = 0


class Decision(msgspec.Struct, frozen=True):
    """The end of an attempt."""

    commit: bool
    reason: str = ""


class SyncStoreError(WeightSyncError):
    """The store went away, as it does with the rank that serves it."""


class Agreement:
    """One rank's side of all attempts to sync over one store. Rank 0 sends, the others receive."""

    def __init__(self, store: Store, rank: int, num_receivers: int) -> None:
        self._store = store
        self._rank = rank
        self._receivers = range(1, num_receivers + 1)
        self._attempt = 0

    def propose(self, proposal: Proposal) -> None:
        """Begin an attempt (sender)."""
        self._attempt = self._latest() + 1
        self._forget(self._attempt - _KEPT_ATTEMPTS)
        self._set(f"{self._attempt}/proposal", proposal)
        self._store_call(lambda: self._store.set("latest", str(self._attempt)))

    def gather(self, step: str, seconds: float) -> list[Answer]:
        """Every receiver's answer at a step (sender). WeightSyncError names ranks that refuse or are silent."""
        answers: dict[int, Answer] = {}

        def all_answered() -> bool:
            for rank in self._receivers:
                answer = None if rank in answers else self._get(f"{self._attempt}/{step}/{rank}", Answer)
                if answer is not None:
                    answers[rank] = answer
            return len(answers) == len(self._receivers)

        def is_over() -> bool:
            return all_answered() or any(answer.refused for answer in answers.values())

        _poll(is_over, seconds)
        # Ranks on their way to this step are let in, so that one refusal ends the attempt for all alike.
        refused = any(answer.refused for answer in answers.values())
        complete = _poll(all_answered, _GRACE_SECONDS if refused else 0.0)
        refusals = [
            f"{rank_name(rank)} refused: {answer.refused}" for rank, answer in answers.items() if answer.refused
        ]
        if refusals:
            raise WeightSyncError("; ".join(refusals))
        if not complete:
            silent = ", ".join(rank_name(rank) for rank in self._receivers if rank not in answers)
            raise WeightSyncError(f"{silent} did not answer ({step}) within {seconds:g} s")
        return [answers[rank] for rank in self._receivers]

    def announce_link(self, generation: int) -> None:
        """Say which link carries this attempt (sender)."""
        self._set(f"{self._attempt}/link", generation)

    def decide(self, decision: Decision) -> None:
        """End the attempt for all ranks at once (sender)."""
        self._set(f"{self._attempt}/decision", decision)

    def await_proposal(self, seconds: float) -> Proposal:
        """The next attempt that is not over (receiver)."""
        found: list[Proposal] = []

        def is_there() -> bool:
            latest = self._latest()
            if latest <= self._attempt or self._get(f"{latest}/decision", Decision) is not None:
                return False
            proposal = self._get(f"{latest}/proposal", Proposal)
            if proposal is not None:
                self._attempt = latest
                found.append(proposal)
            return bool(found)

        if not _poll(is_there, seconds):
            raise WeightSyncError(f"the training role sent no weights within {seconds:g} s")
        return found[0]

    def answer(self, step: str, answer: Answer) -> None:
        """Say yes or no at a step (receiver)."""
        self._set(f"{self._attempt}/{step}/{self._rank}", answer)

    def await_link(self, seconds: float) -> int:
        """Which link carries this attempt (receiver); WeightSyncError if the attempt ends before one is there."""
        found: list[int] = []

        def is_there() -> bool:
            self.is_committed()
            generation = self._get(f"{self._attempt}/link", int)
            found.extend(() if generation is None else (generation,))
            return bool(found)

        if not _poll(is_there, seconds):
            raise WeightSyncError(f"the sender opened no link within {seconds:g} s")
        return found[0]

    def await_decision(self, seconds: float) -> None:
        """Return when the attempt is committed (receiver); WeightSyncError if it is aborted or undecided."""
        if not _poll(self.is_committed, seconds):
            raise WeightSyncError(f"the sender decided nothing within {seconds:g} s: the old version serves on")

    def is_committed(self) -> bool:
        """Whether the attempt is committed, False while it is undecided; WeightSyncError if it is aborted."""
        decision = self._get(f"{self._attempt}/decision", Decision)  # read once: it may come at any moment
        if decision is not None and not decision.commit:
            raise WeightSyncError(f"the sender ended the sync: {decision.reason}; the old version serves on")
        return decision is not None

    def _latest(self) -> int:
        return self._get("latest", int) or 0

    def _forget(self, attempt: int) -> None:
        keys = ["proposal", "link", "decision"]
        keys += [f"{step}/{rank}" for step in ("accepted", "linked", "verified") for rank in self._receivers]
        self._store_call(lambda: [self._store.delete_key(f"{attempt}/{key}") for key in keys])

    def _set(self, key: str, value: object) -> None:
        data = msgspec.json.encode(value).decode()
        self._store_call(lambda: self._store.set(key, data))

    def _get(self, key: str, kind: type[_Value]) -> _Value | None:
        data = self._store_call(lambda: self._store.get(key) if self._store.check([key]) else None)
        return None if data is None else msgspec.json.decode(data, type=kind)

    def _store_call(self, call: Callable[[], _Value]) -> _Value:
        try:
            return call()
        except RuntimeError as error:
            raise SyncStoreError(f"the store of the sync group does not answer: {error}") from error


def rank_name(rank: int) -> str:
    """What messages call a rank of the sync group."""
    return "training rank 0" if rank == 0 else f"rollout rank {rank - 1}"


def _poll(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    pause = _FIRST_PAUSE
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
    return True
