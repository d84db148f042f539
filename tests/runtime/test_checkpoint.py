"""Checkpoints are whole or absent, and training goes on from one to the bit (field cases OF-04, SV-05)."""

import os
import random
import resource
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from weaverl.errors import CheckpointError, FencedError
from weaverl.runtime.checkpoint import load_checkpoint, save_checkpoint
from weaverl.runtime.residency import Residency


class Training:
    """A small run: model with dropout and tied head, optimizer, schedule, data position, all randomness in use."""

    def __init__(self, dtype=torch.float32, seed=0):
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)
        self.model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 4, bias=False)).to(dtype)
        self.unused = nn.Parameter(torch.ones(2))
        self.optimizer = torch.optim.AdamW([*self.model.parameters(), self.unused], lr=0.1)
        self.schedule = torch.optim.lr_scheduler.MultiStepLR(self.optimizer, [2, 5], gamma=0.5)
        self.generator = torch.Generator().manual_seed(seed)
        self.position = {"epoch": 0, "seen": []}

    def state(self):
        return {
            "model": self.model,
            "optimizer": self.optimizer,
            "schedule": self.schedule,
            "generator": self.generator,
            "position": self.position,
        }

    def run(self, steps):
        for _ in range(steps):
            noise = random.random() + np.random.rand() + torch.rand(1, generator=self.generator).item()
            self.position["seen"].append(noise)
            inputs = torch.full((2, 4), noise, dtype=next(self.model.parameters()).dtype)
            self.optimizer.zero_grad()
            self.model(inputs).pow(2).sum().backward()
            self.optimizer.step()
            self.schedule.step()

    def values(self):
        moments = [value for entry in self.optimizer.state.values() for value in entry.values()]
        return [tensor.detach().clone() for tensor in [*self.model.parameters(), *moments]]


def equal(first, second):
    return len(first) == len(second) and all(
        a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(first, second, strict=True)
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_run_that_goes_on_from_a_checkpoint_equals_the_uninterrupted_one_to_the_bit(tmp_path, dtype):
    straight = Training(dtype)
    straight.run(7)
    broken = Training(dtype)
    broken.run(3)
    save_checkpoint(tmp_path, 3, broken.state())
    resumed = Training(dtype, seed=99)
    checkpoint = load_checkpoint(tmp_path)
    checkpoint.restore(resumed.state())
    resumed.position = checkpoint.data["position"]
    resumed.run(7 - checkpoint.iteration)
    assert equal(resumed.values(), straight.values())
    assert resumed.position == straight.position
    assert resumed.schedule.get_last_lr() == straight.schedule.get_last_lr()


def test_restore_into_stepped_state_keeps_objects_and_removes_what_was_not_there(tmp_path):
    training = Training()
    save_checkpoint(tmp_path, 0, training.state())
    training.run(1)
    save_checkpoint(tmp_path, 1, training.state())
    training.run(1)
    weight = training.model[0].weight
    moment = training.optimizer.state[weight]["exp_avg"]
    load_checkpoint(tmp_path).restore(training.state())
    assert training.model[0].weight is weight
    assert training.optimizer.state[weight]["exp_avg"] is moment
    assert training.optimizer.state[weight]["step"].item() == 1
    (tmp_path / "iteration-00000001.json").unlink()
    load_checkpoint(tmp_path).restore(training.state())
    assert len(training.optimizer.state) == 0


def test_moments_of_another_dtype_than_their_parameter_are_not_cast(tmp_path):
    def make(fill):
        parameter = nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
        optimizer = torch.optim.AdamW([parameter])
        if fill:
            optimizer.state[parameter] = {
                "step": torch.tensor(1.0),
                "exp_avg": torch.tensor([0.1, 0.2, 0.3]),
                "exp_avg_sq": torch.tensor([0.1, 0.2, 0.3]),
            }
        return parameter, optimizer

    save_checkpoint(tmp_path, 1, {"optimizer": make(True)[1]})
    parameter, optimizer = make(False)
    load_checkpoint(tmp_path).restore({"optimizer": optimizer})
    assert optimizer.state[parameter]["exp_avg"].dtype == torch.float32
    assert torch.equal(optimizer.state[parameter]["exp_avg"], torch.tensor([0.1, 0.2, 0.3]))


def test_state_that_is_away_is_saved_from_host_memory(tmp_path):
    training = Training()
    training.run(2)
    values = training.values()
    residency = Residency()
    residency.add([training.model, training.optimizer])
    residency.save()
    manifest = save_checkpoint(tmp_path, 2, training.state(), residency=residency)
    assert not residency.resident
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 100_000
    assert manifest.name == "iteration-00000002.json"
    resumed = Training(seed=99)
    load_checkpoint(tmp_path).restore(resumed.state())
    assert equal(resumed.values(), values)


def test_no_checkpoint_is_no_error(tmp_path):
    assert load_checkpoint(tmp_path) is None
    assert load_checkpoint(tmp_path / "absent") is None


def test_only_the_newest_are_kept(tmp_path):
    for iteration in range(5):
        save_checkpoint(tmp_path, iteration, {"position": iteration}, keep=2)
    assert sorted(path.name for path in tmp_path.glob("*.json")) == [
        "iteration-00000003.json",
        "iteration-00000004.json",
    ]
    assert len(list(tmp_path.iterdir())) == 4
    assert load_checkpoint(tmp_path).data == {"position": 4}


def test_same_iteration_can_be_saved_again(tmp_path):
    save_checkpoint(tmp_path, 1, {"position": "first"})
    save_checkpoint(tmp_path, 1, {"position": "second"})
    assert load_checkpoint(tmp_path).data == {"position": "second"}
    assert len(list(tmp_path.iterdir())) == 2


def damage(tmp_path, iteration, how):
    (data,) = tmp_path.glob(f"iteration-{iteration:08d}-*.pt")
    if how == "cut":
        data.write_bytes(data.read_bytes()[:-5])
    elif how == "bit":
        content = bytearray(data.read_bytes())
        content[len(content) // 2] ^= 1
        data.write_bytes(content)
    elif how == "gone":
        data.unlink()
    else:
        (tmp_path / f"iteration-{iteration:08d}.json").write_text("{")


@pytest.mark.parametrize("how", ["cut", "bit", "gone", "manifest"])
def test_damaged_newest_is_passed_over_with_a_warning(tmp_path, how):
    save_checkpoint(tmp_path, 1, {"position": 1})
    save_checkpoint(tmp_path, 2, {"position": 2})
    damage(tmp_path, 2, how)
    with pytest.warns(RuntimeWarning, match=r"iteration-00000002\.json is damaged.*continuing from iteration 1"):
        assert load_checkpoint(tmp_path).data == {"position": 1}
    damage(tmp_path, 1, how)
    with pytest.raises(CheckpointError, match="no whole checkpoint"):
        load_checkpoint(tmp_path)


def test_disk_that_takes_no_more_is_an_error_and_the_previous_checkpoint_stays(tmp_path):
    save_checkpoint(tmp_path, 1, {"position": 1})
    before = sorted(tmp_path.iterdir())
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(CheckpointError, match="iteration 2 could not be saved"):
            save_checkpoint(tmp_path, 2, {"w": torch.ones(100_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert sorted(tmp_path.iterdir()) == before
    assert load_checkpoint(tmp_path).iteration == 1


def test_full_file_system_is_named_as_such(tmp_path):
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(tmp_path)], check=False)
    if mounted.returncode:
        pytest.skip("no right to mount a small file system")
    try:
        save_checkpoint(tmp_path, 1, {"position": 1})
        with pytest.raises(CheckpointError, match="the disk is full"):
            save_checkpoint(tmp_path, 2, {"w": torch.ones(100_000)})
        assert load_checkpoint(tmp_path).iteration == 1
        assert len(list(tmp_path.iterdir())) == 2
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_value_that_cannot_be_saved_is_named_and_nothing_is_written(tmp_path):
    with pytest.raises(CheckpointError, match="callback"):
        save_checkpoint(tmp_path, 1, {"callback": lambda: None})
    assert list(tmp_path.iterdir()) == []


def test_state_that_does_not_agree_is_refused_before_anything_is_changed(tmp_path):
    save_checkpoint(tmp_path, 1, {"a": torch.ones(2), "b": nn.Linear(2, 2)})
    checkpoint = load_checkpoint(tmp_path)
    target = torch.zeros(2)
    for other, message in [
        ({"a": target, "b": nn.Linear(2, 2).bfloat16()}, r"b\.weight was saved as torch\.float32"),
        ({"a": target, "b": nn.Linear(2, 2, bias=False)}, r"has \['bias'\], unknown here"),
        ({"a": target}, r"only in the checkpoint \['b'\]"),
        ({"a": target, "b": torch.ones(2)}, "b was saved as module and is a Tensor here"),
    ]:
        with pytest.raises(CheckpointError, match=message):
            checkpoint.restore(other)
    assert target.tolist() == [0.0, 0.0]


def test_holder_that_was_fenced_off_while_it_wrote_publishes_nothing(tmp_path):
    calls = []

    def check():
        calls.append(len(calls))
        if len(calls) == 2:
            raise FencedError("42 has been granted")

    with pytest.raises(FencedError):
        save_checkpoint(tmp_path, 1, {"position": 1}, check=check)
    assert list(tmp_path.iterdir()) == []


def test_interrupt_while_writing_leaves_the_previous_checkpoint_and_no_rest(tmp_path):
    save_checkpoint(tmp_path, 1, {"position": 1})

    class Interrupting:
        def state_dict(self):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(tmp_path, 2, {"other": Interrupting()})
    assert load_checkpoint(tmp_path).iteration == 1


KILLED = """
import sys, torch
from weaverl.runtime.checkpoint import save_checkpoint
state = {"w": torch.zeros(1 << 20)}
iteration = 0
print("ready", flush=True)
while True:
    iteration += 1
    state["w"].fill_(iteration)
    save_checkpoint(sys.argv[1], iteration, state)
    print(iteration, flush=True)
"""


def test_kill_at_any_moment_leaves_a_whole_checkpoint(tmp_path):
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    written = [child.stdout.readline() for _ in range(4)]
    child.kill()
    child.communicate()
    checkpoint = load_checkpoint(tmp_path)
    assert checkpoint.iteration >= int(written[-1])
    target = {"w": torch.zeros(1 << 20)}
    checkpoint.restore(target)
    assert bool((target["w"] == checkpoint.iteration).all())
    save_checkpoint(tmp_path, checkpoint.iteration + 1, {"position": 0})
    assert len(list(tmp_path.iterdir())) == 4
