"""Judging all groups at once gives the decisions of judging one after the other, and the index follows every fold."""

from collections.abc import Iterator
from random import Random

import msgspec
import numpy as np
from builders import GIB, cluster, node
from hypothesis import event, given, settings
from hypothesis import strategies as st

from weaverl.domain.cluster import PoolKind, SwitchCost
from weaverl.domain.events import (
    AgentReported,
    ControllerStarted,
    DeathConfirmed,
    JobCancelled,
    JobSubmitted,
    NodeLost,
)
from weaverl.domain.jobs import HostMemory, JobSpec, PhaseProfile, Role
from weaverl.scheduling.admission import first_admitted, judge
from weaverl.scheduling.group_table import GONE, OPEN, MemberRow
from weaverl.scheduling.index import ClusterIndex, index_of
from weaverl.scheduling.policies import weave_paper
from weaverl.scheduling.policies.all_at_once import arrival_of
from weaverl.scheduling.policies.group_search import Answer, judged_answers
from weaverl.scheduling.policies.one_by_one import candidates, openable, with_opened
from weaverl.scheduling.scheduler import Scheduler
from weaverl.scheduling.state import Changed, ClusterState

WHOLE = [(8, 8)] * 4 + [(16, 8), (8, 16), (16, 16), (24, 8)]
PARTIAL = [(4, 8), (8, 2), (4, 4)]


def random_spec(random: Random, name: str, share_of_whole: float) -> JobSpec:
    """A job of some 50 seconds an iteration, mostly of small memory and a patient owner."""
    rollout = random.randint(4, 45)
    profile = PhaseProfile(
        rollout_max_seconds=rollout,
        rollout_mean_seconds=1.0,
        training_seconds=random.randint(2, 50 - rollout),
        sync_seconds=random.randint(0, 12),
        other_seconds=random.choice([0, 0, 5, 40]),
        rollout_switch_seconds=random.choice([None, 0.0, 1.25]),
        training_switch_seconds=random.choice([None, 0.0, 2.5]),
    )
    gpus = random.choice(WHOLE if random.random() < share_of_whole else PARTIAL)
    memory = [random.choice([10, 20, 40, 100]) * GIB for _ in range(2)]
    return JobSpec(
        name=name,
        roles=(Role(name="run", command=("true",)),),
        rollout_gpus=gpus[0],
        training_gpus=gpus[1],
        host_memory=HostMemory(rollout_bytes=memory[0], training_bytes=memory[1]),
        slo=random.choice([1.0, 1.2, 1.5, 2.0, 3.0, 6.0]),
        profile=profile,
    )


class Driver:
    """Sends arrivals and departures through the door, without a cluster behind it."""

    def __init__(self, num_nodes: int) -> None:
        nodes = [node(f"{pool}{place}", host_gib=260) for pool in "rt" for place in range(num_nodes)]
        self.scheduler = Scheduler(cluster(*nodes, switch=SwitchCost(rollout_seconds=1.0, training_seconds=2.0)))
        self.now = 0
        self.send(ControllerStarted(epoch=1))
        for one in nodes:
            self.send(AgentReported(epoch=1, node=one))

    @property
    def state(self) -> ClusterState:
        return self.scheduler.state

    def send(self, event: object) -> None:
        self.now += 1
        self.scheduler.handle(msgspec.structs.replace(event, at=self.now))

    def end(self, name: str) -> None:
        record = self.state.jobs.get(name)
        if record is None or record.pin is None or record.ending is not None:
            return
        nodes = dict.fromkeys(record.pin.nodes(PoolKind.ROLLOUT) + record.pin.nodes(PoolKind.TRAINING))
        self.send(JobCancelled(job=name))
        for one in nodes:
            self.send(DeathConfirmed(job=name, attempt=1, node=one))


def histories(random: Random, num_nodes: int) -> Iterator[Driver]:
    """A cluster after each of some arrivals, departures and a lost node."""
    driver = Driver(num_nodes)
    share_of_whole = random.choice([1.0, 1.0, 0.85])
    for place in range(random.randint(4, 14)):
        driver.send(JobSubmitted(spec=random_spec(random, f"j{place}", share_of_whole)))
        if random.random() < 0.3:
            driver.end(f"j{random.randint(0, place)}")
        if random.random() < 0.05:
            driver.send(NodeLost(node=random.choice("rt") + "0"))
        yield driver


seeds = st.integers(0, 2**32).map(Random)


@settings(max_examples=40, deadline=None)
@given(seeds, st.integers(1, 6))
def test_all_groups_at_once_are_judged_as_one_after_the_other(random: Random, num_nodes: int):
    for driver in histories(random, num_nodes):
        asked = random_spec(random, "asked", 0.8)
        slow = first_admitted(driver.state, candidates(driver.state, asked), asked)
        assert weave_paper.choose(driver.state, asked) == slow
        check_every_answer(driver.state, asked)


def check_every_answer(state: ClusterState, asked: JobSpec) -> None:
    """Each open group's answer is that of judging it by itself, whether one before it would take the job or not."""
    arrival, table = arrival_of(state, asked), index_of(state).table
    free = openable(state, asked)
    for opened in range(0 if arrival is None else min(len(free), arrival.num_nodes[0]) + 1):
        rows = np.flatnonzero(table["standing"] == OPEN)
        answers = judged_answers(table, rows, arrival, opened) if len(rows) else ()
        for row, answer in zip(rows, answers, strict=True):
            group = state.groups[table.names[row]]
            candidate = with_opened(state, asked, group, free[:opened], arrival.num_nodes[0] - opened)
            refused = judge(state, candidate, asked).refused
            expected = Answer.NO_ROOM if candidate.pin is None else Answer.BREAKS_PROMISE if refused else Answer.TAKES
            assert answer == expected
            event(f"{expected.name} among {len(group.members)}")


def short_phases(name: str, gib: int) -> JobSpec:
    """A job that hardly uses its slots."""
    profile = PhaseProfile(rollout_max_seconds=1.0, rollout_mean_seconds=1.0, training_seconds=1.0, other_seconds=100.0)
    memory = HostMemory(rollout_bytes=gib * GIB, training_bytes=gib * GIB)
    return JobSpec(
        name=name,
        roles=(Role(name="run", command=("true",)),),
        rollout_gpus=8,
        training_gpus=8,
        host_memory=memory,
        slo=6.0,
        profile=profile,
    )


def test_groups_of_few_and_of_many_members_are_judged_where_there_are_none_between():
    driver = Driver(3)
    for number in range(7):
        driver.send(JobSubmitted(spec=short_phases(f"j{number}", 10)))
    driver.send(JobSubmitted(spec=short_phases("large", 200)))
    assert sorted(len(group.members) for group in driver.state.groups.values()) == [1, 7]
    arrival, table = arrival_of(driver.state, short_phases("asked", 10)), index_of(driver.state).table
    rows = np.flatnonzero(table["standing"] == OPEN)
    assert judged_answers(table, rows, arrival, 0).tolist() == [Answer.TAKES, Answer.TAKES]


@settings(max_examples=25, deadline=None)
@given(seeds, st.integers(1, 5))
def test_the_index_that_followed_every_fold_is_the_one_made_anew(random: Random, num_nodes: int):
    for driver in histories(random, num_nodes):
        followed, anew = index_of(driver.state), ClusterIndex()
        everything = Changed()
        everything.add_all(driver.state)
        anew.refresh(driver.state, everything)
        assert followed.queue() == anew.queue()
        assert [list(followed.catalog.free(pool)) for pool in PoolKind] == [
            list(anew.catalog.free(pool)) for pool in PoolKind
        ]
        assert {n: followed.resident_bytes(n) for n in driver.state.nodes} == {
            n: anew.resident_bytes(n) for n in driver.state.nodes
        }
        assert rows(followed) == rows(anew)


def rows(index: ClusterIndex) -> dict[str, object]:
    """The table's rows by group, without padding."""
    table = index.table
    found = {}
    for row in np.flatnonzero(table["standing"] != GONE):
        size = int(table["num_members"][row])
        found[table.names[row]] = (
            table.closed[row],
            int(table["standing"][row]),
            [table[name][..., :size, row].tolist() for name in MemberRow._fields],
            table["gap"][:, :size, :size, row].tolist(),
            [column[column >= 0].tolist() for column in table["free_bytes"][..., row]],
            table["most_free"][:, row].tolist(),
            [int(table[name][row]) for name in ("num_parts", "least_allowed_us", "longest_us")],
        )
    return found
