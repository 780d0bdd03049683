"""What is refused, in which words; and the small parts of the contract: blocks, views of one head, cropped views."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from kernel_cases import Case, attended, build

from attnviz_kernels import (
    ArgumentError,
    Emit,
    Mask,
    attend,
    pool,
    pool_edges,
    pull,
    push,
    tile,
    view_of,
    weight_gradients,
)

QUERY, KEY, VALUE = torch.zeros(2, 4, 5, 16), torch.zeros(2, 2, 7, 16), torch.zeros(2, 2, 7, 8)
TRUE = torch.ones(2, 7, dtype=torch.bool)
INTEGERS = torch.zeros(2, 7, dtype=torch.int64)

BAD_CALLS = {
    "no tensor": ({"query": [1.0]}, "query must be a tensor, got list"),
    "rank of query": (
        {"query": QUERY[0]},
        "query must have 4 axes [batch, heads, positions, size], got (4, 5, 16)",
    ),
    "rank of value": (
        {"value": VALUE[None]},
        "value must have 4 axes [batch, heads, positions, size], got (1, 2, 2, 7, 8)",
    ),
    "integer query": (
        {"query": QUERY.long()},
        "query must be float16, bfloat16, float32 or float64, got torch.int64",
    ),
    "integer value": (
        {"value": VALUE.int()},
        "value must be float16, bfloat16, float32 or float64, got torch.int32",
    ),
    "no queries": ({"query": QUERY[:, :, :0]}, "query must have no empty axis, got (2, 4, 0, 16)"),
    "no keys": (
        {"key": KEY[:, :, :0], "value": VALUE[:, :, :0]},
        "key must have no empty axis, got (2, 2, 0, 16)",
    ),
    "mixed dtypes": (
        {"key": KEY.half()},
        "key must have the dtype of query (torch.float32), got torch.float16",
    ),
    "mixed devices": (
        {"value": VALUE.to("meta")},
        "value must be on the device of query (cpu), got meta",
    ),
    "batch": ({"key": KEY[:1]}, "key must have the batch size of query (2), got 1"),
    "head size": ({"key": KEY[..., :8]}, "key must have the head size of query (16), got 8"),
    "heads": (
        {"key": torch.zeros(2, 3, 7, 16), "value": torch.zeros(2, 3, 7, 8)},
        "key must have a number of heads that divides query's (4), got 3",
    ),
    "lengths": (
        {"value": VALUE[:, :, :6]},
        "value must have the batch, heads and positions of key (2, 2, 7), got (2, 2, 6)",
    ),
    "NaN scale": ({"scale": float("nan")}, "scale must be a finite number or None, got nan"),
    "infinite scale": ({"scale": float("inf")}, "scale must be a finite number or None, got inf"),
    "scale in words": ({"scale": "small"}, "scale must be a finite number or None, got small"),
    "softcap of zero": ({"softcap": 0.0}, "softcap must be positive or None, got 0.0"),
    "NaN softcap": ({"softcap": float("nan")}, "softcap must be positive or None, got nan"),
    "integer bias": ({"bias": INTEGERS}, "bias must be floating point, got torch.int64"),
    "bias of another size": (
        {"bias": torch.zeros(4, 7, 5)},
        "bias must broadcast to [batch, heads, queries, keys] (2, 4, 5, 7), got (4, 7, 5)",
    ),
    "bias of rank 5": (
        {"bias": torch.zeros(1, 1, 1, 1, 7)},
        "bias must broadcast to [batch, heads, queries, keys] (2, 4, 5, 7), got (1, 1, 1, 1, 7)",
    ),
    "bias elsewhere": (
        {"bias": torch.zeros(7, device="meta")},
        "bias must be on the device of query (cpu), got meta",
    ),
    "sinks for another number of heads": ({"sinks": torch.zeros(2)}, "sinks must have shape (4,), got (2,)"),
    "integer sinks": ({"sinks": torch.zeros(4).int()}, "sinks must be floating point, got torch.int32"),
    "a tensor as mask": (
        {"mask": TRUE},
        "mask must be a Mask, got Tensor; a tensor goes into Mask(dense=...)",
    ),
    "negative offset": ({"mask": Mask(offset=-1)}, "mask.offset must be a whole number >= 0, got -1"),
    "fractional offset": ({"mask": Mask(offset=0.5)}, "mask.offset must be a whole number >= 0, got 0.5"),
    "negative window": (
        {"mask": Mask(window=(-1, 0))},
        "mask.window must be (left, right), each a whole number >= 0 or None, got (-1, 0)",
    ),
    "one-sided window": (
        {"mask": Mask(window=5)},
        "mask.window must be (left, right), each a whole number >= 0 or None, got 5",
    ),
    "chunk of zero": ({"mask": Mask(chunk=0)}, "mask.chunk must be a positive whole number or None, got 0"),
    "padding of numbers": (
        {"mask": Mask(key_padding=INTEGERS)},
        "mask.key_padding must be bool, got torch.int64",
    ),
    "padding of another length": (
        {"mask": Mask(key_padding=TRUE[:, :5])},
        "mask.key_padding must have shape (2, 7), got (2, 5)",
    ),
    "padding elsewhere": (
        {"mask": Mask(key_padding=TRUE.to("meta"))},
        "mask.key_padding must be on the device of query (cpu), got meta",
    ),
    "segments of one side": (
        {"mask": Mask(segments=(INTEGERS,))},
        "mask.segments must be two tensors, of the queries and of the keys",
    ),
    "segments of floats": (
        {"mask": Mask(segments=(INTEGERS[:, :5], INTEGERS.float()))},
        "mask.segments[1] must hold integers, got torch.float32",
    ),
    "segments of another length": (
        {"mask": Mask(segments=(INTEGERS, INTEGERS))},
        "mask.segments[0] must have shape (2, 5), got (2, 7)",
    ),
    "dense mask of integers": (
        {"mask": Mask(dense=INTEGERS)},
        "mask.dense must be floating point or bool, got torch.int64",
    ),
    "dense mask of another size": (
        {"mask": Mask(dense=torch.ones(3, 5, 7).bool())},
        "mask.dense must broadcast to [batch, heads, queries, keys] (2, 4, 5, 7), got (3, 5, 7)",
    ),
    "a word as emit": ({"emit": "weights"}, "emit must be an Emit, got str"),
    "grid of zero": (
        {"emit": Emit(pooled=(0, 3))},
        "emit.pooled must be two positive whole numbers, got (0, 3)",
    ),
    "grid of one number": (
        {"emit": Emit(pooled=64)},
        "emit.pooled must be two positive whole numbers, got 64",
    ),
    "head that is not there": (
        {"emit": Emit(weights=True, heads=(0, 4))},
        "emit.heads must lie in 0 to 3, got 4",
    ),
    "negative head": ({"emit": Emit(weights=True, heads=(-1,))}, "emit.heads must lie in 0 to 3, got -1"),
    "rows beyond the end": (
        {"emit": Emit(weights=True, rows=range(0, 6))},
        "emit.rows must be a contiguous range within 0 to 5, got range(0, 6)",
    ),
    "every other row": (
        {"emit": Emit(weights=True, rows=range(0, 4, 2))},
        "emit.rows must be a contiguous range within 0 to 5, got range(0, 4, 2)",
    ),
    "heads of nothing": ({"emit": Emit(heads=(0,))}, "emit.heads and emit.rows need emit.weights=True"),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_a_bad_argument_is_named_with_rule_and_value(name):
    changes, message = BAD_CALLS[name]
    arguments = {"query": QUERY, "key": KEY, "value": VALUE} | changes
    with pytest.raises(ArgumentError) as caught:
        attend(**arguments)
    assert str(caught.value) == message
    assert isinstance(caught.value, ValueError)


def some_view():
    call = build(Case("cached", "window-causal", "all", "contiguous"), torch.float32)  # H = 4, M = 17, N = 90
    return view_of(call, attended(call, "reference"))


BAD_VIEWS = {
    "rows beyond the end": (
        lambda view: tile(view, slice(17, 20)),
        "rows must select at least one of 17 positions, got 17:20",
    ),
    "no columns": (
        lambda view: tile(view, cols=slice(5, 5)),
        "cols must select at least one of 90 positions, got 5:5",
    ),
    "every other column": (
        lambda view: tile(view, cols=slice(0, 9, 2)),
        "cols must be a contiguous range (step 1), got step 2",
    ),
    "a grid of nothing": (lambda view: pool(view, (3, 0)), "shape must be two positive whole numbers, got (3, 0)"),
    "another reduction": (
        lambda view: pool(view, (3, 3), reduce="sum"),
        'reduce must be "mean" or "max", got \'sum\'',
    ),
    "a vector of queries pushed": (
        lambda view: push(view, torch.zeros(1, 4, 17, 2)),
        "vector must have shape (1 or 1, 4 or 1, 90, any), got (1, 4, 17, 2)",
    ),
    "a vector without heads": (
        lambda view: pull(view, torch.zeros(17, 2)),
        "vector must have shape (1 or 1, 4 or 1, 17, any), got (17, 2)",
    ),
    "a vector elsewhere": (
        lambda view: pull(view, torch.zeros(1, 1, 17, 2, device="meta")),
        "vector must be on the device of query (cpu), got meta",
    ),
    "values of another size": (
        lambda view: weight_gradients(torch.zeros(1, 4, 5, 3), torch.zeros(1, 2, 5, 2)),
        "value must have the size of output_gradient (3), got 2",
    ),
    "values of other heads": (
        lambda view: weight_gradients(torch.zeros(1, 4, 5, 3), torch.zeros(1, 3, 5, 3)),
        "value must have a number of heads that divides 4, got 3",
    ),
}


@pytest.mark.parametrize("name", BAD_VIEWS)
def test_a_bad_question_to_a_view_is_answered_in_one_line(name):
    ask, message = BAD_VIEWS[name]
    with pytest.raises(ArgumentError) as caught:
        ask(some_view())
    assert str(caught.value) == message


@pytest.mark.parametrize("dense", [torch.ones(7), torch.ones(5, 1), torch.ones(4, 1, 7), torch.ones(2, 1, 1, 1)])
def test_masks_and_biases_of_fewer_axes_are_welcome(dense):
    attend(QUERY, KEY, VALUE, mask=Mask(dense=dense), bias=dense.double())


def test_numbers_of_other_libraries_are_numbers():
    numpy = pytest.importorskip("numpy")
    mask = Mask(offset=numpy.int64(2), window=(numpy.int32(1), None))
    emit = Emit(weights=True, heads=(numpy.int64(1),))
    attend(QUERY, KEY, VALUE, scale=numpy.float32(0.5), mask=mask, emit=emit)


@pytest.mark.parametrize(("length", "blocks"), [(7, 3), (7, 7), (7, 9), (1, 1), (1000, 64), (64, 63)])
def test_pool_edges_cover_the_axis_in_blocks_of_nearly_one_size(length, blocks):
    edges = pool_edges(length, blocks)
    sizes = [stop - start for start, stop in pairwise(edges)]
    assert (edges[0], edges[-1], len(sizes)) == (0, length, min(length, blocks))
    assert min(sizes) >= 1
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("option", ["all", "alibi", "bias-map", "relative"])
@pytest.mark.parametrize("mask", ["everything", "packed", "dense-shared", "additive", "padding-left"])
def test_a_selected_head_is_the_head_of_the_whole(mask, option):
    call = build(Case("shared", mask, option, "contiguous"), torch.float32)
    view = view_of(call, attended(call, "reference"))
    whole = tile(view, backend="reference")
    for batch, head in ((0, 0), (1, 2)):
        one = view.select(batch, head)
        assert one.shape == (1, 1, 65, 65)
        torch.testing.assert_close(tile(one, backend="reference")[0, 0], whole[batch, head])
        assert one.query.untyped_storage().data_ptr() == view.query.untyped_storage().data_ptr()


@pytest.mark.parametrize("backend", ["reference", "blockwise"])
@pytest.mark.parametrize("option", ["all", "alibi", "bias-map"])
@pytest.mark.parametrize("mask", ["causal", "window-causal", "dense-shared", "additive", "scattered"])
def test_a_cropped_view_is_that_part_of_the_whole(backend, mask, option):
    call = build(Case("more-queries", mask, option, "contiguous"), torch.float32)  # M = 70, N = 13
    hidden = Mask(key_padding=(torch.arange(13) >= 5).expand(1, 13))
    call = replace(call, mask=replace(call.mask, key_padding=hidden.key_padding))
    view = view_of(call, attended(call, "reference"))
    rows, cols = slice(20, 60), slice(5, 13)
    expected = tile(view, rows, cols, backend="reference")
    torch.testing.assert_close(tile(view.crop(rows, cols), backend=backend), expected)


def test_a_chunk_is_not_cut():
    view = some_view()
    view = replace(view, mask=replace(view.mask, chunk=8))
    with pytest.raises(ArgumentError, match="cols must start at a multiple of 8, got 3"):
        view.crop(slice(0, 17), slice(3, 90))
