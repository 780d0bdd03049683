"""Rung 2 against torch itself: the weights that torch's own functions give or define, and outputs left as they are."""

import pytest
import torch
from recording.layers import Call, defined_weights, randn, weights_of
from torch import nn
from torch.nn import functional as F

import attnviz

B, H, G, M, N, D = 2, 4, 2, 5, 7, 8


SIZES = {
    "four axes": ((B, H, M, D), (B, H, N, D)),
    "three axes": ((B, M, D), (B, N, D)),
    "two axes": ((M, D), (N, D)),
    "five axes": ((3, B, H, M, D), (3, B, H, N, D)),
    "grouped": ((B, H, M, D), (B, G, N, D)),
    "one key head": ((B, H, M, D), (B, 1, N, D)),
    "one key sequence": ((B, H, M, D), (1, H, N, D)),
    "square": ((B, H, N, D), (B, H, N, D)),
    "more queries than keys": ((B, H, N, D), (B, H, M, D)),
}


BLIND = torch.ones(M, N, dtype=torch.bool)


BLIND[2] = False


MASKS = {
    "none": {},
    "causal": {"is_causal": True},
    "scale": {"scale": 0.7},
    "bool": {"attn_mask": randn(M, N) > -0.5},
    "float": {"attn_mask": randn(M, N)},
    "padding": {"attn_mask": torch.tensor([True] * 5 + [False] * 2).expand(B, 1, 1, N)},
    "per head": {"attn_mask": randn(B, H, M, N) > -0.5},
    "blind": {"attn_mask": BLIND},
}


CASES = [(size, "none") for size in SIZES] + [("four axes", mask) for mask in MASKS]


CASES += [(size, "causal") for size in SIZES] + [("three axes", "bool"), ("two axes", "float"), ("grouped", "per head")]


CASES += [("five axes", "float"), ("five axes", "per head"), ("one key sequence", "padding")]


@pytest.mark.parametrize(("size", "mask"), sorted(set(CASES)))
def test_every_argument_of_scaled_dot_product_attention(size, mask):
    query_shape, key_shape = SIZES[size]
    query, key, value = randn(*query_shape), randn(*key_shape, seed=1), randn(*key_shape[:-1], 6, seed=2)
    options = {**MASKS[mask], "enable_gqa": size == "grouped"}
    model = Call(F.scaled_dot_product_attention)
    plain = model(query, key, value, **options)
    with attnviz.record(model) as trace:
        output = model(query, key, value, **options)
    assert output.shape == plain.shape
    torch.testing.assert_close(output, plain, atol=1e-6, rtol=0, equal_nan=True)
    want = defined_weights(query, key, **MASKS[mask])
    torch.testing.assert_close(weights_of(trace).double(), want.reshape(weights_of(trace).shape), atol=1e-6, rtol=0)


def test_a_row_hidden_by_the_lowest_number_comes_out_as_torch_gives_it():
    query, key, value = randn(B, H, M, D), randn(B, H, N, D, seed=1), randn(B, H, N, D, seed=2)
    mask = torch.zeros(M, N)
    mask[1] = torch.finfo(torch.float32).min
    model = Call(F.scaled_dot_product_attention)
    plain = model(query, key, value, mask)
    assert plain[:, :, 1].abs().max() > 0.01  # torch spreads such a row over all keys
    with attnviz.record(model) as trace:
        torch.testing.assert_close(model(query, key, value, mask), plain, atol=1e-6, rtol=0)
    assert weights_of(trace)[:, :, 1].abs().max() == 0


def test_torch_s_own_error_for_a_wrong_call():
    model = Call(F.scaled_dot_product_attention)
    for args, options in [
        ((randn(B, H, M, D), randn(B, H, N, D + 1), randn(B, H, N, D)), {}),
        ((randn(B, H, M, D),), {}),
    ]:
        with pytest.raises((RuntimeError, TypeError)) as plain:
            model(*args, **options)
        with pytest.raises(type(plain.value)) as heard, attnviz.record(model):
            model(*args, **options)
        assert str(heard.value) == str(plain.value)


@pytest.mark.parametrize("sequence_first", [False, True])
def test_heads_folded_into_the_batch_axis_are_found_by_the_module_s_input(sequence_first):
    def folded(x):
        x = x.transpose(0, 1) if sequence_first else x
        query = x.reshape(B, M, H, D).transpose(1, 2).reshape(B * H, M, D)
        return F.scaled_dot_product_attention(query, query, query)

    model, x = Call(folded), randn(B, M, H * D)
    given = x.transpose(0, 1) if sequence_first else x
    plain = model(given)
    with attnviz.record(model) as trace:
        torch.testing.assert_close(model(given), plain, atol=1e-6, rtol=0)
    query = x.reshape(B, M, H, D).transpose(1, 2)
    torch.testing.assert_close(weights_of(trace).double(), defined_weights(query, query), atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    "options",
    [
        {"is_causal": True},
        {"attn_mask": torch.ones(M, M, dtype=torch.bool).tril()},
        {"attn_mask": nn.Transformer.generate_square_subsequent_mask(M)},
    ],
)
def test_a_causal_mask_is_kept_as_structure(options):
    model, query = Call(F.scaled_dot_product_attention), randn(B, H, M, D)
    with attnviz.record(model) as trace:
        model(query, query, query, **options)
    mask = trace.record(0).view.view.mask
    assert mask.causal
    assert mask.dense is None


def test_padding_is_kept_as_structure_and_left_out_of_the_map():
    model, query = Call(F.scaled_dot_product_attention), randn(B, H, M, D)
    real = torch.tensor([[True] * 5, [False] * 2 + [True] * 3])
    with attnviz.record(model) as trace:
        model(query, query, query, attn_mask=real[:, None, None])
    assert trace.record(0).view.view.mask.dense is None
    assert trace[0, 0].shape == (5, 5)
    assert trace.sequence(1)[0, 0].shape == (3, 3)
