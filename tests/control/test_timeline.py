"""The timeline of facts that were heard of late."""

from weaverl.control.timeline import timeline_of
from weaverl.domain.cluster import PoolKind, Slot
from weaverl.domain.commands import AnyCommand, GrantPermit
from weaverl.domain.events import AnyEvent, PermitRequested, PhaseEnded, PhaseMeasured, PhaseReport, RankId, Token
from weaverl.domain.facts import Fact
from weaverl.domain.jobs import PhaseKind

RANK = RankId("a", 1, "training", 0)


def fact(event: AnyEvent, *commands: AnyCommand) -> Fact:
    return Fact(schema=1, code="", policy="", event=event, commands=commands)


def test_a_sync_begins_when_its_rank_has_left_the_phase_before_though_the_end_of_that_came_late():
    phase = {"phase": PhaseKind.TRAINING, "iteration": 0}
    grant = GrantPermit(
        job="a",
        attempt=1,
        role="training",
        token=Token(1, 1),
        pool=PoolKind.TRAINING,
        slots=(Slot("t0", 0),),
        ranks=1,
        vacate=True,
        **phase,
    )
    asked = PermitRequested(at=0, job="a", attempt=1, role="training", pool=PoolKind.TRAINING, **phase)
    report = PhaseReport(body_us=500, save_us=100)
    ended = PhaseEnded(at=1000, rank=RANK, token=Token(1, 1), vacated=True, report=report, **phase)
    synced = PhaseMeasured(
        at=1300, rank=RANK, phase=PhaseKind.SYNC, iteration=0, report=PhaseReport(body_us=405), moved_bytes=7
    )
    training, sync = timeline_of([fact(asked, grant), fact(ended), fact(synced)]).intervals
    assert (training.started_at, training.ended_at, training.released_at) == (400, 900, 1000)
    assert (sync.started_at, sync.ended_at) == (900, 1300)
