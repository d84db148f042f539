"""Which command goes to whom: commands become writes to inboxes, replies and revocations."""

from collections.abc import Iterator

import msgspec

from weaverl.channel import names
from weaverl.channel.store import Append, Delete, Put, Write, producer_key
from weaverl.channel.wire import encode_command
from weaverl.domain.commands import (
    AcceptJob,
    AcknowledgeRequest,
    AnyCommand,
    ChangeJobState,
    GrantPermit,
    KillJob,
    MoveTail,
    PrepareSlot,
    RefuseRequest,
    StartRank,
    VacateSlot,
    WidenPermit,
)
from weaverl.domain.events import RankId
from weaverl.domain.jobs import ENDED, JobState

_REPLY_SECONDS = 600.0


class Reply(msgspec.Struct, frozen=True):
    """The answer to a request; ``refused`` is empty when it was taken."""

    refused: str = ""


def deliver(command: AnyCommand, ranks: tuple[RankId, ...]) -> Iterator[Write]:
    """The writes that carry a command out. ``ranks`` are those of the command's job before it was decided."""
    match command:
        case StartRank():
            yield Append(names.node_inbox(command.node), encode_command(command))
        case KillJob():
            yield Put(names.revoked(command.job, command.attempt), b"1")
            yield Append(names.node_inbox(command.node), encode_command(command))
        case GrantPermit() | VacateSlot() | PrepareSlot() | MoveTail() | WidenPermit():
            for number in range(command.ranks):
                inbox = names.rank_inbox(RankId(command.job, command.attempt, command.role, number))
                yield Append(inbox, encode_command(command))
        case AcceptJob() | AcknowledgeRequest() if command.request:
            yield _reply(command.request, Reply())
        case RefuseRequest() if command.request:
            yield _reply(command.request, Reply(command.reason))
        case ChangeJobState() if command.state in ENDED or command.state is JobState.QUEUED:
            for rank in ranks:
                yield Delete(names.rank_inbox(rank))
                yield Delete(names.checkpoints(rank))
                yield Delete(producer_key(names.rank_name(rank)))
            for attempt in dict.fromkeys(rank.attempt for rank in ranks):
                yield Delete(names.rendezvous(command.job, attempt))


def _reply(request: str, reply: Reply) -> Put:
    return Put(names.reply(request), msgspec.json.encode(reply), ttl_seconds=_REPLY_SECONDS)
