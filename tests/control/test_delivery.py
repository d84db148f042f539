"""Whose inbox a command goes to."""

import pytest

from weaverl.channel import names
from weaverl.channel.store import Append
from weaverl.channel.wire import decode_command
from weaverl.control.delivery import deliver
from weaverl.domain.cluster import Slot
from weaverl.domain.commands import MoveTail, VacateSlot, WidenPermit
from weaverl.domain.events import RankId, Token

OF_A_ROLE = {"job": "a", "attempt": 2, "role": "rollout", "token": Token(1, 5), "ranks": 2}


@pytest.mark.parametrize(
    "command",
    [
        VacateSlot(**OF_A_ROLE, slots=(Slot("r0", 0),)),
        MoveTail(**OF_A_ROLE, keep=(Slot("r0", 0),)),
        WidenPermit(**OF_A_ROLE, slots=(Slot("r0", 1),)),
    ],
)
def test_what_is_for_a_role_goes_to_each_of_its_ranks(command):
    writes = list(deliver(command, ()))
    assert [type(write) for write in writes] == [Append, Append]
    assert [write.stream for write in writes] == [names.rank_inbox(RankId("a", 2, "rollout", n)) for n in (0, 1)]
    assert {decode_command(write.data) for write in writes} == {command}
