"""Rung 2 in nn.MultiheadAttention and what is built of it: as need_weights=True gives it, and named for what it is."""

import itertools

import pytest
import torch
from recording.layers import Call, randn, weights_of
from torch import nn
from torch.nn import functional as F

import attnviz

B, H, M, N, D = 2, 4, 5, 7, 8


def multi_head(batch_first=True, **options):
    torch.manual_seed(0)
    module = nn.MultiheadAttention(H * D, H, batch_first=batch_first, **options).eval()
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.2)
    return module


PADDING = torch.tensor([[False] * N, [False] * 4 + [True] * 3])


KEY_PADDING = {
    "no padding": None,
    "bool padding": PADDING,
    "float padding": torch.zeros(B, N).masked_fill(PADDING, -torch.inf),
    "biased padding": randn(B, N),
}


ATTENTION = {
    "no mask": None,
    "bool mask": (randn(M, N) > 0.3),
    "float mask": randn(M, N),
    "mask per head": randn(B * H, M, N),
}


EXTRAS = {
    "plain": {},
    "zero key": {"add_zero_attn": True},
    "bias": {"add_bias_kv": True},
    "both": {"add_zero_attn": True, "add_bias_kv": True},
}


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("extra", EXTRAS)
@pytest.mark.parametrize(
    ("padding", "mask"),
    [
        pair
        for pair in itertools.product(KEY_PADDING, ATTENTION)
        if "bool" not in "".join(pair) or "float" not in "".join(pair)
    ],
)
@pytest.mark.filterwarnings("ignore:Support for mismatched")
def test_multi_head_attention_gives_what_need_weights_gives(batch_first, need_weights, extra, padding, mask):
    module = multi_head(batch_first, **EXTRAS[extra])
    query, key = randn(B, M, H * D), randn(B, N, H * D, seed=1)
    if not batch_first:
        query, key = query.transpose(0, 1), key.transpose(0, 1)
    options = {"key_padding_mask": KEY_PADDING[padding], "attn_mask": ATTENTION[mask]}
    if options["attn_mask"] is not None and options["attn_mask"].dtype == torch.bool:
        options["attn_mask"] = options["attn_mask"] & (torch.arange(N) > 0)  # the first key is seen by all
    with torch.no_grad():
        want = module(query, key, key, need_weights=True, average_attn_weights=False, **options)[1]
        plain = module(query, key, key, need_weights=need_weights, **options)
        with attnviz.record(module) as trace:
            output = module(query, key, key, need_weights=need_weights, **options)
    torch.testing.assert_close(output[0], plain[0], atol=1e-6, rtol=0)
    assert output[1] is None or torch.equal(output[1], plain[1])
    torch.testing.assert_close(trace.record(0).view.tile(slice(None), slice(None)), want, atol=1e-6, rtol=0)
    assert ("bias_k" in " ".join(trace.record(0).notes)) == (extra != "plain")


@pytest.mark.parametrize("options", [{"kdim": 12, "vdim": 20}, {"bias": False}])
def test_multi_head_attention_with_other_sizes_and_one_sequence(options):
    module = multi_head(**options)
    query, key, value = randn(M, H * D), randn(N, options.get("kdim", H * D)), randn(N, options.get("vdim", H * D))
    with torch.no_grad():
        plain, want = module(query, key, value, average_attn_weights=False)
        with attnviz.record(module) as trace:
            output, _ = module(query, key, value, need_weights=False)
    torch.testing.assert_close(output, plain, atol=1e-6, rtol=0)
    torch.testing.assert_close(weights_of(trace)[0], want, atol=1e-6, rtol=0)


@pytest.mark.parametrize("need_weights", [True, False])
def test_the_causal_hint_is_read_as_torch_reads_it(need_weights):
    module, x = multi_head(), randn(B, M, H * D)
    mask = nn.Transformer.generate_square_subsequent_mask(M)
    with torch.no_grad():
        plain, want = module(x, x, x, attn_mask=mask, is_causal=True, average_attn_weights=False)
        with attnviz.record(module) as trace:
            output = module(x, x, x, attn_mask=mask, is_causal=True, need_weights=need_weights)[0]
    torch.testing.assert_close(output, plain, atol=1e-6, rtol=0)
    torch.testing.assert_close(weights_of(trace), want, atol=1e-6, rtol=0)
    assert trace.record(0).view.view.mask.dense is None


@pytest.mark.parametrize("need_weights", [True, False])
def test_dropout_in_training_leaves_output_and_chance_alone_and_weights_before_it(need_weights):
    module, x = multi_head(dropout=0.5).train(), randn(B, M, H * D)
    torch.manual_seed(1)
    plain = module(x, x, x, need_weights=need_weights)
    after = torch.rand(1)
    torch.manual_seed(1)
    with attnviz.record(module) as trace:
        output = module(x, x, x, need_weights=need_weights)
    assert torch.equal(torch.rand(1), after)
    assert torch.equal(output[0], plain[0])
    want = module.eval()(x, x, x, average_attn_weights=False)[1]
    torch.testing.assert_close(weights_of(trace), want.detach(), atol=1e-6, rtol=0)
    assert trace.record(0).notes == ("weights are those before dropout",)


def encoder(norm_first=False, **options):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(H * D, H, 16, batch_first=True, norm_first=norm_first)
    return nn.TransformerEncoder(layer, 3, enable_nested_tensor=not norm_first, **options).eval()


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("nested", [False, True])
def test_the_encoder_s_fast_path_gives_the_same_outputs_in_padded_rows_too(norm, padded, nested):
    model = encoder(norm=nn.LayerNorm(H * D, bias=True) if norm else None)
    model.use_nested_tensor = nested
    if norm:
        nn.init.normal_(model.norm.bias)
    x, padding = randn(B, N, H * D), PADDING if padded else None
    with torch.no_grad():
        plain = model(x, src_key_padding_mask=padding)
        with attnviz.record(model) as trace:
            output = model(x, src_key_padding_mask=padding)
        hidden = x
        for number, layer in enumerate(model.layers):
            want = layer.self_attn(hidden, hidden, hidden, key_padding_mask=padding, average_attn_weights=False)[1]
            torch.testing.assert_close(weights_of(trace, number), want, atol=1e-6, rtol=0)
            with attnviz.record(layer):  # the slow path
                hidden = layer(hidden, src_key_padding_mask=padding)
    torch.testing.assert_close(output, plain, atol=2e-6, rtol=0)
    if padded and nested:
        assert torch.equal(plain[1, 4], plain[1, 6])  # the fast path did leave one value there
    assert [record.name for record in trace.records] == [f"layers.{number}.self_attn" for number in range(3)]
    if padded:
        assert trace.sequence(1)[0, 0].shape == (4, 4)


def test_an_encoder_decoder_has_three_kinds():
    torch.manual_seed(0)
    model = nn.Transformer(H * D, H, 2, 3, 16, batch_first=True).eval()
    source, target = randn(B, N, H * D), randn(B, M, H * D, seed=1)
    causal = model.generate_square_subsequent_mask(M)
    with torch.no_grad():
        plain = model(source, target, tgt_mask=causal, memory_key_padding_mask=PADDING, src_key_padding_mask=PADDING)
        with attnviz.record(model) as trace:
            output = model(
                source, target, tgt_mask=causal, memory_key_padding_mask=PADDING, src_key_padding_mask=PADDING
            )
    torch.testing.assert_close(output, plain, atol=2e-6, rtol=0)
    assert trace.kinds == ("encoder", "decoder", "cross")
    assert (trace.encoder.layers, trace.decoder.layers, trace.cross.layers) == ((0, 1), (0, 1, 2), (0, 1, 2))
    assert trace.cross.record(1).name == "decoder.layers.1.multihead_attn"
    assert trace.cross[1, 0].shape == (M, N)
    assert trace.sequence(1).cross[1, 0].shape == (M, 4)
    assert trace.sequence(1).encoder[0, 0].shape == (4, 4)
    assert trace.decoder[2, 3].view.visible().flatten().tolist() == [1, 2, 3, 4, 5]


def test_cross_attention_of_equal_lengths_is_told_by_names_and_inputs():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.mine, self.cross_attention = Call(self.own), Call(self.other)

        def own(self, x, y):
            return F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None])[:, 0]

        def other(self, x, memory):
            return F.scaled_dot_product_attention(x[:, None], memory[:, None], memory[:, None])[:, 0]

        def forward(self, x, memory):
            return self.cross_attention(self.mine(x, x), memory)

    model, x = Block(), randn(B, M, D)
    with attnviz.record(model) as trace:
        model(x, x + 1)
    assert {record.name: record.kind for record in trace.records} == {"mine": "decoder", "cross_attention": "cross"}


@pytest.mark.parametrize(
    "attend",
    [
        lambda mha, norm, x: mha(norm(x), norm(x), norm(x)),
        lambda mha, norm, x: mha(x.transpose(0, 1), x.transpose(0, 1), x.transpose(0, 1)),
        lambda mha, norm, x: mha(x + 1, x + 1, x),  # positions join queries and keys, as in DETR
        lambda mha, norm, x: mha(x[0], x[0], x[0]),
        lambda mha, norm, x: mha(query=norm(x), key=norm(x), value=x, need_weights=False),
    ],
)
def test_a_sequence_that_is_computed_twice_attends_to_itself(attend):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.mha, self.norm = nn.MultiheadAttention(H * D, H, batch_first=True), nn.LayerNorm(H * D)

        def forward(self, x):
            return attend(self.mha, self.norm, x)

    model = Block().eval()
    with torch.no_grad(), attnviz.record(model) as trace:
        model(randn(B, M, H * D))
    assert trace.kinds == ("self",)


def test_queries_of_one_sequence_and_keys_of_another_of_its_length_cross():
    mha = nn.MultiheadAttention(H * D, H, batch_first=True).eval()
    with torch.no_grad(), attnviz.record(mha) as trace:
        mha(randn(B, M, H * D), randn(B, M, H * D, seed=1), randn(B, M, H * D, seed=1))
    assert trace.kinds == ("cross",)
