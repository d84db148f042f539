"""Hand-overs of slots, from what each rank wrote down of its training phases and what the log says was granted."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from math import ceil
from pathlib import Path

import msgspec

from weaverl.domain.cluster import Slot
from weaverl.domain.commands import GrantPermit
from weaverl.domain.events import Token
from weaverl.domain.facts import Fact
from weaverl.domain.jobs import PhaseKind
from weaverl.errors import ClusterError
from weaverl.whole_file import whole_file


class PhaseTimes(msgspec.Struct, frozen=True, array_like=True):
    """One training phase of one rank, on the host's monotonic clock.

    ``asked_ns`` is just before the decorated function is called, ``begun_ns`` and ``ended_ns`` are the first and the
    last that its body does.
    """

    iteration: int
    asked_ns: int
    begun_ns: int
    ended_ns: int


class Handover(msgspec.Struct, frozen=True):
    """A slot went from one job to another that was waiting: from the end of a body to the start of the next."""

    slot: Slot
    ended_ns: int
    begun_ns: int

    @property
    def milliseconds(self) -> float:
        """How long nobody's body ran though somebody waited."""
        return (self.begun_ns - self.ended_ns) / 1e6


class Turn(msgspec.Struct, frozen=True):
    """A phase with the token that it ran under."""

    token: Token
    job: str
    times: PhaseTimes


def write_times(file: Path, times: Sequence[PhaseTimes]) -> None:
    """Keep a rank's phases, whole or not at all."""
    with whole_file(file) as stream:
        stream.buffer.write(msgspec.msgpack.encode(times))


def read_times(file: Path) -> list[PhaseTimes]:
    """A rank's phases, in order."""
    return msgspec.msgpack.decode(file.read_bytes(), type=list[PhaseTimes])


def turns(facts: Iterable[Fact], times: dict[str, list[PhaseTimes]]) -> dict[Slot, list[Turn]]:
    """The phases of each slot in the order of their tokens. ``times`` are by job."""
    ran = {(job, one.iteration): one for job, phases in times.items() for one in phases}
    found: dict[Slot, list[Turn]] = {}
    for grant in _granted_trainings(facts):
        if (grant.job, grant.iteration) in ran:
            turn = Turn(grant.token, grant.job, ran[grant.job, grant.iteration])
            for slot in grant.slots:
                found.setdefault(slot, []).append(turn)
    return {slot: sorted(line, key=lambda turn: turn.token) for slot, line in found.items()}


def handovers(found: dict[Slot, list[Turn]]) -> list[Handover]:
    """All hand-overs, in the order of their ends. Raises ClusterError if two bodies ever ran on a slot at once."""
    passed: list[Handover] = []
    for slot, line in found.items():
        for before, after in pairwise(line):
            if after.times.begun_ns < before.times.ended_ns:
                raise ClusterError(
                    f"{after.job} began on {slot} while {before.job} held it (tokens {before.token}, {after.token}): "
                    f"please report this"
                )
            if after.job != before.job and after.times.asked_ns < before.times.ended_ns:
                passed.append(Handover(slot, before.times.ended_ns, after.times.begun_ns))
    return sorted(passed, key=lambda one: one.ended_ns)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least ``share`` of all values do not exceed (nearest rank)."""
    assert values and 0 < share <= 1
    return sorted(values)[ceil(share * len(values)) - 1]


def _granted_trainings(facts: Iterable[Fact]) -> Iterator[GrantPermit]:
    commands = (command for fact in facts for command in fact.commands)
    return (one for one in commands if isinstance(one, GrantPermit) and one.phase is PhaseKind.TRAINING)
