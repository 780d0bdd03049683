"""What attention means, apart from numbers: who may influence whom, and how the parts of a result hang together."""

from dataclasses import replace

import pytest
import torch
from kernel_cases import Case, attended, backends, build, named

from attnviz_kernels import Emit, Mask, attend, check, pool, pull, push, received, tile, view_of, weight_gradients

pytestmark = [pytest.mark.usefixtures("small_tiles"), pytest.mark.parametrize("backend", backends())]


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def made(batch=2, heads=4, groups=2, rows=70, keys=70, mask=Mask(), **options):
    query = draw(batch, heads, rows, 16)
    key, value = draw(batch, groups, keys, 16, seed=1), draw(batch, groups, keys, 24, seed=2)
    given = {"scale": None, "softcap": None, "bias": None, "sinks": None} | options
    return check(query, key, value, mask=mask, emit=Emit(), **given)


def test_the_future_of_a_causal_call_changes_nothing(backend):
    call = made(mask=Mask(causal=True))
    later = torch.arange(70)[:, None] >= 40
    changed = replace(call, key=torch.where(later, 50.0, call.key), value=torch.where(later, 50.0, call.value))
    before, after = named(attended(call, backend)), named(attended(changed, backend))
    for name in ("output", "logsumexp", "weights", "entropy", "largest", "largest_key", "distance", "own", "first"):
        torch.testing.assert_close(before[name][:, :, :40], after[name][:, :, :40], msg=name)
        assert not torch.equal(before[name][:, :, 40:], after[name][:, :, 40:]), name


def test_segments_do_not_see_each_other(backend):
    ids = torch.tensor([[0] * 25 + [1] * 45, [7] * 50 + [3] * 20])
    call = made(mask=Mask(segments=(ids, ids)))
    other = (ids != ids[:, :1])[:, None, :, None]
    changed = replace(
        call,
        query=torch.where(other, 9.0, call.query),
        key=torch.where(other, 9.0, call.key),
        value=torch.where(other, 9.0, call.value),
    )
    before, after = attended(call, backend), attended(changed, backend)
    for sequence, end in ((0, 25), (1, 50)):
        torch.testing.assert_close(before.output[sequence, :, :end], after.output[sequence, :, :end])
        assert not torch.equal(before.output[sequence, :, end:], after.output[sequence, :, end:])
        assert float(before.weights[sequence, :, :end, end:].abs().max()) == 0


def test_a_packed_sequence_equals_its_parts(backend):
    ids = torch.tensor([[0] * 25 + [1] * 45])
    packed = made(batch=1, mask=Mask(causal=True, segments=(ids, ids)))
    for part in (slice(0, 25), slice(25, 70)):
        alone = replace(
            packed,
            query=packed.query[:, :, part],
            key=packed.key[:, :, part],
            value=packed.value[:, :, part],
            mask=Mask(causal=True),
        )
        both = attended(packed, backend), attended(alone, backend)
        torch.testing.assert_close(both[0].output[:, :, part], both[1].output)
        torch.testing.assert_close(both[0].statistics.entropy[:, :, part], both[1].statistics.entropy)


def test_padding_equals_a_shorter_sequence(backend):
    padding = torch.arange(70)[None] < torch.tensor([[70], [33]])
    padded = made(mask=Mask(key_padding=padding))
    short = replace(padded, key=padded.key[:, :, :33], value=padded.value[:, :, :33], mask=Mask())
    torch.testing.assert_close(attended(padded, backend).output[1], attended(short, backend).output[1])


def test_each_sequence_of_a_batch_is_on_its_own(backend):
    call = made(batch=3, mask=Mask(causal=True))
    whole = named(attended(call, backend))
    for sequence in range(3):
        one = slice(sequence, sequence + 1)
        alone = attended(replace(call, query=call.query[one], key=call.key[one], value=call.value[one]), backend)
        for name, tensor in named(alone).items():
            torch.testing.assert_close(tensor, whole[name][one], msg=name)


def test_grouped_heads_equal_repeated_keys(backend):
    call = made(mask=Mask(causal=True))
    repeated = replace(call, key=call.key.repeat_interleave(2, dim=1), value=call.value.repeat_interleave(2, dim=1))
    torch.testing.assert_close(attended(call, backend).output, attended(repeated, backend).output)


def test_a_cached_call_equals_the_last_rows_of_the_whole(backend):
    whole = made(mask=Mask(causal=True, window=(30, None), chunk=32))
    cached = replace(whole, query=whole.query[:, :, 50:], mask=replace(whole.mask, offset=50))
    before, after = named(attended(whole, backend)), named(attended(cached, backend))
    for name in ("output", "logsumexp", "weights", "entropy", "distance", "own", "previous", "largest_key"):
        torch.testing.assert_close(before[name][:, :, 50:], after[name], msg=name)


def test_the_order_of_keys_matters_to_no_one(backend):
    call = made()
    order = torch.randperm(70, generator=torch.Generator().manual_seed(3))
    shuffled = replace(call, key=call.key[:, :, order], value=call.value[:, :, order])
    before, after = attended(call, backend), attended(shuffled, backend)
    torch.testing.assert_close(before.output, after.output)
    torch.testing.assert_close(before.weights[..., order], after.weights)
    assert torch.equal(before.statistics.largest_key, order[after.statistics.largest_key])


@pytest.mark.parametrize("sinks", [None, torch.tensor([0.3, -1.0, 2.0, 5.0])], ids=["plain", "sinks"])
def test_rows_sum_to_one_with_the_sink(backend, sinks):
    result = attended(made(mask=Mask(causal=True), sinks=sinks), backend)
    sink = 0 if sinks is None else torch.exp(sinks[None, :, None] - result.logsumexp)
    torch.testing.assert_close(result.weights.sum(-1) + sink, torch.ones(2, 4, 70))


def test_every_statistic_follows_from_the_weights(backend):
    result = attended(made(rows=60, keys=90, mask=Mask(causal=True, offset=20)), backend)
    found, weights = result.statistics, result.weights
    position, key = torch.arange(60)[:, None] + 20, torch.arange(90)
    torch.testing.assert_close(found.entropy, -torch.xlogy(weights, weights).sum(-1))
    torch.testing.assert_close(found.distance, (weights * (position - key).abs()).sum(-1))
    torch.testing.assert_close(found.largest, weights.amax(-1))
    torch.testing.assert_close(found.own, weights[..., position == key].reshape(2, 4, 60))
    torch.testing.assert_close(found.previous, weights[..., position - 1 == key].reshape(2, 4, 60))
    torch.testing.assert_close(found.first, weights[..., 0])


def test_the_functions_of_a_view_agree_with_each_other(backend):
    call = build(Case("shared", "window-causal", "all", "contiguous"), torch.float32)
    result = attended(call, backend)
    view = view_of(call, result)
    whole = tile(view, backend=backend)
    torch.testing.assert_close(whole, result.weights)
    torch.testing.assert_close(received(view, backend=backend), whole.sum(-2))
    torch.testing.assert_close(push(view, call.value[:, :1], backend=backend), result.output)
    one_hot = torch.eye(65)[None, None]
    torch.testing.assert_close(push(view, one_hot, backend=backend), whole)
    torch.testing.assert_close(pull(view, one_hot, backend=backend), whole.transpose(-1, -2))
    torch.testing.assert_close(pool(view, (65, 65), backend=backend), whole)
    torch.testing.assert_close(pool(view, (500, 500), reduce="max", backend=backend), whole)
    torch.testing.assert_close(pool(view, (1, 1), backend=backend)[..., 0, 0], whole.mean((-1, -2)))
    torch.testing.assert_close(pool(view, (5, 7), backend=backend), result.pooled)


def test_a_view_of_one_head_is_that_head(backend):
    call = build(Case("shared", "everything", "all", "heads-last"), torch.float32)
    result = attended(call, backend)
    view = view_of(call, result)
    for batch, head in ((0, 0), (1, 3)):
        one = tile(view.select(batch, head), backend=backend)
        assert one.shape == (1, 1, 65, 65)
        torch.testing.assert_close(one[0, 0], result.weights[batch, head])


def test_only_what_was_asked_for_is_left_behind(backend):
    call = made(mask=Mask(causal=True))
    everything = attended(call, backend)
    bare = attended(call, backend, Emit())
    assert (bare.statistics, bare.pooled, bare.weights) == (None, None, None)
    torch.testing.assert_close(bare.output, everything.output)
    pooled = attended(call, backend, Emit(pooled=(5, 7)))
    assert pooled.statistics is None
    torch.testing.assert_close(pooled.pooled, everything.pooled)


@pytest.mark.parametrize("heads", [(3,), (2, 0), (1, 1), ()], ids=str)
@pytest.mark.parametrize("rows", [None, range(69, 70), range(13, 40)], ids=str)
def test_weights_of_chosen_heads_and_rows(backend, heads, rows):
    call = made(mask=Mask(causal=True))
    whole = attended(call, backend).weights
    chosen = attended(call, backend, Emit(weights=True, heads=heads, rows=rows)).weights
    torch.testing.assert_close(chosen, whole[:, list(heads)][:, :, slice(None) if rows is None else rows])


def test_inputs_are_left_as_they_were(backend):
    call = build(Case("shared", "everything", "all", "contiguous"), torch.float32)
    inputs = (call.query, call.key, call.value, call.bias, call.sinks, call.mask.dense, call.mask.key_padding)
    copies = [tensor.clone() for tensor in inputs]
    view = view_of(call, attended(call, backend))
    pool(view, (3, 3), backend=backend)
    for tensor, copy in zip(inputs, copies, strict=True):
        assert torch.equal(tensor, copy)


def test_weight_gradients_are_those_of_dense_attention(backend):
    call = made(rows=30, keys=50)
    weights = attended(call, backend).weights.requires_grad_()
    output = weights @ call.value.repeat_interleave(2, dim=1)
    gradient = draw(*output.shape, seed=5)
    expected = torch.autograd.grad(output, weights, gradient)[0]
    found = weight_gradients(gradient, call.value, slice(3, 20), slice(10, 50))
    torch.testing.assert_close(found, expected[:, :, 3:20, 10:50])
    assert found.shape == (2, 4, 17, 40)


def test_a_result_is_the_same_each_time(backend):
    call = build(Case("just-over", "causal", "plain", "contiguous"), torch.float32)
    first, second = named(attended(call, backend)), named(attended(call, backend))
    assert all(torch.equal(tensor, second[name]) for name, tensor in first.items())


def test_attend_needs_no_keywords(backend):
    call = made()
    result = attend(call.query, call.key, call.value, backend=backend)
    expected = torch.nn.functional.scaled_dot_product_attention(call.query, call.key, call.value, enable_gqa=True)
    torch.testing.assert_close(result.output, expected)
