"""The ledger of device memory: enforced across processes, and usable after any death."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from weaverl.domain.cluster import Slot
from weaverl.errors import DeviceMemoryError
from weaverl.runtime.device_memory import DeviceMemory

MIB = 1 << 20
SLOT, OTHER = Slot("rollout-0", 0), Slot("rollout-0", 1)


def ledger(directory, budget=48 * MIB):
    return DeviceMemory(directory, {"rollout-0": budget})


def start(directory, body, budget=48 * MIB):
    code = (
        "import os, sys, time\nfrom pathlib import Path\nfrom weaverl.domain.cluster import Slot\n"
        "from weaverl.errors import DeviceMemoryError\nfrom weaverl.runtime.device_memory import DeviceMemory\n"
        f"memory = DeviceMemory(Path({str(directory)!r}), {{'rollout-0': {budget}}})\n"
        f"slot = Slot('rollout-0', 0)\n{body}"
    )
    return subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


HOLD = "memory.reserve(slot, 36 << 20)\nprint('held', flush=True)\nsys.stdin.read()"


def test_what_does_not_fit_is_refused_with_need_free_and_holder(tmp_path):
    memory = ledger(tmp_path)
    memory.reserve(SLOT, 36 * MIB)
    with pytest.raises(DeviceMemoryError) as refused:
        memory.reserve(SLOT, 31 * MIB + MIB // 2)
    assert str(refused.value) == (
        "needs 31.5 MiB on rollout-0:0, 12.0 MiB free of 48.0 MiB: held by this process (36.0 MiB)"
    )
    assert memory.held_bytes(SLOT) == 36 * MIB


def test_slots_have_budgets_of_their_own(tmp_path):
    memory = ledger(tmp_path)
    memory.reserve(SLOT, 48 * MIB)
    memory.reserve(OTHER, 48 * MIB)
    assert memory.peak_bytes(OTHER) == 48 * MIB


def test_several_slots_are_held_all_or_none(tmp_path):
    memory = ledger(tmp_path)
    memory.reserve(SLOT, 40 * MIB)
    with pytest.raises(DeviceMemoryError):
        memory.hold("state", {OTHER: 10 * MIB, SLOT: 10 * MIB})
    assert (memory.held_bytes(SLOT), memory.held_bytes(OTHER)) == (40 * MIB, 0)


def test_holding_again_for_a_purpose_replaces_and_does_not_add(tmp_path):
    memory = ledger(tmp_path)
    for _ in range(3):
        memory.hold("state", {SLOT: 30 * MIB})
    assert memory.held_bytes(SLOT) == 30 * MIB
    memory.hold("state", {OTHER: 48 * MIB})
    assert (memory.held_bytes(SLOT), memory.held_bytes(OTHER)) == (0, 48 * MIB)


def test_slots_of_both_pools_of_one_host_are_in_one_ledger(tmp_path):
    memory = DeviceMemory(tmp_path, {"rollout-0": 10, "training-0": 20})
    memory.hold("state", {SLOT: 10, Slot("training-0", 0): 20})
    with pytest.raises(DeviceMemoryError, match="training-0:0"):
        memory.hold("more", {Slot("training-0", 0): 1})


def test_peak_outlives_release(tmp_path):
    memory = ledger(tmp_path)
    memory.reserve(SLOT, 40 * MIB)
    memory.release(SLOT, 40 * MIB)
    memory.reserve(SLOT, 8 * MIB)
    assert (memory.held_bytes(SLOT), memory.peak_bytes(SLOT)) == (8 * MIB, 40 * MIB)


def test_without_a_budget_the_ledger_only_records(tmp_path):
    memory = DeviceMemory(tmp_path, {})
    memory.reserve(SLOT, 1 << 50)
    assert memory.held_bytes(SLOT) == 1 << 50


def test_another_process_counts_until_it_is_killed(tmp_path):
    memory = ledger(tmp_path)
    child = start(tmp_path, HOLD)
    assert child.stdout.readline() == "held\n"
    assert [(holder.pid, holder.nbytes) for holder in memory.holders(SLOT)] == [(child.pid, 36 * MIB)]
    with pytest.raises(DeviceMemoryError, match=f"held by pid {child.pid}"):
        memory.reserve(SLOT, 20 * MIB)
    child.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # a zombie holds nothing either
    assert memory.holders(SLOT) == ()
    memory.reserve(SLOT, 48 * MIB)
    child.communicate()


def test_reused_pid_is_not_taken_for_the_dead_holder(tmp_path):
    memory = ledger(tmp_path)
    memory.reserve(SLOT, 36 * MIB)
    path = tmp_path / "device-memory.json"
    record = json.loads(path.read_text())
    record["holders"][0]["started"] -= 1
    path.write_text(json.dumps(record))
    assert memory.holders(SLOT) == ()


def test_ledger_of_an_earlier_boot_is_empty(tmp_path):
    memory = ledger(tmp_path)
    memory.reserve(SLOT, 36 * MIB)
    path = tmp_path / "device-memory.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"boot": "before"}))
    assert memory.holders(SLOT) == ()


RACE = """
print('ready', flush=True)
sys.stdin.readline()
for turn in range(60):
    while True:
        try:
            memory.reserve(slot, 30)
            break
        except DeviceMemoryError:
            time.sleep(0)
    memory.release(slot, 30)
print('done', flush=True)
"""


def test_four_processes_that_race_never_exceed_the_budget(tmp_path):
    children = [start(tmp_path, RACE, budget=70) for _ in range(4)]
    for child in children:
        assert child.stdout.readline() == "ready\n"
    for child in children:
        child.stdin.write("go\n")
        child.stdin.flush()
    assert [child.communicate(timeout=60)[0] for child in children] == ["done\n"] * 4
    assert ledger(tmp_path, 70).peak_bytes(SLOT) == 60
    assert ledger(tmp_path, 70).holders(SLOT) == ()


def test_kill_at_any_moment_leaves_the_ledger_usable(tmp_path):
    change = "    memory.reserve(slot, 1 << 20)\n    memory.release(slot, 1 << 20)\n"
    loop = f"print('ready', flush=True)\nwhile True:\n{change}"
    for delay in range(5):
        child = start(tmp_path, loop)
        assert child.stdout.readline() == "ready\n"
        for _ in range(delay * 40):
            ledger(tmp_path).holders(SLOT)
        child.kill()
        child.communicate()
        memory = ledger(tmp_path)
        assert memory.holders(SLOT) == ()
        memory.reserve(SLOT, 48 * MIB)
        memory.release(SLOT, 48 * MIB)


def test_module_does_not_load_torch():
    modules = "weaverl.runtime.device_memory, weaverl.sync.manifest, weaverl.sync.protocol"
    code = f"import sys, {modules}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_files_stay_in_the_directory_given(tmp_path):
    ledger(tmp_path).reserve(SLOT, 1)
    assert {path.name for path in Path(tmp_path).iterdir()} == {
        "device-memory.json",
        "device-memory.lock",
    }
