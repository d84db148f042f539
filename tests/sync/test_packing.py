"""Tensors travel as contiguous bytes and arrive with their own layout (field cases WS-01, WS-05, WS-16)."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from weaverl.errors import WeightSyncError
from weaverl.sync.manifest import packed_offsets
from weaverl.sync.packing import assign, damaged_tensor, name_tensors, pack, unpack


def as_they_are(tensor):
    return tensor


def packed(tensors, **options):
    return pack(name_tensors(tensors, **options), as_they_are)


def unpacked(entries, data):
    offsets, _ = packed_offsets(entries)
    return {entry.name: unpack(data, entry, offset) for entry, offset in zip(entries, offsets, strict=True)}


def test_strided_column_arrives_as_its_values():
    entries, data = packed({"column": torch.arange(8).reshape(4, 2)[:, 0]})
    assert unpacked(entries, data)["column"].tolist() == [0, 2, 4, 6]


def test_transposed_receiver_gets_values_by_index_and_not_by_memory_order():
    target = torch.zeros(2, 4).t()
    entries, data = packed({"w": torch.arange(8.0).reshape(4, 2)})
    assign(target, unpacked(entries, data)["w"])
    assert torch.equal(target, torch.arange(8.0).reshape(4, 2))
    assert target.stride() == (1, 4)


def test_receiver_with_stride_zero_is_written_once():
    target = torch.zeros(4).expand(3, -1)
    assign(target, torch.arange(4.0).expand(3, -1).contiguous())
    assert torch.equal(target, torch.arange(4.0).expand(3, -1))
    assert target.stride() == (0, 1)


def test_float8_travels_as_its_bytes_and_is_never_cast():
    tensor = torch.tensor([1.0, 2.0, -3.5]).to(torch.float8_e4m3fn)
    entries, data = packed({"w": tensor}, cast_dtype=torch.bfloat16)
    assert entries[0].dtype == "float8_e4m3fn"
    assert torch.equal(unpacked(entries, data)["w"].view(torch.uint8), tensor.view(torch.uint8))


def test_cast_is_done_on_the_sending_side_and_leaves_integers_alone():
    entries, data = packed({"w": torch.tensor([1.0, 0.1]), "n": torch.tensor([7])}, cast_dtype=torch.bfloat16)
    assert [entry.dtype for entry in entries] == ["bfloat16", "int64"]
    assert unpacked(entries, data)["w"].tolist() == torch.tensor([1.0, 0.1]).bfloat16().tolist()
    assert unpacked(entries, data)["n"].item() == 7


def test_tied_tensor_is_packed_once_under_all_of_its_names():
    weight = torch.ones(4)
    entries, data = packed({"embed": weight, "head": weight, "view": weight[:2]})
    assert [entry.names for entry in entries] == [("embed", "head"), ("view",)]
    assert data.numel() == 128


def test_nan_is_refused_by_name():
    with pytest.raises(WeightSyncError, match=r"layer\.w holds NaN"):
        packed({"layer.w": torch.tensor([1.0, float("nan")])})


def test_one_changed_bit_is_found_and_named():
    entries, data = packed({"a": torch.ones(3), "b": torch.ones(3)})
    assert damaged_tensor(data, entries) is None
    data[70] ^= 1
    assert damaged_tensor(data, entries) == "b"


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 3), max_size=3).map(tuple), max_size=5),
    st.sampled_from([torch.float32, torch.bfloat16, torch.float8_e5m2, torch.bool, torch.int16]),
)
def test_any_shapes_are_equal_after_packing_and_unpacking(shapes, dtype):
    tensors = {f"w{index}": torch.randint(0, 2, shape).to(dtype) for index, shape in enumerate(shapes)}
    arrived = unpacked(*packed(tensors))
    assert arrived.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert (arrived[name].shape, arrived[name].dtype) == (tensor.shape, tensor.dtype)
        assert arrived[name].float().tolist() == tensor.float().tolist()
