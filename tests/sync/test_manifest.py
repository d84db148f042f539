"""A manifest is agreed before any byte moves: names, shapes, dtypes, ties (field cases WS-02, WS-07, WS-08)."""

import pytest

from weaverl.errors import WeightSyncError
from weaverl.sync.manifest import TensorEntry, entry_at, match_entries, packed_offsets


def entry(*names, shape=(2,), dtype="float32", checksum=1):
    return TensorEntry(names=names, shape=shape, dtype=dtype, nbytes=8, checksum=checksum)


def test_wanted_order_need_not_be_the_sent_order():
    assert match_entries([entry("a"), entry("b")], [entry("b"), entry("a")]) == [1, 0]


def test_missing_and_unexpected_names_are_both_listed():
    with pytest.raises(WeightSyncError) as refused:
        match_entries([entry("base_model.a"), entry("b")], [entry("a"), entry("b"), entry("c")])
    assert str(refused.value) == (
        "tensors sent and wanted do not agree: missing a, c; unexpected base_model.a; differing none; "
        "nothing was applied"
    )


def test_long_lists_of_names_are_cut_and_counted():
    with pytest.raises(WeightSyncError, match=r"w0, w1, w2, w3, w4, w5, w6, w7 and 92 more"):
        match_entries([], [entry(f"w{index}") for index in range(100)])


def test_other_dtype_and_other_shape_are_differences_with_both_sides_named():
    with pytest.raises(WeightSyncError, match=r"a \(sent bfloat16 \[2\], wanted float16 \[2\]\)"):
        match_entries([entry("a", dtype="bfloat16")], [entry("a", dtype="float16")])
    with pytest.raises(WeightSyncError, match=r"a \(sent float32 \[151936\], wanted float32 \[152064\]\)"):
        match_entries([entry("a", shape=(151936,))], [entry("a", shape=(152064,))])


def test_wider_float_of_the_receiver_takes_a_narrower_one_but_not_the_reverse():
    assert match_entries([entry("a", dtype="bfloat16")], [entry("a", dtype="float32")]) == [0]
    with pytest.raises(WeightSyncError, match=r"a \(sent float32 \[2\], wanted bfloat16 \[2\]\)"):
        match_entries([entry("a", dtype="float32")], [entry("a", dtype="bfloat16")])


def test_tied_sender_fills_both_tensors_of_an_untied_receiver():
    assert match_entries([entry("embed", "head")], [entry("embed"), entry("head")]) == [0, 0]


def test_tied_sender_fills_a_receiver_that_has_only_one_of_the_names():
    assert match_entries([entry("embed", "head")], [entry("embed")]) == [0]


def test_tied_receiver_takes_untied_tensors_that_are_equal():
    assert match_entries([entry("embed"), entry("head")], [entry("embed", "head")]) == [0]


def test_tied_receiver_refuses_a_differing_head():
    with pytest.raises(WeightSyncError, match="tied here, but the sender has different embed and head"):
        match_entries([entry("embed"), entry("head", checksum=2)], [entry("embed", "head")])


def test_offsets_are_aligned_and_name_the_tensor_of_a_byte():
    entries = [entry("a"), entry("b"), entry("c")]
    assert packed_offsets(entries) == ([0, 64, 128], 192)
    assert [entry_at(entries, offset) for offset in (0, 63, 64, 191)] == ["a", "a", "b", "c"]
