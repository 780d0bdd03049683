"""Rung 2 against torch itself: the weights that torch's own functions give or define, and outputs left as they are."""

import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import flex_attention as flex

import attnviz
from attnviz.errors import BudgetError

B, H, G, M, N, D = 2, 4, 2, 5, 7, 8


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class Call(nn.Module):
    """One call of a function in a module of its own."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args, **kwargs):
        return self.function(*args, **kwargs)


def weights_of(trace, layer=0, branch=None):
    record = trace.record(layer, branch)
    return record.view.tile(slice(None), slice(None))


def defined_weights(query, key, attn_mask=None, is_causal=False, scale=None):
    """What the documentation of scaled_dot_product_attention defines, in float64; queries that see nothing give 0."""
    query, key = query.double(), key.double()
    if query.dim() > 3 and query.shape[-3] != key.shape[-3] and key.shape[-3] > 1:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
    score = query @ key.transpose(-1, -2) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(score.shape[-2:], dtype=torch.bool).tril()
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        score = score.masked_fill(~attn_mask, -torch.inf)
    elif attn_mask is not None:
        score = score + attn_mask
    return torch.softmax(score, -1).nan_to_num(0)


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


UNCOMPILED = pytest.mark.filterwarnings("ignore:flex_attention called without")


@UNCOMPILED
def test_flex_attention_with_mask_functions():
    query, key = randn(B, H, 40, D), randn(B, G, 40, D, seed=1)
    document = torch.arange(40) // 16

    def same_document(b, h, i, j):
        return (document[i] == document[j]) & (i >= j)

    model = Call(flex.flex_attention)
    masks = {
        "none": (None, torch.ones(40, 40, dtype=torch.bool)),
        "causal": (lambda b, h, i, j: i >= j, torch.ones(40, 40, dtype=torch.bool).tril()),
        "documents": (same_document, (document[:, None] == document) & torch.ones(40, 40, dtype=torch.bool).tril()),
        "head": (
            lambda b, h, i, j: (i >= j) | (h == 1),
            torch.stack([torch.ones(40, 40).tril(), torch.ones(40, 40)]).bool(),
        ),
    }
    for name, (function, seen) in masks.items():
        heads = 2 if name == "head" else None
        block = None if function is None else flex.create_block_mask(function, None, heads, 40, 40, device="cpu")
        queries = query[:, :heads]
        plain = model(queries, key, key, block_mask=block, enable_gqa=True)
        with attnviz.record(model) as trace:
            output = model(queries, key, key, block_mask=block, enable_gqa=True)
        torch.testing.assert_close(output, plain, atol=2e-6, rtol=0)
        torch.testing.assert_close(weights_of(trace).double(), defined_weights(queries, key, seen), atol=1e-6, rtol=0)
        if name in ("none", "causal"):
            assert trace.record(0).view.view.mask.dense is None


@UNCOMPILED
def test_flex_attention_with_a_score_function_and_more_outputs():
    query, slopes = randn(B, H, 20, D), torch.tensor([0.5, 0.2, 0.1, 0.0])

    def alibi(score, b, h, i, j):
        return score + slopes[h] * (j - i)

    model = Call(flex.flex_attention)
    plain, more = model(query, query, query, score_mod=alibi, return_aux=flex.AuxRequest(lse=True))
    with attnviz.record(model) as trace:
        output, heard = model(query, query, query, score_mod=alibi, return_aux=flex.AuxRequest(lse=True))
    torch.testing.assert_close((output, heard.lse), (plain, more.lse), atol=1e-6, rtol=0)
    place = torch.arange(20.0)
    want = defined_weights(query, query, slopes[:, None, None] * (place[None, :] - place[:, None]))
    torch.testing.assert_close(weights_of(trace).double(), want, atol=1e-6, rtol=0)
    with attnviz.record(model):
        output, heard = model(query, query, query, return_aux=flex.AuxRequest(lse=True))
    plain, more = model(query, query, query, return_aux=flex.AuxRequest(lse=True))
    torch.testing.assert_close((output, heard.lse), (plain, more.lse), atol=1e-6, rtol=0)


@UNCOMPILED
def test_flex_attention_beyond_the_budget():
    query = randn(1, 1, 500, D)
    model = Call(flex.flex_attention)
    with pytest.raises(BudgetError, match=r"the budget is 97\.7 KiB"), attnviz.record(model, budget=100_000):
        model(query, query, query, score_mod=lambda score, b, h, i, j: score * 2)
