"""What the place of a custom module says, how calls become one map, and what is kept of them."""

import pytest
import torch
from recording.layers import B, D, Layer, M, randn, recorded, stack, weights_of
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import attnviz
from attnviz.errors import BudgetError, RecordingError


def test_layers_have_the_number_in_their_path():
    trace = recorded(stack(), randn(B, M, D))
    assert [(record.name, record.layer) for record in trace.records] == [("1.0", 0), ("1.1", 1), ("1.2", 2)]
    assert list(trace.coverage()["recorded by"]) == ["torch function"] * 3


def test_layers_without_a_number_of_their_own_are_counted():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.blocks = Layer(), nn.ModuleList([Layer(), Layer()])

        def forward(self, x):
            for layer in (self.blocks[1], self.first, self.blocks[0]):
                x = layer(x)
            return x

    trace = recorded(Named(), randn(B, M, D))
    assert [(record.name, record.layer) for record in trace.records] == [("blocks.1", 0), ("first", 1), ("blocks.0", 2)]


def test_a_layer_used_again_is_another_layer():
    trace = recorded(stack(shared=True), randn(B, M, D))
    assert trace.layers == (0, 1, 2)
    assert not torch.equal(weights_of(trace, 0), weights_of(trace, 1))


def test_two_calls_in_one_layer_are_branches():
    model, x = stack(depth=2, calls=2), randn(B, M, D)
    trace = recorded(model, x)
    assert trace.layers == (0, 1)
    assert trace.branches(1) == ("0", "1")
    query, key, _ = model[1][0].qkv(model[0](x)).chunk(3, -1)
    hidden = torch.ones(M, M).triu(1).bool()
    for branch, factor in (("0", 1), ("1", 2)):
        want = (factor * query @ key.mT / D**0.5).masked_fill(hidden, -torch.inf).softmax(-1)
        torch.testing.assert_close(weights_of(trace, 0, branch)[:, 0], want.detach(), atol=1e-6, rtol=0)


def test_calls_in_the_model_s_own_forward_are_layers():
    class Functional(nn.Module):
        def forward(self, x):
            for _ in range(3):
                x = x + F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None])[:, 0]
            return x

    trace = recorded(Functional(), randn(B, M, D))
    assert [(record.name, record.layer, record.branch) for record in trace.records] == [
        ("model", 0, None),
        ("model", 1, None),
        ("model", 2, None),
    ]


def test_ids_and_labels_come_from_what_the_model_is_given():
    model = nn.Sequential(nn.Embedding(20, D), *stack())
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    assert [token.text for token in recorded(model, ids).tokens] == ["3", "1", "4", "1", "5"]
    assert [token.text for token in recorded(model, ids, tokens=list("abcde")).tokens] == list("abcde")


class Cached(nn.Module):
    """Decodes with a cache of its own; attention as in Layer."""

    def __init__(self):
        super().__init__()
        self.layer, self.past = Layer(), None

    def forward(self, x):
        query, key, value = (part[:, None] for part in self.layer.qkv(x).chunk(3, -1))
        if self.past is not None:
            key, value = torch.cat([self.past[0], key], 2), torch.cat([self.past[1], value], 2)
        self.past = key, value
        seen = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool).tril(key.shape[2] - query.shape[2])
        return F.scaled_dot_product_attention(query, key, value, attn_mask=seen)[:, 0]


@pytest.mark.parametrize("keep", ["qk", "qkv", "weights"])
def test_decoding_with_a_cache_joins_into_one_map(keep):
    model, x = Cached(), randn(B, 6, D)
    want = weights_of(recorded(model, x))
    model.past = None
    with torch.no_grad(), attnviz.record(model, keep=keep) as trace:
        for rows in (slice(0, 3), slice(3, 5), slice(5, 6)):
            model(x[:, rows])
    torch.testing.assert_close(weights_of(trace), want, atol=1e-6, rtol=0)
    assert trace[0, 0].statistics.largest_key.shape == (6,)


def test_tokens_decoded_with_a_cache_are_labelled_with_their_ids_and_steps():
    torch.manual_seed(0)
    model, ids = nn.Sequential(nn.Embedding(20, D), Cached()), torch.tensor([[3, 1, 4, 1, 5]])
    with torch.no_grad(), attnviz.record(model) as trace:
        for rows in (slice(0, 3), slice(3, 4), slice(4, 5)):
            model(ids[:, rows])
    assert [token.text for token in trace.tokens] == ["3", "1", "4", "1", "5"]
    assert trace[1, 0].steps == (0, 0, 0, 1, 2)


class Translator(nn.Module):
    """Encodes once, then decodes token by token with a cache."""

    def __init__(self):
        super().__init__()
        self.words, self.encoder, self.decoder = nn.Embedding(20, D), Layer(), Cached()
        self.cross_attention = nn.MultiheadAttention(D, 1, batch_first=True)

    def encode(self, ids):
        return self.encoder(self.words(ids))

    def forward(self, ids, memory):
        x = self.decoder(self.words(ids))
        return self.cross_attention(x, memory, memory, need_weights=False)[0]


def test_an_encoder_run_once_and_a_decoder_run_step_by_step():
    torch.manual_seed(0)
    model, source, target = Translator(), torch.tensor([[7, 8, 9, 10]]), torch.tensor([[1, 2, 3]])
    with torch.no_grad():
        with attnviz.record(model) as whole:
            model(target, model.encode(source))
        model.decoder.past = None
        with attnviz.record(model) as trace:
            memory = model.encode(source)
            for step in range(3):
                model(target[:, step : step + 1], memory)
    for kind, shape in (("encoder", (4, 4)), ("decoder", (3, 3)), ("cross", (3, 4))):
        assert trace.only(kind)[0, 0].shape == shape
        torch.testing.assert_close(
            trace.only(kind)[0, 0].weights(), whole.only(kind)[0, 0].weights(), atol=1e-6, rtol=0
        )
    assert [token.text for token in trace.cross[0, 0].rows] == ["1", "2", "3"]
    assert trace.cross[0, 0].steps == (0, 1, 2)


def test_a_second_run_takes_the_place_of_the_first():
    model, x = stack(), randn(B, M, D)
    with attnviz.record(model, budget=20_000) as trace:
        for _ in range(50):
            model(x)
        model(x * 2)
    torch.testing.assert_close(weights_of(trace), weights_of(recorded(model, x * 2)))
    assert trace.notes == ["the model ran several times inside the block: the trace holds its last run"]


@pytest.mark.parametrize("keep", ["statistics", "weights", "qkv"])
def test_what_is_kept(keep):
    trace, x = recorded(stack(), randn(B, M, D), keep=keep), randn(B, M, D)
    want = recorded(stack(), x)
    torch.testing.assert_close(trace[1, 0].entropy, want[1, 0].entropy)
    if keep == "qkv":
        assert trace.record(1).value.shape == (B, 1, M, D)
    if keep != "statistics":
        torch.testing.assert_close(weights_of(trace, 1), weights_of(want, 1))


def test_beyond_the_budget():
    with pytest.raises(BudgetError, match=r"the attention of 1\.1 would take the recording to"):
        recorded(stack(), randn(B, M, D), budget=1000)


def test_gradients_are_the_same():
    model, x = stack(), randn(B, M, D).requires_grad_()
    model(x).square().sum().backward()
    want = [x.grad.clone(), *(p.grad.clone() for p in model.parameters())]
    x.grad = None
    model.zero_grad()
    with attnviz.record(model) as trace:
        model(x).square().sum().backward()
    for got, expected in zip([x.grad, *(p.grad for p in model.parameters())], want, strict=True):
        torch.testing.assert_close(got, expected, atol=1e-6, rtol=0)
    assert not trace.record(0).view.view.query.requires_grad


@pytest.mark.parametrize("backward_inside", [True, False])
def test_gradient_checkpoints(backward_inside):
    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = stack()

        def forward(self, x):
            return checkpoint(self.layers, x, use_reentrant=False)

    model, x = Checkpointed(), randn(B, M, D).requires_grad_()
    with attnviz.record(model) as trace:
        loss = model(x).sum()
        if backward_inside:
            loss.backward()
    if not backward_inside:
        loss.backward()
    got, x.grad = x.grad, None
    model(x).sum().backward()
    torch.testing.assert_close(got, x.grad)
    assert trace.layers == (0, 1, 2)
    assert trace.notes == []


def test_a_layer_of_one_s_own_on_top_of_a_transformers_model():
    from transformers import BertConfig, BertModel

    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            sizes = {"hidden_size": D, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 8}
            self.bert = BertModel(
                BertConfig(vocab_size=20, max_position_embeddings=8, **sizes), add_pooling_layer=False
            )
            self.top = nn.MultiheadAttention(D, 1, batch_first=True)

        def forward(self, ids):
            x = self.bert(ids).last_hidden_state
            return self.top(x, x, x)[0]

    torch.manual_seed(0)
    model, ids = Tagger().eval(), torch.tensor([[3, 1, 4, 1, 5]])
    with torch.no_grad():
        trace, x = recorded(model, ids), model.bert(ids).last_hidden_state
        want = model.top(x, x, x, average_attn_weights=False)[1]
    assert [(record.layer, record.rung) for record in trace.records] == [
        (0, "interface"),
        (1, "interface"),
        (2, "torch function"),
    ]
    torch.testing.assert_close(weights_of(trace, 2), want, atol=1e-6, rtol=0)
    assert [token.text for token in trace.tokens] == ["3", "1", "4", "1", "5"]


def test_nothing_recorded_says_what_was_looked_for():
    with pytest.raises(RecordingError) as error:
        recorded(nn.Linear(D, D), randn(B, M, D))
    assert str(error.value) == (
        "no attention was recorded in Linear: it made no call of transformers' attention interface, torch's"
        " scaled_dot_product_attention, nn.MultiheadAttention and flex_attention, attnviz.attention and attnviz.tap;"
        " add attnviz.tap(weights, name=...) where it computes its weights"
    )


def test_attention_by_hand_is_listed_as_not_recorded():
    class OwnAttention(nn.Linear):
        def forward(self, x):
            return torch.softmax(x @ x.mT, -1) @ super().forward(x)

    trace = recorded(nn.Sequential(Layer(), OwnAttention(D, D)), randn(B, M, D))
    assert trace.unrecorded == ["1"]
    assert list(trace.coverage()["recorded by"]) == ["torch function", "not recorded"]


@torch.no_grad()
def test_a_module_that_was_not_called_is_said_to_be_just_that():
    class Half(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.idle = (nn.MultiheadAttention(8, 2, batch_first=True) for _ in range(2))

        def forward(self, x):
            return self.used(x, x, x)[0]

    model = Half()
    with attnviz.record(model) as trace:
        model(torch.randn(1, 5, 8))
    assert trace.notes == ["idle was not recorded: it was not called"]
