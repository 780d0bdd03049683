"""attnviz.attention beside torch's scaled_dot_product_attention: the same function, and seen."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import attnviz
from attnviz.errors import RecordingError, UsageError
from attnviz.recording import custom, watch
from attnviz_kernels import Mask

B, H, G, M, N, D = 2, 4, 2, 5, 7, 8


def randn(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


QUERY, KEY, VALUE = randn(B, H, M, D), randn(B, H, N, D, seed=1), randn(B, H, N, 6, seed=2)
OPTIONS = {
    "plain": {},
    "causal": {"is_causal": True},
    "scale": {"scale": 0.3},
    "bool": {"attn_mask": randn(M, N) > -0.7},
    "float": {"attn_mask": randn(B, 1, M, N)},
    "padding": {"attn_mask": torch.tensor([[True] * 7, [True] * 4 + [False] * 3])[:, None, None]},
}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("recording", [False, True])
def test_it_is_scaled_dot_product_attention_with_gradients(name, recording):
    given = [tensor.clone().requires_grad_() for tensor in (QUERY, KEY, VALUE)]
    plain = F.scaled_dot_product_attention(*given, **OPTIONS[name])
    want = torch.autograd.grad(plain.square().sum(), given)
    if recording:
        with attnviz.record(nn.Identity()):
            output = attnviz.attention(*given, **OPTIONS[name])
    else:
        output = attnviz.attention(*given, **OPTIONS[name])
    torch.testing.assert_close(output, plain, atol=1e-6, rtol=0)
    for got, expected in zip(torch.autograd.grad(output.square().sum(), given), want, strict=True):
        torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("shapes", [((M, D), (N, D)), ((B, M, D), (B, N, D)), ((3, B, H, M, D), (3, B, H, N, D))])
def test_any_rank(shapes):
    query, key = randn(*shapes[0]), randn(*shapes[1], seed=1)
    output = attnviz.attention(query, key, key)
    torch.testing.assert_close(output, F.scaled_dot_product_attention(query, key, key), atol=1e-6, rtol=0)


def test_grouped_heads():
    key = randn(B, G, N, D)
    output = attnviz.attention(QUERY, key, key, enable_gqa=True)
    torch.testing.assert_close(
        output, F.scaled_dot_product_attention(QUERY, key, key, enable_gqa=True), atol=1e-6, rtol=0
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_other_precisions(dtype):
    given = [tensor.to(dtype) for tensor in (QUERY, KEY, VALUE)]
    output, exact = attnviz.attention(*given), F.scaled_dot_product_attention(*(tensor.double() for tensor in given))
    assert output.dtype == dtype
    torch.testing.assert_close(output.double(), exact, atol=1e-12 if dtype == torch.float64 else 8e-3, rtol=0)


def test_autocast_lowers_it_as_it_lowers_torch_s():
    with torch.autocast("cpu", torch.bfloat16):
        output = attnviz.attention(QUERY, KEY, VALUE)
        assert output.dtype == F.scaled_dot_product_attention(QUERY, KEY, VALUE).dtype == torch.bfloat16


def test_window_softcap_and_sinks_of_the_kernels():
    sinks = randn(H)
    output = attnviz.attention(QUERY, KEY, VALUE, mask=Mask(causal=True, window=(2, 0)), softcap=2.0, sinks=sinks)
    score = 2 * torch.tanh(QUERY @ KEY.mT * D**-0.5 / 2)
    i, j = torch.arange(M)[:, None], torch.arange(N)
    score = score.masked_fill((j > i) | (j < i - 2), -torch.inf)
    weights = torch.cat([score, sinks[:, None, None].expand(B, H, M, 1)], -1).softmax(-1)[..., :-1]
    torch.testing.assert_close(output, weights @ VALUE, atol=1e-6, rtol=0)


def test_a_window_stands_where_the_caller_put_it_also_while_recording():
    window = Mask(window=(1, 1))
    plain = attnviz.attention(QUERY, KEY, VALUE, mask=window)
    with attnviz.record(nn.Identity()) as trace:
        torch.testing.assert_close(attnviz.attention(QUERY, KEY, VALUE, mask=window), plain)
    assert trace[0, 0].visible.tolist() == [2, 3, 3, 3, 3]


def test_a_query_that_sees_no_key_gives_zeros():
    seen = torch.ones(M, N, dtype=torch.bool)
    seen[1] = False
    assert attnviz.attention(QUERY, KEY, VALUE, attn_mask=seen)[:, :, 1].abs().max() == 0


class Attending(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.project, self.options = nn.Linear(D, 3 * D), options

    def forward(self, x):
        query, key, value = (part[:, None] for part in self.project(x).chunk(3, -1))
        return attnviz.attention(query, key, value, **self.options)[:, 0]


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_it_is_recorded_once_inside_a_recording_and_not_after_it(dropout):
    torch.manual_seed(0)
    model, x = nn.Sequential(Attending(is_causal=True, dropout_p=dropout), Attending()), randn(B, M, D)
    with attnviz.record(model) as trace:
        model(x)
    model(x)
    assert [(record.name, record.layer, record.rung) for record in trace.records] == [
        ("0", 0, "attention"),
        ("1", 1, "attention"),
    ]
    query, key, _ = model[0].project(x).chunk(3, -1)
    hidden = torch.ones(M, M).triu(1).bool()
    want = (query @ key.mT * D**-0.5).masked_fill(hidden, -torch.inf).softmax(-1)
    torch.testing.assert_close(trace[0, 0].weights(), want[0].detach(), atol=1e-6, rtol=0)
    assert trace.records[0].notes == (("weights are those before dropout",) if dropout else ())


def test_dropout_is_torch_s_own():
    torch.manual_seed(1)
    plain = F.scaled_dot_product_attention(QUERY, KEY, VALUE, dropout_p=0.5)
    torch.manual_seed(1)
    with attnviz.record(nn.Identity()):
        assert torch.equal(attnviz.attention(QUERY, KEY, VALUE, dropout_p=0.5), plain)


def test_name_and_kind():
    class Two(nn.Module):
        def forward(self, x, other):
            first = attnviz.attention(x, x, x, name="near")
            second = attnviz.attention(x, x * 2, x, name="far")
            return first + second + attnviz.attention(x, other, other, kind="cross")

    model = nn.ModuleDict({"two": Two()})
    with attnviz.record(model) as trace:
        model["two"](QUERY, KEY)
    assert [(record.name, record.kind, record.branch) for record in trace.records] == [
        ("two.near", "decoder", "near"),
        ("two.far", "decoder", "far"),
        ("two", "cross", None),
    ]


def test_without_a_recorder_it_only_asks_once_whether_there_is_one(monkeypatch):
    asked = []

    class Counting:
        def get(self):
            asked.append(1)
            return ()

    monkeypatch.setattr(watch, "_watching", Counting())
    monkeypatch.setattr(custom, "read", lambda *_: pytest.fail("nothing records"))
    attnviz.attention(QUERY, KEY, VALUE)
    assert asked == [1]


def test_a_compiled_model_has_torch_s_function_in_one_graph_and_is_recorded_all_the_same():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(D, D), Attending(is_causal=True)), randn(B, M, D)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), model(x), atol=1e-6, rtol=0)
    with attnviz.record(compiled) as trace:
        compiled(x)
    assert trace.layers == (1,)


@pytest.mark.filterwarnings("ignore")  # dynamo tells what it cannot trace
def test_what_torch_s_function_lacks_runs_beside_the_compiled_graph():
    x = randn(B, 1, M, D)
    compiled = torch.compile(lambda x: attnviz.attention(x + 1, x, x, softcap=2.0), backend="eager")
    torch.testing.assert_close(compiled(x), attnviz.attention(x + 1, x, x, softcap=2.0))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attn_mask": torch.ones(M, N).bool(), "is_causal": True}, "three ways to say one thing: give one of them"),
        ({"mask": Mask(causal=True), "is_causal": True}, "three ways to say one thing"),
        ({"attn_mask": torch.ones(3, 3).bool()}, "query, key, value and attn_mask must broadcast"),
        ({"dropout_p": 0.1, "softcap": 3.0}, "dropout_p goes with attn_mask or is_causal"),
        ({"softcap": -1.0}, "softcap must be positive or None, got -1.0"),
        ({"key": randn(B, G, N, D), "value": randn(B, G, N, D)}, "key has 2 heads and query 4: pass enable_gqa=True"),
        ({"key": randn(B, H, N, D + 1)}, r"key must have the head size of query \(8\), got 9"),
        ({"key": randn(3, H, N, D)}, "query, key, value and attn_mask must broadcast"),
    ],
)
@pytest.mark.parametrize("recording", [False, True])
def test_wrong_arguments(options, message, recording):
    def call():
        return attnviz.attention(**{"query": QUERY, "key": KEY, "value": VALUE, **options})

    def run():
        if recording:
            with attnviz.record(nn.Identity()):
                return call()
        return call()

    with pytest.raises(UsageError, match=message):
        run()


def test_the_model_must_call_it_in_the_block_to_be_recorded():
    with pytest.raises(RecordingError, match="did not run inside the block"), attnviz.record(nn.Identity()):
        pass
