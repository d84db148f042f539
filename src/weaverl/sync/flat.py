"""Flat weight sync: training rank 0 sends a full copy to every rollout rank (what many stacks do).

An attempt goes: proposal with the manifest, acceptance by every rank, chunks of packed bytes into staging memory,
verification of each tensor's checksum, one decision. The decision publishes the version on all ranks or on none.
"""

from collections.abc import Callable
from typing import NoReturn

import torch
from torch import Tensor
from torch._C._distributed_c10d import Store

from weaverl.errors import WeaverlError, WeightSyncError
from weaverl.sync.agreement import Agreement, Answer, Decision, Proposal, SyncStoreError
from weaverl.sync.link import GlooLink, Link
from weaverl.sync.manifest import Manifest, entry_at, packed_offsets
from weaverl.sync.packing import damaged_tensor

PROTOCOL = 1

LinkMaker = Callable[[Store, int, int, int, float], Link]


class FlatSync:
    """One rank of a flat sync. Rank 0 is training rank 0; rank ``k + 1`` is rollout rank ``k``.

    Args:
        store: shared by all ranks; it carries the agreement, and the addresses of the link.
        rank: of this process in the sync group.
        num_receivers: rollout ranks.
        timeout_seconds: a rank that makes no progress for so long fails the sync.
        patience_seconds: how long sender and receivers wait for one another before a sync begins.
        chunk_bytes: bytes sent at a time; the sender's value holds.
        backend: name of the transport, compared before anything connects.
        make_link: builds the transport.
    """

    waits_for_sender = True

    def __init__(
        self,
        store: Store,
        rank: int,
        num_receivers: int,
        *,
        timeout_seconds: float = 60.0,
        patience_seconds: float = 600.0,
        chunk_bytes: int = 8 << 20,
        backend: str = "gloo",
        make_link: LinkMaker = GlooLink,
    ) -> None:
        self._store = store
        self._rank = rank
        self._num_receivers = num_receivers
        self._timeout = timeout_seconds
        self._patience = patience_seconds
        self._chunk_bytes = chunk_bytes
        self._backend = backend
        self._make_link = make_link
        self._agreement = Agreement(store, rank, num_receivers)
        self._link: Link | None = None
        self._generation = 0
        self._buffer: Tensor | None = None
        self._undecided: tuple[Manifest, Tensor] | None = None

    def send(self, manifest: Manifest, data: Tensor) -> None:
        """Carry a version to all rollout ranks; WeightSyncError, and no rank has it, if one of them fails."""
        assert self._rank == 0, "only rank 0 sends"
        self._agreement.propose(Proposal(PROTOCOL, self._backend, self._chunk_bytes, manifest))
        try:
            answers = self._agreement.gather("accepted", self._patience)
            self._send_chunks(self._open_link(answers), manifest, data)
            self._agreement.gather("verified", self._timeout)
        except BaseException as error:  # also a signal: receivers must not wait for one that left
            self._agreement.decide(Decision(commit=False, reason=str(error) or type(error).__name__))
            raise
        self._agreement.decide(Decision(commit=True))

    def receive(self, accept: Callable[[Manifest], None]) -> tuple[Manifest, Tensor]:
        """Wait for a version and return it whole once it is committed; WeightSyncError, and nothing, otherwise."""
        assert self._rank > 0, "rank 0 does not receive"
        if self._late_commit():
            return self._take()
        self._undecided = None
        proposal = self._agreement.await_proposal(self._patience)
        self._answer_or_refuse("accepted", lambda: self._check(proposal, accept))
        data = self._receive_chunks(self._join_link(), proposal)
        self._answer_or_refuse("verified", lambda: _verify(proposal.manifest, data))
        self._undecided = (proposal.manifest, data)
        self._agreement.await_decision(2 * self._timeout)
        return self._take()

    def close(self) -> None:
        """Drop the connections."""
        if self._link is not None:
            self._link.close()
        self._link = None

    def _open_link(self, answers: list[Answer]) -> Link:
        if self._link is None or any(answer.generation != self._generation for answer in answers):
            self.close()
            self._generation = max(self._generation, *(answer.generation for answer in answers)) + 1
            self._agreement.announce_link(self._generation)
            self._agreement.gather("linked", self._timeout)
            self._link = self._connect()
        else:
            self._agreement.announce_link(self._generation)
        return self._link

    def _join_link(self) -> Link:
        # Longer than the sender waits for the other ranks, so that its reason is heard.
        generation = self._agreement.await_link(self._patience + self._timeout)
        if self._link is None or generation != self._generation:
            self.close()
            self._generation = generation
            self._agreement.answer("linked", Answer())
            self._link = self._connect()
        return self._link

    def _connect(self) -> Link:
        return self._make_link(self._store, self._rank, self._num_receivers + 1, self._generation, self._timeout)

    def _send_chunks(self, link: Link, manifest: Manifest, data: Tensor) -> None:
        for offset in range(0, data.numel(), self._chunk_bytes):
            try:
                link.send(data[offset : offset + self._chunk_bytes], range(1, self._num_receivers + 1))
            except WeightSyncError as error:
                failure = WeightSyncError(f"{error}; at {entry_at(manifest.entries, offset)}, byte {offset}")
                self._agreement.decide(Decision(commit=False, reason=str(failure)))
                self.close()
                raise failure from error

    def _receive_chunks(self, link: Link, proposal: Proposal) -> Tensor:
        entries = proposal.manifest.entries
        _, total = packed_offsets(entries)
        if self._buffer is None or self._buffer.numel() != total:
            self._buffer = torch.empty(total, dtype=torch.uint8)
        for offset in range(0, total, proposal.chunk_bytes):
            try:
                link.receive(self._buffer[offset : offset + proposal.chunk_bytes])
            except WeightSyncError as error:
                self.close()
                self._explain(WeightSyncError(f"{error}; at {entry_at(entries, offset)}, byte {offset}"), error)
        return self._buffer

    def _explain(self, failure: WeightSyncError, cause: WeightSyncError) -> NoReturn:
        # The sender's reason, if it has one, says more than a closed connection. Otherwise tell it ours.
        try:
            self._agreement.answer("verified", Answer(refused=str(failure)))
            self._agreement.is_committed()
        except SyncStoreError:
            raise failure from cause  # the store went with the sender
        raise failure from cause

    def _check(self, proposal: Proposal, accept: Callable[[Manifest], None]) -> None:
        theirs, ours = (proposal.backend, proposal.protocol), (self._backend, PROTOCOL)
        if theirs != ours:
            raise WeightSyncError(
                f"training rank 0 speaks {theirs[0]} (protocol {theirs[1]}), this rank {ours[0]} (protocol {ours[1]}): "
                "give both the same"
            )
        accept(proposal.manifest)

    def _answer_or_refuse(self, step: str, check: Callable[[], None]) -> None:
        try:
            check()
        except BaseException as error:  # whatever it was, the sender must not wait for it
            reason = str(error) if isinstance(error, WeaverlError) else f"{type(error).__name__}: {error}"
            self._agreement.answer(step, Answer(refused=reason))
            raise
        self._agreement.answer(step, Answer(generation=self._generation if self._link is not None else 0))

    def _late_commit(self) -> bool:
        # A decision that came after this rank stopped waiting for it: the others have the version.
        try:
            return self._undecided is not None and self._agreement.is_committed()
        except WeightSyncError:
            self._undecided = None
            return False

    def _take(self) -> tuple[Manifest, Tensor]:
        assert self._undecided is not None
        taken, self._undecided = self._undecided, None
        return taken


def _verify(manifest: Manifest, data: Tensor) -> None:
    damaged = damaged_tensor(data, manifest.entries)
    if damaged is not None:
        raise WeightSyncError(f"{damaged} arrived damaged (its checksum differs)")
