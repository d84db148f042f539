"""Jobs whose rollouts grow: under policy ``weave`` their profiles follow what is measured."""

import pytest

from simulation.small import row, trace
from weaverl.domain.commands import LearnProfile
from weaverl.scheduling.state import Parameters
from weaverl.simulation.costs import Costs
from weaverl.simulation.simulate import Replacing, Setup, simulate_heard


class Learned:
    def __init__(self):
        self.profiles, self.times = [], []

    def hear(self, event, commands):
        found = [command.profile for command in commands if isinstance(command, LearnProfile)]
        self.profiles += found
        self.times += [event.at] * len(found)


def learned(policy="weave", **more):
    """Of two jobs that share nodes."""
    heard = Learned()
    jobs = [
        row(name, at=at, iterations=300, rollout=100.0, training=40.0, slo=3.0, **more) for at, name in enumerate("ab")
    ]
    simulate_heard(trace(*jobs), Setup(policy=policy, costs=Costs(tail_migration=True)), [heard])
    return heard.profiles


@pytest.mark.parametrize("growth", [0.6, 1.6])
def test_the_profile_follows_rollouts_that_drift(growth):
    last = learned(rollout_growth=growth)[-1]
    assert last.rollout_mean_seconds == pytest.approx(100.0 * growth, rel=0.12)
    assert last.rollout_max_seconds / last.rollout_mean_seconds == pytest.approx(1.0)
    assert last.training_seconds == pytest.approx(40.0)


def test_chance_is_no_drift_and_the_published_policy_plans_with_what_it_was_told():
    assert learned(rollout_cv=0.1, rollout_max_seconds=150.0) == []
    assert learned("weave-paper", rollout_growth=1.6) == []


def test_promises_are_looked_at_whenever_a_job_has_drifted():
    heard, asked = Learned(), []

    def propose(state, near, reviewed_at):
        asked.append((state.now, tuple(near)))

    jobs = [row(name, iterations=100, slo=3.0, rollout_growth=1.4) for name in "ab"]
    quiet = Parameters(review_us=0)
    simulate_heard(trace(*jobs), Setup(policy="weave"), [heard], replacing=Replacing(propose, quiet))
    assert len(heard.times) >= 6
    assert [at for at, near in asked if not near] == sorted(set(heard.times))


def test_how_far_off_a_profile_may_be_is_a_parameter():
    def followed(error):
        heard = Learned()
        jobs = trace(row("a", iterations=200, rollout_growth=1.5))
        replacing = Replacing(parameters=Parameters(profile_error=error))
        simulate_heard(jobs, Setup(policy="weave"), [heard], replacing=replacing)
        return len(heard.profiles)

    assert followed(0.04) > followed(0.08) > followed(0.3) > followed(0.6) == 0
