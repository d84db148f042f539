"""Two real GRPO jobs of three processes each, woven: the bits of the plain script, and state that really moved."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import grpo_cluster
import pytest
from grpo_cluster import ENGINE_BYTES, SEEDS, TRAINER_BYTES, running, tiny_job

from auditor import audit
from weaverl.cli.live_timeline import live_timeline
from weaverl.control.client import Client, connect
from weaverl.domain.cluster import Slot
from weaverl.domain.jobs import PhaseKind
from weaverl.domain.timeline import Interval
from weaverl.domain.units import GIB
from weaverl.reports.metrics import MIB, run_figures
from weaverl.reports.timeline_file import write_timeline
from weaverl.runtime.device_memory import DeviceMemory

ITERATIONS = 4
BF16_MODEL_BYTES = 38_336


class Woven:
    """What one woven run left behind."""

    def __init__(self, out: Path) -> None:
        of = grpo_cluster.cluster(ENGINE_BYTES + 4096, TRAINER_BYTES + 4096)
        with running(of) as home:
            store = connect(home.require_head().access)
            client = Client(store)
            for seed in SEEDS:
                client.submit(tiny_job("job.yaml", seed, out))
            self.expected = grpo_cluster.plain_records()
            grpo_cluster.await_jobs(client)
            self.header, timeline = live_timeline(store, of)
            memory = DeviceMemory(home.directory, {})
            self.peaks = [memory.peak_bytes(Slot(node.name, 0)) for node in of.nodes]
        self.intervals = timeline.intervals
        self.figures = run_figures(of, timeline)
        self.found = {seed: grpo_cluster.written_record(out, seed) for seed in SEEDS}
        self.file = out / "woven.jsonl"
        write_timeline(self.file, self.header, timeline)

    def phases(self, kind: PhaseKind) -> list[Interval]:
        return [one for one in self.intervals if one.phase is kind]


@pytest.fixture(scope="module")
def woven(tmp_path_factory: pytest.TempPathFactory) -> Woven:
    return Woven(tmp_path_factory.mktemp("woven"))


def test_losses_rewards_and_weights_are_bit_for_bit_those_of_the_plain_script(woven: Woven):
    assert woven.found == woven.expected
    assert woven.found[0] != woven.found[1]


def handovers(held: Sequence[Interval]) -> list[Interval]:
    """The permits after which the slot went to another job."""
    return [before for before, after in pairwise(held) if before.job != after.job]


def departures(woven: Woven, kind: PhaseKind) -> list[Interval]:
    """The phases after which state left its slot, also for a cold start: on a busy machine one job loads late."""
    slots = {slot for one in woven.phases(kind) for slot in one.slots}
    held = [one for one in woven.intervals if one.phase is not PhaseKind.SYNC and slots.intersection(one.slots)]
    return [one for one in handovers(held) if one.phase is kind]


def test_moved_bytes_are_state_times_hand_overs(woven: Woven):
    warm = [handovers(woven.phases(kind)) for kind in (PhaseKind.ROLLOUT, PhaseKind.TRAINING)]
    assert all(warm), "at least once, however late one of the jobs has loaded on a busy machine"
    assert woven.figures.handovers == sum(map(len, warm))
    rollouts, trainings = departures(woven, PhaseKind.ROLLOUT), departures(woven, PhaseKind.TRAINING)
    expected = len(rollouts) * ENGINE_BYTES + len(trainings) * TRAINER_BYTES
    assert woven.figures.moved_gib * GIB == pytest.approx(expected)


def test_no_device_ever_held_the_state_of_two_jobs(woven: Woven):
    assert woven.peaks == [ENGINE_BYTES, TRAINER_BYTES]


def test_every_iteration_synced_one_bf16_model(woven: Woven):
    assert {one.moved_bytes for one in woven.phases(PhaseKind.SYNC)} == {BF16_MODEL_BYTES}
    assert woven.figures.sync_mib * MIB == pytest.approx(2 * ITERATIONS * BF16_MODEL_BYTES)


def test_the_auditor_finds_nothing(woven: Woven):
    assert audit(woven.file).findings == ()
