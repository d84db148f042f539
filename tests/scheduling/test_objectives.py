"""What members cost until they end, where a job is charged for as long as it lasts."""

import pytest
from builders import World, cluster, job, node
from hypothesis import given
from hypothesis import strategies as st

from weaverl.domain.groups import Pin
from weaverl.domain.jobs import PhaseProfile
from weaverl.errors import UsageError
from weaverl.scheduling.expected_dollars import Stay, course_of
from weaverl.scheduling.objectives import usd_of_lives
from weaverl.scheduling.round_model import Durations, Member, Switches
from weaverl.scheduling.state import Parameters

PROFILE = PhaseProfile(rollout_max_seconds=1.0, rollout_mean_seconds=1.0, training_seconds=1.0)


def stay(name: str, left_us: int, usd_per_hour: float = 3600e6) -> Stay:
    member = Member(name, Pin((), ()), Durations(1, 1, 0, 0), Switches(0, 0))
    return Stay(member, PROFILE, left_us, 2.0, usd_per_hour)


def test_the_one_that_stays_behind_is_slowed_no_more():
    """The short one takes 100 x 1.5; by then the long one has done 150 / 1.25 = 120 of its 400."""
    stays = [stay("short", 100), stay("long", 400)]
    assert course_of(stays, {"short": 1.5, "long": 1.25}).ends_us == pytest.approx([150.0, 150.0 + 280.0])


def test_of_three_each_has_the_same_part_in_what_is_lost():
    """First all are slowed to 2 until 200, then the others to 1.5, then the last not at all."""
    stays = [stay("a", 100), stay("b", 200), stay("c", 300)]
    assert course_of(stays, dict.fromkeys("abc", 2.0)).ends_us == pytest.approx([200.0, 350.0, 450.0])


def test_a_job_is_charged_at_the_price_of_its_own_gpus():
    stays = [stay("cheap", 100), stay("dear", 100, 3 * 3600e6)]
    assert usd_of_lives(stays, [100.0, 100.0]) == pytest.approx(400.0)
    of = World(cluster(node("r0"), node("t0")), parameters=Parameters(policy="weave", objective="throughput"))
    of.submit(job("a", 10, 10))
    assert of.admitted("a").verdicts[-1].kind == "isolate"


@given(
    st.lists(st.tuples(st.integers(1, 1000), st.floats(1.0, 5.0), st.floats(0.0, 2.0)), min_size=1, max_size=5),
)
def test_ends_are_no_earlier_than_alone_no_later_than_with_all_and_grow_with_slowdowns(members):
    stays = [stay(f"j{place}", left) for place, (left, _, _) in enumerate(members)]
    slowdowns = {f"j{place}": slowdown for place, (_, slowdown, _) in enumerate(members)}
    worse = {f"j{place}": slowdown + more for place, (_, slowdown, more) in enumerate(members)}
    ends = course_of(stays, slowdowns).ends_us
    for one, end, later in zip(stays, ends, course_of(stays, worse).ends_us, strict=True):
        assert one.left_us * (1 - 1e-9) <= end <= one.left_us * slowdowns[one.member.job] * (1 + 1e-9)
        assert end <= later * (1 + 1e-9)


@pytest.mark.parametrize("policy", ["solo", "gavel", "weave-paper"])
def test_only_weave_has_another_objective(policy):
    with pytest.raises(UsageError, match=f"objective throughput is one of policy weave, the policy is {policy}"):
        Parameters(policy=policy, objective="throughput")


def test_an_objective_that_is_not_known_is_refused():
    with pytest.raises(UsageError, match="objective 'speed' is not known: choose dollars or throughput"):
        Parameters(policy="weave", objective="speed")
