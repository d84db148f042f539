"""Two real GRPO jobs under policy weave, restored ahead: the plain script's bits, and restores that really were."""

from pathlib import Path

import grpo_cluster
import msgspec
import pytest
from grpo_cluster import ENGINE_BYTES, SEEDS, TRAINER_BYTES, running, tiny_job

from auditor import audit
from weaverl.cli.live_timeline import live_timeline
from weaverl.control.client import Client, connect
from weaverl.domain.cluster import Slot
from weaverl.domain.jobs import DeviceMemory as Needs
from weaverl.domain.jobs import DeviceNeed, PhaseKind
from weaverl.domain.timeline import Timeline
from weaverl.reports.timeline_file import write_timeline
from weaverl.runtime.device_memory import DeviceMemory
from weaverl.scheduling.state import Parameters

pytestmark = pytest.mark.slow(reason="cold starts of torch: a minute for each of two runs")


class Woven:
    """What one woven run left behind; with ``beside`` devices have room for two states, and jobs say so."""

    def __init__(self, out: Path, *, beside: bool) -> None:
        share = 3 if beside else 1
        of = grpo_cluster.cluster(share * ENGINE_BYTES + 4096, share * TRAINER_BYTES + 4096)
        with running(of, Parameters(policy="weave")) as home:
            store = connect(home.require_head().access)
            client = Client(store)
            for seed in SEEDS:
                job = tiny_job("job.yaml", seed, out)
                client.submit(msgspec.structs.replace(job, device_memory=needs()) if beside else job)
            self.expected = grpo_cluster.plain_records()
            grpo_cluster.await_jobs(client)
            header, self.timeline = live_timeline(store, of)
            memory = DeviceMemory(home.directory, {})
            self.peaks = [memory.peak_bytes(Slot(node.name, 0)) for node in of.nodes]
        self.found = {seed: grpo_cluster.written_record(out, seed) for seed in SEEDS}
        self.file = out / "woven.jsonl"
        write_timeline(self.file, header, self.timeline)


def needs() -> Needs:
    rollout, training = (DeviceNeed(state_bytes=size, working_bytes=size) for size in (ENGINE_BYTES, TRAINER_BYTES))
    return Needs(rollout=rollout, training=training)


@pytest.fixture(scope="module", params=[False, True], ids=["while idle", "beside the holder"])
def woven(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Woven:
    return Woven(tmp_path_factory.mktemp("ahead"), beside=request.param)


def test_losses_rewards_and_weights_are_bit_for_bit_those_of_the_plain_script(woven: Woven):
    assert woven.found == woven.expected
    assert woven.found[0] != woven.found[1]


def used(timeline: Timeline) -> int:
    """Phases that found their state on the slots, restored ahead with all its bytes."""
    restored = {
        (one.job, str(one.restored), one.left_at): one.restored_bytes for one in timeline.restores if one.restored_bytes
    }
    phases = [one for one in timeline.intervals if one.phase in (PhaseKind.ROLLOUT, PhaseKind.TRAINING)]
    return sum(
        one.restored_bytes == 0 and restored.get((one.job, str(one.phase), one.granted_at), 0) > 0 for one in phases
    )


def test_state_was_restored_ahead_and_used(woven: Woven):
    assert used(woven.timeline) > 0


def test_the_auditor_confirms_the_timeline(woven: Woven):
    assert audit(woven.file).findings == ()


def test_no_device_held_more_than_it_has(woven: Woven):
    assert all(peak <= 2 * size for peak, size in zip(woven.peaks, (ENGINE_BYTES, TRAINER_BYTES), strict=True))
