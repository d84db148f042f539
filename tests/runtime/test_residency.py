"""State moves whole between its slots and host memory, and nothing about it changes (field cases OF, AD-07)."""

import os
import random
import signal
import subprocess
import sys
import threading
import types
import warnings
from collections import deque
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from weaverl.domain.cluster import Slot
from weaverl.errors import DeviceMemoryError, HostMemoryError, PhaseError, ResidencyError
from weaverl.runtime.device_memory import DeviceMemory
from weaverl.runtime.host_arena import HostArena
from weaverl.runtime.residency import Residency

SLOT, OTHER = Slot("t0", 0), Slot("t0", 1)


def residency_of(*states, **options):
    residency = Residency(**options)
    for state in states:
        residency.add(state)
    return residency


def cycle(residency):
    saved = residency.save()
    return saved, residency.restore()


class TiedModel(nn.Module):
    def __init__(self, tied=True):
        super().__init__()
        self.embed = nn.Embedding(4, 3)
        self.head = nn.Linear(3, 4, bias=False)
        self.register_buffer("rope", torch.arange(8.0), persistent=False)
        self.cache = torch.full((5,), 7.0)
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, ids):
        return self.head(self.embed(ids)) * self.rope[0].add(1) + self.cache[0]


def test_saved_state_has_no_memory_and_comes_back_to_the_bit():
    model = TiedModel()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    residency = residency_of(model)
    saved = residency.save()
    assert model.embed.weight.untyped_storage().nbytes() == 0
    assert not residency.resident
    assert saved.bytes == 4 * 3 * 4 + 8 * 4 + 5 * 4
    assert residency.restore().bytes == saved.bytes
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_tied_head_stays_one_parameter_and_is_counted_once():
    model = TiedModel()
    cycle(residency_of(model))
    assert model.head.weight is model.embed.weight
    with torch.no_grad():
        model.head.weight.add_(1)
    assert torch.equal(model.head.weight, model.embed.weight)


def test_untied_head_stays_untied():
    model = TiedModel(tied=False)
    cycle(residency_of(model))
    assert model.head.weight.data_ptr() != model.embed.weight.data_ptr()


def test_buffers_outside_the_state_dict_and_plain_attributes_survive():
    model = TiedModel()
    ids = torch.tensor([0, 1, 2])
    before = model(ids).detach().clone()
    cycle(residency_of(model))
    assert torch.equal(model(ids), before)


def test_expanded_buffer_keeps_stride_zero_and_is_charged_its_storage():
    buffer = torch.arange(4.0).expand(3, -1)
    residency = residency_of(buffer)
    assert residency.nbytes() == 16
    cycle(residency)
    assert (buffer.shape, buffer.stride(), buffer.untyped_storage().nbytes()) == ((3, 4), (0, 1), 16)
    assert torch.equal(buffer, torch.arange(4.0).expand(3, -1))


def test_views_of_one_flat_block_follow_it_afterwards():
    flat = torch.arange(6.0)
    first, second = flat[:3], flat[3:]
    cycle(residency_of([first, second]))
    flat += 1
    assert torch.equal(first, torch.tensor([1.0, 2.0, 3.0]))
    assert torch.equal(second, torch.tensor([4.0, 5.0, 6.0]))


def test_view_that_nobody_listed_follows_its_storage():
    flat = torch.arange(6.0)
    unlisted = flat[2:]
    cycle(residency_of(flat))
    flat += 1
    assert unlisted.tolist() == [3.0, 4.0, 5.0, 6.0]


def test_parameter_held_outside_is_the_same_object_with_its_gradient():
    model = nn.Linear(3, 2)
    outside = model.weight
    model(torch.ones(1, 3)).sum().backward()
    gradient = model.weight.grad
    residency = residency_of(model)
    saved, _ = cycle(residency)
    assert outside is model.weight
    assert model.weight.grad is gradient
    assert torch.equal(gradient, torch.ones(2, 3))
    assert saved.bytes == 2 * (6 + 2) * 4


def train(model, optimizer, residency=None, steps=4):
    for step in range(steps):
        if residency is not None:
            cycle(residency)
        optimizer.zero_grad()
        output = model.first(torch.full((2, 3), float(step + 1)))
        (output if step < 2 else model.second(output)).pow(2).sum().backward()
        if residency is not None:
            cycle(residency)
        optimizer.step()


def two_layers(dtype):
    torch.manual_seed(3)
    model = nn.Module()
    model.first, model.second = nn.Linear(3, 3), nn.Linear(3, 2)
    return model.to(dtype)


@pytest.mark.parametrize(
    "make", [torch.optim.AdamW, torch.optim.Adagrad, lambda p: torch.optim.SGD(p, 0.1, momentum=0.9)]
)
def test_optimizer_steps_equal_those_of_a_twin_that_never_moved(make):
    models = [two_layers(torch.float32) for _ in range(2)]
    optimizers = [make(list(model.parameters())) for model in models]
    train(models[0], optimizers[0])
    train(models[1], optimizers[1], residency_of(models[1], optimizers[1]))
    assert all(torch.equal(a, b) for a, b in zip(models[0].parameters(), models[1].parameters(), strict=True))


def test_optimizer_that_was_not_stepped_gets_no_entries():
    model = nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    cycle(residency_of(model, optimizer))
    assert len(optimizer.state) == 0


def test_moments_of_another_dtype_than_their_parameter_keep_dtype_and_bits():
    parameter = nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
    optimizer = torch.optim.AdamW([parameter])
    moment = torch.tensor([0.1, 0.2, 0.3])
    optimizer.state[parameter] = {"step": torch.tensor(1.0), "exp_avg": moment, "exp_avg_sq": moment.clone()}
    saved, _ = cycle(residency_of(optimizer))
    assert optimizer.state[parameter]["exp_avg"] is moment
    assert moment.dtype == torch.float32
    assert torch.equal(moment, torch.tensor([0.1, 0.2, 0.3]))
    assert saved.bytes == 6 + 4 + 12 + 12


class MasterWeights(torch.optim.SGD):
    """A wrapped optimizer with a second map of fp32 copies, keyed by the model's parameters."""

    def __init__(self, parameters):
        parameters = list(parameters)
        super().__init__(parameters, 0.1)
        self.masters = {parameter: parameter.detach().float().clone() for parameter in parameters}

    @torch.no_grad()
    def step(self):
        for parameter, master in self.masters.items():
            if parameter.grad is not None:
                master -= 0.1 * parameter.grad.float()
                parameter.copy_(master)


def test_masters_keyed_by_parameters_move_with_them():
    models = [two_layers(torch.bfloat16) for _ in range(2)]
    for model, moved in zip(models, (False, True), strict=True):
        optimizer = MasterWeights(model.parameters())
        inputs = torch.ones(1, 3, dtype=torch.bfloat16)
        for step in range(3):
            optimizer.zero_grad()
            (model.first(inputs) if step == 1 else model.second(model.first(inputs))).sum().backward()
            if moved:
                cycle(residency_of(model, optimizer))
            optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(models[0].parameters(), models[1].parameters(), strict=True))


def test_plain_object_with_cycles_containers_and_slots_is_walked():
    class Slotted:
        __slots__ = ("tensor",)

    engine = types.SimpleNamespace(model=nn.Linear(2, 2), lock=threading.Lock(), thread=threading.current_thread())
    engine.self = engine
    engine.caches = {"keys": deque([torch.ones(3)]), "values": (torch.ones(4), {torch.ones(5)})}
    engine.slotted = Slotted()
    engine.slotted.tensor = torch.ones(6)
    assert residency_of(engine).nbytes() == 4 * (4 + 2 + 3 + 4 + 5 + 6)


def test_sparse_tensor_moves_by_its_indices_and_values():
    sparse = torch.sparse_coo_tensor([[0, 2]], [1.0, 2.0], (4,), check_invariants=False)
    before = sparse.to_dense().clone()
    cycle(residency_of(sparse))
    assert torch.equal(sparse.to_dense(), before)


def test_tensor_without_plain_storage_is_refused_by_name_and_nothing_moves():
    model = nn.Linear(2, 2)
    residency = residency_of(states := [model])
    states.append(torch.ones(3).to_mkldnn())
    with pytest.raises(ResidencyError, match=r"state\[1\]"):
        residency.save()
    assert residency.resident
    assert model.weight.untyped_storage().nbytes() == 16


def test_numpy_memory_becomes_memory_that_can_be_freed():
    tensor = nn.Parameter(torch.from_numpy(np.ones(4, dtype=np.float32)))
    view = tensor.detach()[1:]
    residency = residency_of([tensor, view])
    residency.save()
    assert tensor.untyped_storage().nbytes() == 0
    residency.restore()
    with torch.no_grad():
        tensor.add_(1)
    assert view.tolist() == [2.0, 2.0, 2.0]


def test_weights_mapped_from_a_file_move_even_while_autograd_holds_them(tmp_path):
    file = tmp_path / "weights.pt"
    torch.save({"weight": torch.ones(2, 3)}, file)
    model = nn.Linear(3, 2, bias=False)
    model.load_state_dict(torch.load(file, mmap=True), assign=True)
    residency = residency_of(model)
    loss = model(torch.ones(1, 3)).pow(2).sum()
    cycle(residency)
    loss.backward()
    assert model.weight.grad.tolist() == [[6.0] * 3] * 2


def test_numpy_memory_with_a_view_outside_of_the_state_is_refused():
    tensor = torch.from_numpy(np.ones(4, dtype=np.float32))
    outside = tensor[1:]
    with pytest.raises(ResidencyError, match=r"state \(16 bytes\) is also held by a tensor outside"):
        residency_of(tensor)
    tensor.add_(1)
    assert outside.tolist() == [2.0, 2.0, 2.0]


def test_two_tensors_on_one_numpy_array_are_refused():
    array = np.ones(4, dtype=np.float32)
    with pytest.raises(ResidencyError, match="shares memory"):
        residency_of([torch.from_numpy(array), torch.from_numpy(array)])


def test_memory_shared_with_other_processes_is_refused():
    with pytest.raises(ResidencyError, match="shared with other processes"):
        residency_of(torch.ones(4).share_memory_())


def test_limit_that_holds_three_of_five_tensors_moves_none_and_names_the_fourth():
    tensors = {f"w{index}": torch.full((16,), float(index)) for index in range(5)}
    residency = Residency(host_limit_bytes=3 * 64)
    residency.add(tensors, "model")
    with pytest.raises(HostMemoryError, match=r"model\.w3 \(64 bytes\) does not fit"):
        residency.save()
    assert residency.resident
    assert all(tensor.tolist() == [float(index)] * 16 for index, tensor in enumerate(tensors.values()))


RESTORE_WITHOUT_MEMORY = """
import resource, torch
from pathlib import Path
from weaverl.errors import ResidencyError
from weaverl.runtime.residency import Residency
state = {f"w{i}": torch.full((4 << 20,), float(i)) for i in range(5)}
residency = Residency()
residency.add(state)
residency.save()
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (50 << 20), -1))
try:
    residency.restore()
except ResidencyError as error:
    print(error)
assert all(t.untyped_storage().nbytes() == 0 for t in state.values()) and not residency.resident
resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
residency.restore()
assert all(t[0] == i and t[-1] == i for i, t in enumerate(state.values()))
"""


def test_restore_that_fails_in_the_middle_leaves_all_away_and_succeeds_later():
    done = run_python(RESTORE_WITHOUT_MEMORY)
    assert "state.w3 (16777216 bytes) could not be restored" in done or "state.w2 (16777216 bytes)" in done


def run_python(code):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def resident_set_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_resident_set_is_flat_and_the_arena_the_same_over_200_cycles():
    residency = residency_of([torch.ones(1 << 18) for _ in range(4)])
    cycle(residency)
    before, arena = resident_set_bytes(), residency.host_bytes
    for _ in range(200):
        cycle(residency)
    assert residency.host_bytes == arena == 4 << 20
    assert abs(resident_set_bytes() - before) < 0.05 * before


def test_600_small_tensors_take_no_file_descriptors():
    before = len(list(Path("/proc/self/fd").iterdir()))
    residency = residency_of([torch.ones(3) for _ in range(600)])
    residency.save()
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 1


def test_state_created_between_saves_moves_at_the_next_one():
    holder = {"first": torch.ones(4)}
    residency = residency_of(holder)
    assert cycle(residency)[0].bytes == 16
    holder["second"] = torch.ones(1 << 20)
    assert cycle(residency)[0].bytes == 16 + (4 << 20)
    assert holder["second"].sum() == 1 << 20


def test_saving_twice_and_restoring_twice_moves_once():
    residency = residency_of(torch.ones(4))
    assert [residency.save().bytes, residency.save().bytes] == [16, 0]
    assert [residency.restore().bytes, residency.restore().bytes] == [16, 0]


def test_save_of_another_thread_waits_for_the_phase_that_holds_the_lock():
    residency = residency_of(torch.ones(4))
    saver = threading.Thread(target=residency.save)
    with residency.lock:
        saver.start()
        saver.join(timeout=0.05)
        assert saver.is_alive()
        assert residency.resident
    saver.join(timeout=5)
    assert not residency.resident


def test_tensors_are_read_and_written_in_host_memory_while_they_are_away():
    weight = torch.arange(12.0).reshape(3, 4)
    column = weight.t()[1:]
    residency = residency_of(weight)
    residency.save()
    with residency.reading() as view:
        assert view(column).stride() == column.stride()
        assert torch.equal(view(column), torch.arange(12.0).reshape(3, 4).t()[1:])
        view(weight)[0, 0] = 50.0
        assert view(weight).data_ptr() != 0
    residency.restore()
    assert weight[0, 0] == 50.0
    assert residency.host_view(weight).data_ptr() == weight.data_ptr()


def test_slots_are_charged_on_restore_and_free_after_save(tmp_path):
    memory = DeviceMemory(tmp_path, {"t0": 100})
    residency = residency_of(torch.ones(16), memory=memory)
    residency.settle([SLOT])
    assert memory.held_bytes(SLOT) == 64
    residency.save()
    assert memory.held_bytes(SLOT) == 0
    residency.restore([OTHER])
    assert (memory.held_bytes(SLOT), memory.held_bytes(OTHER)) == (0, 64)


def test_resident_state_follows_the_permit_from_slot_to_slot(tmp_path):
    memory = DeviceMemory(tmp_path, {"t0": 100})
    residency = residency_of(torch.ones(16), memory=memory)
    residency.settle([SLOT])
    assert residency.restore([OTHER]).bytes == 0
    assert (memory.held_bytes(SLOT), memory.held_bytes(OTHER)) == (0, 64)


def test_restore_beyond_the_budget_is_refused_and_state_stays_away(tmp_path):
    memory = DeviceMemory(tmp_path, {"t0": 100})
    tensor = torch.ones(16)
    residency = residency_of(tensor, memory=memory)
    residency.save()
    memory.reserve(SLOT, 50)
    with pytest.raises(DeviceMemoryError):
        residency.restore([SLOT])
    assert not residency.resident
    assert memory.held_bytes(SLOT) == 50
    memory.release(SLOT, 50)
    residency.restore([SLOT])
    assert tensor.sum() == 16


def test_state_over_several_slots_is_charged_evenly(tmp_path):
    memory = DeviceMemory(tmp_path, {"t0": 100})
    residency = residency_of(torch.ones(5), memory=memory)
    residency.settle([SLOT, OTHER])
    assert (memory.held_bytes(SLOT), memory.held_bytes(OTHER)) == (10, 10)


def test_refused_page_lock_falls_back_with_one_warning_that_gives_limit_and_need():
    asked = []

    def refuse(memory):
        asked.append(memory.numel())
        return False

    arena = HostArena(pin=refuse)
    with pytest.warns(RuntimeWarning, match=r"needs 2097152 bytes, the memlock limit of this process is"):
        arena.ensure(1 << 20)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        arena.ensure(3 << 20)
    assert asked == [2 << 20]
    assert arena.slice(0, 4).numel() == 4


def test_empty_state_is_never_page_locked():
    arena = HostArena(pin=lambda memory: pytest.fail(f"asked to pin {memory.numel()} bytes"))
    arena.ensure(0)
    residency = residency_of(torch.empty(0))
    assert cycle(residency)[0].bytes == 0


shapes = st.lists(st.integers(0, 3), max_size=3).map(tuple)
dtypes = st.sampled_from(
    [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.int64, torch.bool, torch.complex64, torch.uint8]
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(shapes, dtypes, st.booleans()), max_size=6), st.integers(1, 3))
def test_any_mix_of_shapes_dtypes_and_views_survives_any_number_of_cycles(descriptions, cycles):
    tensors = []
    for shape, dtype, transposed in descriptions:
        tensor = torch.randint(0, 2, shape).to(dtype)
        tensors.append(tensor.mT if transposed and tensor.dim() >= 2 else tensor)
    before = [(id(t), t.stride(), t.dtype, t.cpu().clone()) for t in tensors]
    residency = residency_of(tensors)
    for _ in range(cycles):
        cycle(residency)
    for tensor, (identity, stride, dtype, values) in zip(tensors, before, strict=True):
        assert (id(tensor), tensor.stride(), tensor.dtype) == (identity, stride, dtype)
        assert bytes_of(tensor) == bytes_of(values)


def bytes_of(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8).tolist()


def test_state_that_moves_to_another_device_keeps_objects_aliases_and_gradients():
    model = TiedModel()
    model(torch.tensor([1])).sum().backward()
    weight, gradient, row = model.head.weight, model.embed.weight.grad, model.rope[2:]
    residency = residency_of(model, row)
    residency.save()
    residency.restore(devices={torch.device("cpu"): torch.device("cpu:0")})
    assert model.embed.weight is weight is model.head.weight
    assert weight.grad is gradient
    model.rope += 1
    assert row.tolist() == [3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
    assert cycle(residency)[0].bytes > 0


def test_state_with_a_view_outside_does_not_move_to_another_device():
    tensors = [torch.arange(4.0), torch.arange(6.0)]
    outside = tensors[1][3:]
    residency = residency_of(tensors)
    residency.save()
    with pytest.raises(ResidencyError, match="held by a tensor outside"):
        residency.restore(devices={torch.device("cpu"): torch.device("cpu:0")})
    assert not residency.resident
    residency.restore()
    assert outside.tolist() == [3.0, 4.0, 5.0]
    assert tensors[0].tolist() == [0.0, 1.0, 2.0, 3.0]


class InterruptedHereError(Exception):
    pass


def test_signal_in_the_middle_of_a_move_leaves_state_whole_in_one_place(tmp_path):
    memory = DeviceMemory(tmp_path, {"t0": 1 << 20})
    tensors = [torch.full((1 << 12,), float(index)) for index in range(40)]
    residency = residency_of(tensors, memory=memory)
    clock = random.Random(5)

    def interrupt(*_):
        raise InterruptedHereError

    previous = signal.signal(signal.SIGALRM, interrupt)
    interrupted = 0
    try:
        for _ in range(200):
            try:
                signal.setitimer(signal.ITIMER_REAL, clock.uniform(1e-5, 4e-3))
                cycle_on(residency, SLOT)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except InterruptedHereError:
                interrupted += 1
            sizes = {tensor.untyped_storage().nbytes() for tensor in tensors}
            assert sizes == ({1 << 14} if residency.resident else {0})
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    cycle_on(residency, SLOT)
    assert all(bool((tensor == index).all()) for index, tensor in enumerate(tensors))
    assert memory.held_bytes(SLOT) == residency.nbytes()
    assert interrupted > 20


def cycle_on(residency, slot):
    residency.save()
    residency.restore([slot])


def test_tensors_made_in_inference_mode_move():
    with torch.inference_mode():
        tensor = torch.arange(4.0)
    cycle(residency_of(tensor))
    assert tensor.tolist() == [0.0, 1.0, 2.0, 3.0]


def test_modules_and_optimizers_refuse_use_while_their_state_is_away():
    model = TiedModel()
    optimizer = torch.optim.AdamW(model.parameters())
    residency = Residency()
    residency.add({"policy": model, "optimizer": optimizer}, "training")
    residency.save()
    ids = torch.tensor([1])
    for use, name in [
        (lambda: model(ids), "training.policy"),
        (lambda: model.head(torch.ones(1, 3)), "training.policy.head"),
        (optimizer.step, "training.optimizer"),
    ]:
        with pytest.raises(PhaseError, match=f"^{name} was used while its state is away in host memory"):
            use()
    residency.restore()
    model(ids).sum().backward()
    optimizer.step()
    assert not model._forward_pre_hooks


def test_state_added_while_the_rest_is_away_joins_it_at_the_next_save():
    first, second = torch.ones(1 << 19), torch.full((1 << 20,), 2.0)
    residency = residency_of(first)
    residency.save()
    residency.add(second)
    assert residency.save().bytes == 4 << 20
    assert second.untyped_storage().nbytes() == 0
    with residency.reading() as view:
        assert view(first)[-1] == 1.0
    assert residency.restore().bytes == 6 << 20
    assert (first.sum(), second.sum()) == (1 << 19, 2 << 20)
