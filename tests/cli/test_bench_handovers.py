import pytest

from weaverl.cli.bench_handovers import Handover, PhaseTimes, handovers, percentile, read_times, turns, write_times
from weaverl.domain.cluster import PoolKind, Slot
from weaverl.domain.commands import GrantPermit
from weaverl.domain.events import TimerFired, Token
from weaverl.domain.facts import SCHEMA, Fact
from weaverl.domain.jobs import PhaseKind
from weaverl.errors import ClusterError

SLOT = Slot("t0", 0)


def fact(job, counter, iteration=0, phase=PhaseKind.TRAINING, epoch=1):
    grant = GrantPermit(
        job=job,
        attempt=1,
        role="run",
        token=Token(epoch, counter),
        phase=phase,
        pool=PoolKind.TRAINING,
        iteration=iteration,
        slots=(SLOT,),
        ranks=1,
        vacate=True,
    )
    return Fact(schema=SCHEMA, code="test", policy="test", event=TimerFired(name="x"), commands=(grant,))


def test_hand_over_is_from_the_end_of_a_body_to_the_start_of_the_one_that_waited():
    times = {"a": [PhaseTimes(0, 0, 10, 20)], "b": [PhaseTimes(0, 5, 23, 30)]}
    assert handovers(turns([fact("a", 1), fact("b", 2)], times)) == [Handover(SLOT, 20, 23)]


def test_nobody_waited_so_nothing_was_handed_over():
    times = {"a": [PhaseTimes(0, 0, 10, 20)], "b": [PhaseTimes(0, 21, 23, 30)]}
    assert handovers(turns([fact("a", 1), fact("b", 2)], times)) == []


def test_job_that_follows_itself_hands_nothing_over():
    times = {"a": [PhaseTimes(0, 0, 10, 20), PhaseTimes(1, 15, 23, 30)]}
    assert handovers(turns([fact("a", 1), fact("a", 2, iteration=1)], times)) == []


def test_order_is_that_of_tokens_across_epochs():
    times = {"a": [PhaseTimes(0, 0, 10, 20)], "b": [PhaseTimes(0, 5, 23, 30)]}
    found = turns([fact("b", 1, epoch=2), fact("a", 7, epoch=1)], times)
    assert [turn.job for turn in found[SLOT]] == ["a", "b"]


def test_other_phases_are_not_taken_for_trainings():
    times = {"a": [PhaseTimes(0, 0, 10, 20)]}
    assert turns([fact("a", 1, phase=PhaseKind.LOADING)], times) == {}


def test_two_bodies_at_once_on_a_slot_are_no_figure_but_an_error():
    times = {"a": [PhaseTimes(0, 0, 10, 20)], "b": [PhaseTimes(0, 5, 19, 30)]}
    with pytest.raises(ClusterError, match=r"b began on t0:0 while a held it \(tokens 1.1, 1.2\)"):
        handovers(turns([fact("a", 1), fact("b", 2)], times))


def test_times_survive_the_file(tmp_path):
    times = [PhaseTimes(0, 1, 2, 3), PhaseTimes(1, 4, 5, 6)]
    write_times(tmp_path / "a.times", times)
    assert read_times(tmp_path / "a.times") == times
    assert [path.name for path in tmp_path.iterdir()] == ["a.times"]


@pytest.mark.parametrize(("share", "value"), [(0.5, 50), (0.99, 99), (1.0, 100), (0.001, 1)])
def test_percentile_is_a_value_by_nearest_rank(share, value):
    assert percentile(range(100, 0, -1), share) == value
