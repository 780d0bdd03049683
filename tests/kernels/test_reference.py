"""The definition itself: cases worked by hand, and torch's own attention."""

import math

import pytest
import torch
from torch import Tensor, tensor
from torch.nn.functional import scaled_dot_product_attention

from attnviz_kernels import Emit, Mask, attend, check, reference, view_of

EVERYTHING = Emit(statistics=True, pooled=(2, 2), weights=True)


def with_scores(scores, mask=Mask(), **options):
    """A call of one head whose scores are the given [M, N] matrix and whose values are 1, 10, 100, ..."""
    scores = tensor(scores, dtype=torch.float64)
    keys = scores.shape[1]
    query, key = scores[None, None], torch.eye(keys, dtype=torch.float64)[None, None]
    value = 10.0 ** torch.arange(keys, dtype=torch.float64)[None, None, :, None]
    given = {"softcap": None, "bias": None, "sinks": None} | options
    return check(query, key, value, 1.0, mask, emit=EVERYTHING, **given)


def close(found: Tensor, expected) -> None:
    torch.testing.assert_close(found.squeeze(), tensor(expected, dtype=torch.float64), equal_nan=True)


def test_two_queries_and_two_keys_by_hand():
    result = reference.attend(with_scores([[0.0, math.log(3)], [2.0, 2.0]]), EVERYTHING)
    close(result.weights, [[0.25, 0.75], [0.5, 0.5]])
    close(result.output, [0.25 * 1 + 0.75 * 10, 0.5 * 1 + 0.5 * 10])
    close(result.logsumexp, [math.log(4), 2 + math.log(2)])
    found = result.statistics
    close(found.entropy, [0.25 * math.log(4) + 0.75 * math.log(4 / 3), math.log(2)])
    close(found.largest, [0.75, 0.5])
    assert found.largest_key.tolist() == [[[1, 0]]]
    close(found.distance, [0.75, 0.5])
    close(found.own, [0.25, 0.5])
    close(found.previous, [0.0, 0.5])
    close(found.first, [0.25, 0.5])
    close(result.pooled, [[0.25, 0.75], [0.5, 0.5]])


def test_causal_by_hand():
    mask = Mask(causal=True, offset=1)  # query 0 stands at position 1, query 1 at position 2
    result = reference.attend(with_scores([[0.0] * 4, [0.0] * 4], mask), EVERYTHING)
    close(result.weights, [[1 / 2, 1 / 2, 0, 0], [1 / 3, 1 / 3, 1 / 3, 0]])
    close(result.statistics.distance, [1 / 2, (2 + 1) / 3])
    close(result.statistics.own, [1 / 2, 1 / 3])
    close(result.statistics.previous, [1 / 2, 1 / 3])
    close(result.pooled, [[1 / 2, 0], [1 / 3, 1 / 6]])


def test_a_sink_by_hand():
    result = reference.attend(with_scores([[0.0, 0.0]], sinks=tensor([math.log(2)])), EVERYTHING)
    close(result.weights, [1 / 4, 1 / 4])
    close(result.logsumexp, math.log(4))
    close(result.statistics.entropy, 2 * math.log(4) / 4 + math.log(2) / 2)
    close(result.statistics.distance, 1 / 4)
    close(result.output, 11 / 4)


def test_soft_cap_comes_before_bias_and_bias_before_the_mask():
    bias = tensor([[0.0, 0.5, 9.0]], dtype=torch.float64)
    call = with_scores([[0.0, 4.0, 0.0]], Mask(causal=True, offset=1), softcap=2.0, bias=bias)
    expected = 2 * math.tanh(2) + 0.5
    close(reference.scores(call), [0.0, expected, -math.inf])
    close(reference.attend(call, EVERYTHING).logsumexp, math.log(1 + math.exp(expected)))


MASKS = {
    "causal": (Mask(causal=True), ["1000", "1100", "1110"]),
    "offset": (Mask(causal=True, offset=1), ["1100", "1110", "1111"]),
    "window": (Mask(window=(1, 0)), ["1000", "1100", "0110"]),
    "left": (Mask(window=(0, None)), ["1111", "0111", "0011"]),
    "right": (Mask(window=(None, 1)), ["1100", "1110", "1111"]),
    "chunk": (Mask(chunk=2), ["1100", "1100", "0011"]),
    "chunk-offset": (Mask(chunk=2, offset=1), ["1100", "0011", "0011"]),
    "padding": (Mask(key_padding=tensor([[True, False, True, True]])), ["1011", "1011", "1011"]),
    "segments": (Mask(segments=(tensor([[5, 5, 6]]), tensor([[5, 6, 6, 4]]))), ["1000", "1000", "0110"]),
    "dense": (Mask(dense=tensor([[True, False, True, False]])), ["1010", "1010", "1010"]),
    "additive": (Mask(dense=tensor([[0.0], [-1.0], [-torch.inf]])), ["1111", "1111", "0000"]),
    "lowest": (Mask(dense=tensor([0.0, 1.0, -65504.0, -6e4], dtype=torch.float16)), ["1100"] * 3),
    "and": (Mask(causal=True, window=(1, None), chunk=2, offset=1), ["1100", "0010", "0011"]),
}


@pytest.mark.parametrize("name", MASKS)
def test_masks_as_drawings(name):
    mask, drawing = MASKS[name]
    seen = reference.visible(mask, (1, 1, 3, 4), torch.device("cpu")).expand(1, 1, 3, 4)[0, 0]
    assert ["".join(str(int(cell)) for cell in row) for row in seen] == drawing


def test_a_query_that_sees_nothing():
    call = with_scores([[1.0, 2.0], [0.0, 0.0]], Mask(dense=tensor([[False], [True]])), sinks=tensor([0.0]))
    result = reference.attend(call, EVERYTHING)
    close(result.output, [0.0, 11 / 3])
    close(result.logsumexp, [-math.inf, math.log(3)])
    close(result.statistics.entropy, [math.nan, math.log(3)])
    close(result.statistics.largest, [math.nan, 1 / 3])
    assert result.statistics.largest_key.tolist() == [[[-1, 0]]]
    close(result.pooled, [[math.nan, math.nan], [1 / 3, 1 / 3]])
    view = view_of(call, result)
    everything = (slice(0, 2), slice(0, 2))
    close(reference.pool(view, (1, 1), *everything, "mean"), 1 / 3)  # the blind row is not in the mean
    close(reference.pool(view, (2, 1), *everything, "max"), [math.nan, 1 / 3])


def test_first_is_the_first_real_key():
    padding = tensor([[False, True, True]])
    result = reference.attend(with_scores([[0.0, math.log(3), 0.0]], Mask(key_padding=padding)), EVERYTHING)
    close(result.statistics.first, 3 / 4)
    close(result.statistics.own, 0.0)


def test_blocks_of_uneven_size():
    result = reference.attend(with_scores([[0.0] * 5] * 3), EVERYTHING)
    view = view_of(with_scores([[0.0] * 5] * 3, Mask(causal=True)), result)  # weights of 1 / 5 where j <= i
    found = reference.pool(view, (2, 2), slice(0, 3), slice(0, 5), "mean")  # rows 0:1, 1:3; columns 0:2, 2:5
    close(found, [[1 / 10, 0.0], [1 / 5, 1 / 5 / 6]])
    close(reference.pool(view, (2, 2), slice(0, 3), slice(0, 5), "max"), [[1 / 5, 0.0], [1 / 5, 1 / 5]])
    close(reference.received(view), [3 / 5, 2 / 5, 1 / 5, 0, 0])
    close(reference.push(view, torch.ones(1, 1, 5, 1)), [1 / 5, 2 / 5, 3 / 5])
    close(reference.pull(view, tensor([[[[1.0], [10.0], [100.0]]]])), [111 / 5, 110 / 5, 20.0, 0, 0])


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_torch_agrees():
    query, key, value = draw(2, 6, 9, 8), draw(2, 2, 13, 8, seed=1), draw(2, 2, 13, 5, seed=2)
    dense = draw(2, 1, 9, 13, seed=3)
    for mask, theirs in (
        (Mask(), {}),
        (Mask(causal=True), {"is_causal": True}),
        (Mask(dense=dense), {"attn_mask": dense}),
        (Mask(dense=dense > 0), {"attn_mask": dense > 0}),
    ):
        expected = scaled_dot_product_attention(query, key, value, enable_gqa=True, scale=0.3, **theirs)
        found = attend(query, key, value, scale=0.3, mask=mask, backend="reference")
        torch.testing.assert_close(found.output, expected)
        assert found.output.dtype == found.logsumexp.dtype == torch.float64


def test_half_precision_is_summed_in_float32():
    query, key, value = (draw(1, 2, 9, 16, seed=seed).bfloat16() for seed in range(3))
    found = attend(query, key, value, emit=EVERYTHING, backend="reference")
    assert found.output.dtype == torch.bfloat16
    assert found.logsumexp.dtype == found.weights.dtype == found.statistics.entropy.dtype == torch.float32
    assert found.weights.dtype == found.pooled.dtype == torch.float32
    wide = attend(query.float(), key.float(), value.float(), backend="reference")
    torch.testing.assert_close(found.output, wide.output.bfloat16(), atol=0, rtol=0)


def test_gradients_of_rows_that_see_nothing_are_zero():
    call = with_scores([[1.0, 2.0], [0.0, 0.0]], Mask(dense=tensor([[False], [True]])), sinks=torch.zeros(1).double())
    result = reference.attend(call, Emit())
    found = reference.backward(
        call, result.output, result.logsumexp, torch.ones_like(result.output), (True, True, True, False, True)
    )
    assert found.bias is None
    close(found.query[..., 0, :], [0.0, 0.0])
    close(found.value, [1 / 3, 1 / 3])
    close(found.sinks, -1 / 3 * 11 / 3)
